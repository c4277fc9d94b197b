#include "session/table_snapshot.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/process.h"
#include "base/without_signals.h"
#include "session/table_record.h"

namespace multiverso {
namespace {

// Copied between two looks at the clock.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kCacheLine = 64;
// With more threads memory is hardly faster.
constexpr int kMostThreads = 4;

}  // namespace

std::vector<int64_t> TableSnapshot::OffsetsOf(const std::vector<Section>& sections) {
  std::vector<int64_t> offsets;
  int64_t at = 0;
  for (const Section& section : sections) {
    offsets.push_back(at);
    at += RoundUp(section.bytes, kCacheLine);
  }
  return offsets;
}

int64_t TableSnapshot::BytesOf(const std::vector<Section>& sections) {
  int64_t bytes = 0;
  for (const Section& section : sections) bytes += RoundUp(section.bytes, kCacheLine);
  return bytes;
}

int TableSnapshot::ThreadsFor(int ranks) {
  const int64_t threads = AllowedCores() / std::max(ranks, 1);
  return static_cast<int>(std::clamp<int64_t>(threads, 1, kMostThreads));
}

void TableSnapshot::Begin(const Tables& tables, const std::vector<Section>& sections, char* to,
                          int threads) {
  pieces_.clear();
  threads_ = threads;
  const std::vector<int64_t> offsets = OffsetsOf(sections);
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& section = sections[i];
    for (int64_t at = 0; at < section.bytes; at += kPieceBytes) {
      pieces_.push_back(Piece{tables[section.table].get(), section, at,
                              std::min(kPieceBytes, section.bytes - at), to + offsets[i] + at});
    }
  }
}

Status TableSnapshot::Step(const WaitLimit& limit) {
  std::atomic<size_t> next{0};
  const auto helpers = std::min(static_cast<size_t>(threads_), pieces_.size());
  std::vector<Share> shares(std::max<size_t>(helpers, 1));
  // Here, where there is somebody to tell if memory is short.
  for (Share& share : shares) share.unfinished.reserve(1);
  std::vector<std::thread> others;
  others.reserve(helpers);
  {
    const WithoutSignals without_signals;
    for (size_t i = 1; i < helpers; ++i) {
      try {
        others.emplace_back(&TableSnapshot::Work, this, &next, limit, &shares[i]);
      } catch (const std::system_error&) {
        break;  // with fewer it only takes longer
      }
    }
  }
  Work(&next, limit, &shares[0]);
  for (std::thread& other : others) other.join();
  std::vector<Piece> left;
  Status failure;
  for (Share& share : shares) {
    left.insert(left.end(), share.unfinished.begin(), share.unfinished.end());
    if (failure.ok()) failure = share.failure;
  }
  const size_t taken = std::min(next.load(), pieces_.size());
  left.insert(left.end(), pieces_.begin() + static_cast<int64_t>(taken), pieces_.end());
  pieces_ = std::move(left);
  if (!failure.ok()) return failure;
  return pieces_.empty() ? Status::Ok() : Status::Pending();
}

void TableSnapshot::Work(std::atomic<size_t>* next, const WaitLimit& limit, Share* share) const {
  do {
    const size_t number = next->fetch_add(1);
    if (number >= pieces_.size()) return;
    const Piece& piece = pieces_[number];
    const Status status = CopySection(piece.table, piece.section, piece.offset, piece.bytes,
                                      piece.to, ReadAgain::kLate, limit);
    if (status.ok()) continue;
    share->unfinished.push_back(piece);
    if (!status.pending()) share->failure = status;
    return;
  } while (Clock::now() < limit.slice_end);
}

}  // namespace multiverso
