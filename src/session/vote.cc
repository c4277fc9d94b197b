#include "session/vote.h"

#include <algorithm>

#include "base/text.h"
#include "base/vote.h"

namespace multiverso {
namespace {

struct VoteMessage {
  Vote vote;
  int32_t error_number = 0;
  int32_t unused = 0;
  int64_t position = 0;
  MasterMessage from_master;
  char path[160] = {};
};

static_assert(sizeof(VoteMessage) <= ExchangeSlot::kMaxBytes);

// The character that replaces the folder at the beginning of a text. No error's text contains it.
constexpr char kFolderMark = '\x01';

std::string WithoutFolder(const std::string& text, const std::string& folder) {
  if (folder.empty() || text.compare(0, folder.size(), folder) != 0) return text;
  return kFolderMark + text.substr(folder.size());
}

std::string WithFolder(const std::string& text, const std::string& folder) {
  return !text.empty() && text[0] == kFolderMark ? folder + text.substr(1) : text;
}

VoteMessage ReadMessage(const Group& world, int rank) {
  return world.payload(rank).Read<VoteMessage>();
}

}  // namespace

void CastVote(Group* world, CollectiveKind kind, const Status& status, const std::string& folder,
              const MasterMessage& from_master) {
  VoteMessage message;
  message.vote = Vote::Of(Status(status.code(), WithoutFolder(status.text(), folder)));
  message.from_master = from_master;
  if (const FileFault* fault = status.file()) {
    message.error_number = fault->error_number;
    message.position = fault->position;
    CopyText(message.path, WithoutFolder(fault->path, folder));
  }
  world->BeginAllgather(kind, &message, sizeof(message));
}

Status FirstFailure(const Group& world, const std::string& folder) {
  for (const int rank : world.participants()) {
    const VoteMessage message = ReadMessage(world, rank);
    if (message.vote.code == 0) continue;
    return Status(
        static_cast<Code>(message.vote.code),
        StrCat("rank ", rank, ": ", WithFolder(message.vote.text, folder)),
        FileFault{WithFolder(message.path, folder), message.error_number, message.position});
  }
  return Status::Ok();
}

Status CheckAllVoted(const RankContext& context, const Group& world, const std::vector<int>& ranks,
                     const std::string& task) {
  const std::vector<int> participants = world.participants();
  for (const int rank : ranks) {
    if (std::find(participants.begin(), participants.end(), rank) != participants.end()) continue;
    return context.peers()->About(
        rank, Status(Code::kPeerLost,
                     StrCat(context.members().NameRank(rank), " ",
                            context.peers()->ExitReason(rank), " before it had ", task)));
  }
  return Status::Ok();
}

MasterMessage MasterMessageOf(const Group& world, int master) {
  return ReadMessage(world, master).from_master;
}

}  // namespace multiverso
