#include "group/control_message.h"

#include "base/frame.h"
#include "base/text.h"

namespace multiverso {
namespace {

// The header of an answer. The late ranks follow the header.
struct AnswerHeader {
  int32_t node;
  int32_t group;
  uint64_t sequence;
};
struct LateRank {
  int32_t rank = -1;
  char last_call[124] = {};
};

}  // namespace

ControlMessage MessageAbout(int rank, ControlMessage::Kind kind, const Membership& members) {
  ControlMessage message;
  message.kind = kind;
  message.sender = members.rank();
  message.rank = rank;
  return message;
}

ControlMessage AbortMessage(const Status& why, bool excludes, const Membership& members) {
  const int about = why.peer() == nullptr ? -1 : why.peer()->rank;
  ControlMessage message = MessageAbout(about, ControlMessage::kAborted, members);
  message.code = static_cast<int32_t>(why.code());
  if (excludes) message.sequence = static_cast<uint64_t>(members.rank()) + 1;
  CopyText(message.text, why.text());
  return message;
}

ControlMessage ExitMessage(int rank, RankSlot::State state, const std::string& reason,
                           const Membership& members, const NodeMemory& memory) {
  ControlMessage message = MessageAbout(rank, ControlMessage::kExit, members);
  const RankSlot& slot = memory.slot(rank);
  message.code = static_cast<int32_t>(state);
  message.sequence = static_cast<uint64_t>(slot.excluded_by.load(std::memory_order_acquire));
  for (int i = 0; i < kGroups; ++i) {
    message.sequences[i] = slot.groups[i].sequence.load(std::memory_order_acquire);
  }
  CopyText(message.text, reason);
  return message;
}

ControlMessage LateQuestion(int group, uint64_t sequence, const Membership& members) {
  ControlMessage message = MessageAbout(members.rank(), ControlMessage::kLateQuestion, members);
  message.group = group;
  message.sequence = sequence;
  return message;
}

std::string AnswerQuestion(const ControlMessage& question, const Membership& members,
                           const NodeMemory& memory, const PeerStatus& peers) {
  std::string bytes = MakeFrame(FrameKind::kLateRanks,
                                AnswerHeader{members.node(), question.group, question.sequence});
  for (const int32_t rank : members.node_ranks()) {
    if (question.group != kWorldGroup && !members.is_worker(rank)) continue;
    const auto& sequence = memory.slot(rank).groups[question.group].sequence;
    if (sequence.load(std::memory_order_acquire) >= question.sequence) continue;
    LateRank late;
    late.rank = rank;
    CopyText(late.last_call, peers.LastCallOf(rank));
    AppendRaw(late, &bytes);
  }
  return bytes;
}

int64_t MaxLateAnswerBytes(int size) {
  return FrameBytes<AnswerHeader>() + size * int64_t{sizeof(LateRank)};
}

LateAnswer ReadLateAnswer(const std::string& bytes, int size) {
  AnswerHeader header{};
  FrameReader reader(bytes);
  if (!reader.ReadHeader(FrameKind::kLateRanks, &header)) return LateAnswer();
  LateAnswer answer{header.node, header.group, header.sequence, {}};
  for (LateRank late; reader.Read(&late);) {
    if (late.rank >= 0 && late.rank < size) {
      answer.last_calls.emplace(late.rank, TextOf(late.last_call));
    }
  }
  return answer;
}

bool ReadControlMessage(const std::string& bytes, const Membership& members,
                        ControlMessage* message) {
  FrameReader reader(bytes);
  const int size = members.size();
  const bool is_valid = reader.ReadHeader(FrameKind::kControl, message) &&
                        reader.remaining() == 0 && message->sender >= 0 && message->sender < size &&
                        !members.is_local(message->sender) &&
                        message->rank >= (message->kind == ControlMessage::kAborted ? -1 : 0) &&
                        message->rank < size && message->group >= 0 && message->group < kGroups;
  message->text[sizeof(message->text) - 1] = '\0';
  return is_valid;
}

}  // namespace multiverso
