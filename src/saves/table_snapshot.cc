#include "saves/table_snapshot.h"

#include <algorithm>
#include <atomic>
#include <future>

#include "base/checked.h"
#include "base/process.h"
#include "base/without_signals.h"
#include "saves/table_record.h"

namespace multiverso {
namespace {

// The bytes that a thread copies between two checks of the limit.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kCacheLine = 64;
// More threads per rank hardly increase the memory throughput.
constexpr int kMaxThreads = 4;

}  // namespace

std::vector<int64_t> SnapshotOffsets(const std::vector<Section>& sections) {
  std::vector<int64_t> offsets;
  int64_t at = 0;
  for (const Section& section : sections) {
    offsets.push_back(at);
    at += RoundUp(section.bytes, kCacheLine);
  }
  offsets.push_back(at);
  return offsets;
}

int SnapshotThreads(int ranks) {
  const int64_t threads = AllowedCores() / std::max(ranks, 1);
  return static_cast<int>(std::clamp<int64_t>(threads, 1, kMaxThreads));
}

Status CopySnapshot(const Tables& tables, const std::vector<Section>& sections, char* to,
                    int threads, const WaitLimit& limit) {
  struct Piece {
    size_t section;
    int64_t offset;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < sections.size(); ++i) {
    for (int64_t at = 0; at < sections[i].bytes; at += kPieceBytes) pieces.push_back(Piece{i, at});
  }
  const std::vector<int64_t> offsets = SnapshotOffsets(sections);
  std::atomic<size_t> next{0};
  // Copies pieces, in each thread, until no piece is left or a thread has failed.
  const auto copy_pieces = [&](const WaitLimit& limit_here) -> Status {
    for (size_t index = next++; index < pieces.size(); index = next++) {
      const Section& section = sections[pieces[index].section];
      const int64_t at = pieces[index].offset;
      Status status = CopySection(
          tables[section.table].get(), section, at, std::min(kPieceBytes, section.bytes - at),
          to + offsets[pieces[index].section] + at, NextRead::kLater, limit_here);
      if (status.ok()) status = limit_here.Check(Clock::now());
      if (status.ok()) continue;
      next.store(pieces.size());
      return status;
    }
    return Status::Ok();
  };
  std::vector<std::future<Status>> helpers;
  {
    const WithoutSignals without_signals;
    const int most = std::min(threads, static_cast<int>(pieces.size()));
    for (int i = 1; i < most; ++i) {
      // A helper for which no thread can be started runs in get(), when no piece is left.
      helpers.push_back(std::async(std::launch::async | std::launch::deferred, copy_pieces,
                                   WaitLimit::Until(limit.deadline)));
    }
  }
  Status result = copy_pieces(limit);
  for (std::future<Status>& helper : helpers) {
    const Status status = helper.get();
    if (result.ok()) result = status;
  }
  return result;
}

}  // namespace multiverso
