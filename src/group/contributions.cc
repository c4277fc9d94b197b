#include "group/contributions.h"

#include "base/frame.h"

namespace multiverso {
namespace {

// A message is a frame of this header, the runs, each a RunEntry and its payload, and what is
// attached, each an AttachedEntry and its bytes.
struct Header {
  int32_t group;
  int32_t node;
  uint64_t sequence;
  int32_t step;
  uint32_t runs;
};

struct RunEntry {
  uint32_t members;
  uint32_t kind;  // a CollectiveKind
  uint32_t bytes;
};

struct AttachedEntry {
  int32_t node;
  uint32_t bytes;
};

}  // namespace

void Contributions::Append(PayloadRun run) {
  if (!runs.empty() && runs.back().kind == run.kind && runs.back().data == run.data) {
    runs.back().members += run.members;
  } else {
    runs.push_back(std::move(run));
  }
}

void Contributions::Append(Contributions&& later) {
  for (PayloadRun& run : later.runs) Append(std::move(run));
  for (auto& one : later.attached) attached.push_back(std::move(one));
}

void Contributions::DropFirst(int64_t members) {
  auto run = runs.begin();
  for (; run != runs.end() && run->members <= members; ++run) members -= run->members;
  if (run != runs.end()) run->members -= static_cast<uint32_t>(members);
  runs.erase(runs.begin(), run);
}

int64_t Contributions::members() const {
  int64_t members = 0;
  for (const PayloadRun& run : runs) members += run.members;
  return members;
}

int64_t MaxContributionsBytes(const Membership& members) {
  constexpr auto kEntries = static_cast<int64_t>(sizeof(RunEntry) + sizeof(AttachedEntry));
  return FrameBytes<Header>() +
         members.size() * (kEntries + ExchangeSlot::kMaxBytes + kMaxAttachedBytes);
}

std::string PackContributions(int group, int node, int step, uint64_t sequence,
                              const Contributions& contributions) {
  const auto runs = static_cast<uint32_t>(contributions.runs.size());
  std::string bytes =
      MakeFrame(FrameKind::kContributions, Header{group, node, sequence, step, runs});
  for (const PayloadRun& run : contributions.runs) {
    AppendRaw(RunEntry{run.members, static_cast<uint32_t>(run.kind),
                       static_cast<uint32_t>(run.data.size())},
              &bytes);
    bytes += run.data;
  }
  for (const auto& [from, attached] : contributions.attached) {
    AppendRaw(AttachedEntry{from, static_cast<uint32_t>(attached.size())}, &bytes);
    bytes += attached;
  }
  return bytes;
}

bool UnpackContributions(const std::string& bytes, ContributionsMessage* message) {
  Header header{};
  FrameReader reader(bytes);
  if (!reader.ReadHeader(FrameKind::kContributions, &header)) return false;
  *message = {header.group, header.node, header.step, header.sequence, {}};
  for (uint32_t i = 0; i < header.runs; ++i) {
    RunEntry entry{};
    PayloadRun run;
    if (!reader.Read(&entry) || entry.members == 0 || entry.kind == 0 ||
        entry.bytes > ExchangeSlot::kMaxBytes || !reader.ReadText(entry.bytes, &run.data)) {
      return false;
    }
    run.members = entry.members;
    run.kind = static_cast<CollectiveKind>(entry.kind);
    message->contributions.runs.push_back(std::move(run));
  }
  while (reader.remaining() > 0) {
    AttachedEntry entry{};
    std::string attached;
    if (!reader.Read(&entry) || !reader.ReadText(entry.bytes, &attached)) return false;
    message->contributions.attached.emplace_back(entry.node, std::move(attached));
  }
  return !message->contributions.runs.empty();
}

}  // namespace multiverso
