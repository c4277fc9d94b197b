#include "session/table_snapshot.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/process.h"
#include "base/start_thread.h"
#include "session/table_record.h"

namespace multiverso {
namespace {

// The bytes that a thread copies between two checks of the limit.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kCacheLine = 64;
// More threads per rank hardly increase the memory throughput.
constexpr int kMaxThreads = 4;

}  // namespace

std::vector<int64_t> TableSnapshot::OffsetsOf(const std::vector<Section>& sections) {
  std::vector<int64_t> offsets;
  int64_t at = 0;
  for (const Section& section : sections) {
    offsets.push_back(at);
    at += RoundUp(section.bytes, kCacheLine);
  }
  offsets.push_back(at);
  return offsets;
}

int TableSnapshot::ThreadsFor(int ranks) {
  const int64_t threads = AllowedCores() / std::max(ranks, 1);
  return static_cast<int>(std::clamp<int64_t>(threads, 1, kMaxThreads));
}

TableSnapshot::TableSnapshot(const Tables& tables, const std::vector<Section>& sections, char* to) {
  const std::vector<int64_t> offsets = OffsetsOf(sections);
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& section = sections[i];
    for (int64_t at = 0; at < section.bytes; at += kPieceBytes) {
      pieces_.push_back(Piece{tables[section.table].get(), section, at,
                              std::min(kPieceBytes, section.bytes - at), to + offsets[i] + at});
    }
  }
}

Status TableSnapshot::Copy(int threads, const WaitLimit& limit) {
  std::atomic<size_t> next{0};
  const auto num_threads =
      std::max<size_t>(std::min(static_cast<size_t>(threads), pieces_.size()), 1);
  std::vector<Status> results(num_threads);
  std::vector<std::thread> helpers;
  helpers.reserve(num_threads);
  for (size_t i = 1; i < num_threads; ++i) {
    auto helper = StartThread("a thread that copies", [this, &next, &limit, result = &results[i]] {
      *result = CopyPieces(&next, WaitLimit::Until(limit.deadline));
    });
    if (!helper.ok()) break;  // with fewer threads the copy only takes longer
    helpers.push_back(std::move(helper.value()));
  }
  results[0] = CopyPieces(&next, limit);
  for (std::thread& helper : helpers) helper.join();
  for (const Status& result : results) MV_RETURN_IF_NOT_OK(result);
  return Status::Ok();
}

Status TableSnapshot::CopyPieces(std::atomic<size_t>* next, const WaitLimit& limit) const {
  for (;;) {
    const size_t index = next->fetch_add(1);
    if (index >= pieces_.size()) return Status::Ok();
    const Piece& piece = pieces_[index];
    Status status = CopySection(piece.table, piece.section, piece.offset, piece.bytes, piece.to,
                                NextRead::kLater, limit);
    if (status.ok()) status = limit.Check(Clock::now());
    if (status.ok()) continue;
    next->store(pieces_.size());
    return status;
  }
}

}  // namespace multiverso
