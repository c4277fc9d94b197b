#include "group/node_contribution.h"

#include <utility>

#include "base/frame.h"

namespace multiverso {
namespace {

// A contribution is a frame of this header and, per member in rank order, an Entry and its bytes.
// Attached bytes may follow, after their number.
struct Header {
  int32_t group;
  int32_t node;
  uint64_t sequence;
};

struct Entry {
  int32_t rank;
  uint32_t kind;  // a CollectiveKind
  uint32_t bytes;
};

bool IsMember(const Membership& members, int group, int rank) {
  return group == kWorldGroup || members.is_worker(rank);
}

void AppendMember(int rank, CollectiveKind kind, const std::string& data, std::string* bytes) {
  AppendRaw(Entry{rank, static_cast<uint32_t>(kind), static_cast<uint32_t>(data.size())}, bytes);
  *bytes += data;
}

}  // namespace

int64_t MaxContributionBytes(const Membership& members) {
  constexpr auto kEntryBytes = static_cast<int64_t>(sizeof(Entry)) + ExchangeSlot::kMaxBytes;
  return FrameBytes<Header>() + static_cast<int64_t>(sizeof(uint64_t)) +
         members.size() * (kEntryBytes + kMaxAttachedBytes);
}

bool PackContribution(const NodeMemory& memory, const Membership& members, int group,
                      uint64_t sequence, std::string* bytes) {
  *bytes = MakeFrame(FrameKind::kContribution, Header{group, members.node(), sequence});
  for (const int rank : members.node_ranks()) {
    if (!IsMember(members, group, rank)) continue;
    const RankSlot::GroupProgress& progress = memory.slot(rank).groups[group];
    if (progress.sequence.load(std::memory_order_acquire) < sequence) return false;
    const ExchangeSlot& payload = progress.SlotFor(sequence);
    AppendMember(rank, payload.marked_kind(), payload.Bytes(), bytes);
  }
  return true;
}

std::string PackFailure(const Membership& members, int group, uint64_t sequence,
                        CollectiveKind kind, const std::string& vote) {
  std::string bytes = MakeFrame(FrameKind::kContribution, Header{group, members.node(), sequence});
  for (const int rank : members.node_ranks()) {
    if (IsMember(members, group, rank)) AppendMember(rank, kind, vote, &bytes);
  }
  return bytes;
}

void Attach(const std::string& attached, std::string* bytes) {
  AppendRaw(uint64_t{attached.size()}, bytes);
  *bytes += attached;
}

bool UnpackContribution(const std::string& bytes, const Membership& members,
                        NodeContribution* contribution) {
  Header header{};
  FrameReader reader(bytes);
  if (!reader.ReadHeader(FrameKind::kContribution, &header) || header.group < 0 ||
      header.group >= kSpanningGroups || header.node < 0 || header.node >= members.num_nodes() ||
      header.node == members.node()) {
    return false;
  }
  *contribution = NodeContribution{header.node, header.group, header.sequence, {}, {}};
  for (int rank = 0; rank < members.size(); ++rank) {
    if (members.node_of(rank) != header.node || !IsMember(members, header.group, rank)) continue;
    Entry entry{};
    RankContribution member;
    if (!reader.Read(&entry) || entry.rank != rank || entry.kind == 0 ||
        entry.bytes > ExchangeSlot::kMaxBytes || !reader.ReadText(entry.bytes, &member.data)) {
      return false;
    }
    member.rank = rank;
    member.kind = static_cast<CollectiveKind>(entry.kind);
    contribution->ranks.push_back(std::move(member));
  }
  if (reader.remaining() == 0) return true;
  uint64_t attached = 0;
  if (!reader.Read(&attached) || attached != reader.remaining()) return false;
  contribution->attached = std::string_view(bytes).substr(bytes.size() - attached);
  return true;
}

}  // namespace multiverso
