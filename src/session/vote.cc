#include "session/vote.h"

#include <algorithm>

#include "base/text.h"
#include "base/vote.h"

namespace multiverso {
namespace {

struct Message {
  Vote vote;
  LeaderMessage from_leader;
};

static_assert(sizeof(Message) <= ExchangeSlot::kMostBytes);

Message Read(const Group& circle, int rank) { return circle.deposit(rank).Read<Message>(); }

}  // namespace

void CastVote(Group* circle, CollectiveKind kind, const Status& status, const std::string& folder,
              const LeaderMessage& from_leader) {
  const Message message{Vote::Of(status, folder), from_leader};
  circle->Arrive(kind, &message, sizeof(message));
}

Status FirstFailure(const Group& circle, const std::string& folder) {
  for (const int rank : circle.present()) {
    MV_RETURN_IF_NOT_OK(Read(circle, rank).vote.ToStatus(StrCat("rank ", rank), folder));
  }
  return Status::Ok();
}

Status CheckAllCame(const NodeGroup& group, const Group& circle, const std::vector<int>& ranks,
                    const std::string& task) {
  const std::vector<int> present = circle.present();
  for (const int rank : ranks) {
    if (std::find(present.begin(), present.end(), rank) != present.end()) continue;
    return group.peers()->About(
        rank,
        Status(Code::kPeerLost, StrCat(group.members().NameRank(rank), " ",
                                       group.peers()->ExitReason(rank), " before it had ", task)));
  }
  return Status::Ok();
}

LeaderMessage LeaderMessageOf(const Group& circle, int rank) {
  return Read(circle, rank).from_leader;
}

}  // namespace multiverso
