// ControlMessage: what a ControlChannel sends to other nodes.
#pragma once

#include <cstdint>
#include <string>

#include "node/control_segment.h"
#include "node/membership.h"
#include "node/node_memory.h"

namespace multiverso {

struct ControlMessage {
  enum Kind : uint32_t {
    kAborted = 1,
    kExit = 2,
    kLateQuestion = 3,
    kHeartbeat = 4,
    kLeaving = 5,
  };

  uint32_t kind = 0;
  int32_t sender = 0;
  int32_t rank = 0;  // the rank that it is about; -1 for kAborted if the error is about none
  // kAborted: a Code; kExit: a RankSlot::State; kHeartbeat: 1 for the last one.
  int32_t code = 0;
  int32_t group = 0;  // this and the next: kLateQuestion
  // kExit and kAborted: 1 + the rank that has found `rank` silent, or 0.
  uint64_t sequence = 0;
  uint64_t sequences[kGroups] = {};  // kExit: the latest collectives that the rank had begun
  char text[512] = {};
};

// The header of an answer to kLateQuestion. The late ranks follow the header.
struct LateRanksHeader {
  int32_t node;
  int32_t group;
  uint64_t sequence;
};
struct LateRank {
  int32_t rank = -1;
  char last_call[124] = {};  // for messages; may be cut
};

// Returns a message of this rank about `rank`.
ControlMessage MessageAbout(int rank, ControlMessage::Kind kind, const Membership& members);
// Returns a report that a rank of this node left or died.
ControlMessage ExitMessage(int rank, RankSlot::State state, const std::string& reason,
                           const Membership& members, const NodeMemory& memory);
// Returns the question who has not begun the collective with that number.
ControlMessage LateQuestion(int group, uint64_t sequence, const Membership& members);
// Reads a message that has arrived from another node. Returns whether it is valid, apart from the
// meaning of its kind and code.
bool ReadControlMessage(const std::string& bytes, const Membership& members,
                        ControlMessage* message);

}  // namespace multiverso
