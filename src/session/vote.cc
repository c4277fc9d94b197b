#include "session/vote.h"

#include <algorithm>

#include "base/text.h"

namespace multiverso {
namespace {

struct Vote {
  int32_t code = 0;
  int32_t error_number = 0;
  int64_t position = 0;
  LeaderMessage tidings;
  char path[160] = {};
  char text[296] = {};
};

static_assert(sizeof(Vote) <= ExchangeSlot::kMaxBytes);

// Stands for the folder where a text begins with its path: no text of an error has it.
constexpr char kHere = '\x01';

std::string WithoutFolder(const std::string& text, const std::string& folder) {
  if (folder.empty() || text.compare(0, folder.size(), folder) != 0) return text;
  return kHere + text.substr(folder.size());
}

std::string WithFolder(const std::string& text, const std::string& folder) {
  return !text.empty() && text[0] == kHere ? folder + text.substr(1) : text;
}

Vote Read(const Group& circle, int rank) { return circle.payload(rank).Read<Vote>(); }

}  // namespace

void CastVote(Group* circle, CollectiveKind kind, const Status& status, const std::string& folder,
              const LeaderMessage& tidings) {
  Vote outcome;
  outcome.code = static_cast<int32_t>(status.code());
  outcome.tidings = tidings;
  CopyText(outcome.text, WithoutFolder(status.text(), folder));
  if (const FileFault* fault = status.file()) {
    outcome.error_number = fault->error_number;
    outcome.position = fault->position;
    CopyText(outcome.path, WithoutFolder(fault->path, folder));
  }
  circle->BeginAllgather(kind, &outcome, sizeof(outcome));
}

Status FirstFailure(const Group& circle, const std::string& folder) {
  for (const int rank : circle.participants()) {
    const Vote outcome = Read(circle, rank);
    if (outcome.code == 0) continue;
    return Status(
        static_cast<Code>(outcome.code),
        StrCat("rank ", rank, ": ", WithFolder(outcome.text, folder)),
        FileFault{WithFolder(outcome.path, folder), outcome.error_number, outcome.position});
  }
  return Status::Ok();
}

Status CheckAllCame(const RankContext& group, const Group& circle, const std::vector<int>& ranks,
                    const std::string& task) {
  const std::vector<int> present = circle.participants();
  for (const int rank : ranks) {
    if (std::find(present.begin(), present.end(), rank) != present.end()) continue;
    return group.peers()->About(
        rank,
        Status(Code::kPeerLost, StrCat(group.members().NameRank(rank), " ",
                                       group.peers()->ExitReason(rank), " before it had ", task)));
  }
  return Status::Ok();
}

LeaderMessage LeaderMessageOf(const Group& circle, int rank) { return Read(circle, rank).tidings; }

}  // namespace multiverso
