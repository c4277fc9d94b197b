// NodeContribution: the payloads of the ranks of one node in one collective, as one message between
// leaders. A leader may add further bytes (Attachment).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "node/control_segment.h"
#include "node/membership.h"
#include "node/node_memory.h"

namespace multiverso {

struct RankContribution {
  int rank = 0;
  CollectiveKind kind{};
  std::string data;  // the payload
};

struct NodeContribution {
  int node = 0;
  int group = 0;
  uint64_t sequence = 0;
  std::vector<RankContribution> ranks;  // the members of the group on that node, in order
  std::string_view attached;            // what the leader added (Attachment), in the unpacked bytes
};

// The most bytes of a partial sum in an attachment, which has at most one for each rank.
constexpr int64_t kMaxAttachedBytes = int64_t{16} << 10;

// Returns the largest size of a contribution in this session.
int64_t MaxContributionBytes(const Membership& members);

// Packs the contribution of this node. Returns false unless all members on this node have begun the
// collective.
bool PackContribution(const NodeMemory& memory, const Membership& members, int group,
                      uint64_t sequence, std::string* bytes);

// Packs, as the contribution of this node, that all its members have failed in the collective.
// `kind` is that of their call, marked, and `vote` their payload.
std::string PackFailure(const Membership& members, int group, uint64_t sequence,
                        CollectiveKind kind, const std::string& vote);

// Adds what a leader attaches to the contribution in `bytes`.
void Attach(const std::string& attached, std::string* bytes);

// Returns false unless `bytes` are a complete contribution of another node of the session.
bool UnpackContribution(const std::string& bytes, const Membership& members,
                        NodeContribution* contribution);

}  // namespace multiverso
