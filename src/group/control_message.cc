#include "group/control_message.h"

#include "base/frame.h"
#include "base/text.h"

namespace multiverso {

ControlMessage MessageAbout(int rank, ControlMessage::Kind kind, const Membership& members) {
  ControlMessage message;
  message.kind = kind;
  message.sender = members.rank();
  message.rank = rank;
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
