// ControlMessage: what a ControlChannel sends to other nodes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"
#include "liveness/peer_status.h"
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

// A node's answer to kLateQuestion.
struct LateAnswer {
  int node = -1;
  int group = -1;
  uint64_t sequence = 0;
  std::map<int, std::string> last_calls;  // of the late ranks, by rank; may be cut
};

// Returns a message of this rank about `rank`.
ControlMessage MessageAbout(int rank, ControlMessage::Kind kind, const Membership& members);
// Returns a report that this rank aborts the session, and excludes the rank that the error is about
// if `excludes`.
ControlMessage AbortMessage(const Status& why, bool excludes, const Membership& members);
// Returns a report that a rank of this node left or died.
ControlMessage ExitMessage(int rank, RankSlot::State state, const std::string& reason,
                           const Membership& members, const NodeMemory& memory);
// Returns the question who has not begun the collective with that number.
ControlMessage LateQuestion(int group, uint64_t sequence, const Membership& members);
// Returns the answer of this node to a question, as bytes of at most MaxLateAnswerBytes(size).
std::string AnswerQuestion(const ControlMessage& question, const Membership& members,
                           const NodeMemory& memory, const PeerStatus& peers);
int64_t MaxLateAnswerBytes(int size);
// Reads an answer in a job of that many ranks. The node of another message is -1.
LateAnswer ReadLateAnswer(const std::string& bytes, int size);
// Reads a message that has arrived from another node. Returns whether it is valid, apart from the
// meaning of its kind and code.
bool ReadControlMessage(const std::string& bytes, const Membership& members,
                        ControlMessage* message);

}  // namespace multiverso
