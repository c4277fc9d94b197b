// Contributions: what leaders send each other for one collective: the payloads of the members of
// some nodes, and what the leaders of these nodes attach (Attachment).
//
// Members that follow each other and make the same call with the same payload are one run. So a
// barrier is one run, however many ranks it has; in sync mode another run begins where the next
// rank has another role.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "node/exchange_slot.h"
#include "node/membership.h"

namespace multiverso {

struct PayloadRun {
  uint32_t members = 0;
  CollectiveKind kind{};
  std::string data;  // the payload
};

struct Contributions {
  std::vector<PayloadRun> runs;
  std::vector<std::pair<int32_t, std::string>> attached;  // by node, in the order of the runs

  // Appends a run, or makes the last one longer.
  void Append(PayloadRun run);
  void Append(Contributions&& later);
  // Removes the first members.
  void DropFirst(int64_t members);
  int64_t members() const;
};

// The contributions that a leader sends in one step of a collective (LeaderExchange).
struct ContributionsMessage {
  int group = 0;
  int node = 0;  // of the sender
  int step = 0;
  uint64_t sequence = 0;
  Contributions contributions;
};

// The most bytes of a partial sum in an attachment, which has at most one for each rank.
constexpr int64_t kMaxAttachedBytes = int64_t{16} << 10;

// Returns the largest size of a message in this session.
int64_t MaxContributionsBytes(const Membership& members);

std::string PackContributions(int group, int node, int step, uint64_t sequence,
                              const Contributions& contributions);

// Returns false unless `bytes` are a complete message. The caller checks the numbers in it.
bool UnpackContributions(const std::string& bytes, ContributionsMessage* message);

}  // namespace multiverso
