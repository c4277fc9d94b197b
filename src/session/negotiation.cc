#include "session/negotiation.h"

#include <algorithm>
#include <utility>

#include "base/crc.h"
#include "base/text.h"

namespace multiverso {
namespace {

constexpr int64_t kTablesAtOnce = 8 * 320;

struct Proposal {
  uint32_t folder_crc = 0;
  uint32_t flag = 0;
  int64_t step = 0;
  int64_t keep = 0;
  int64_t table = 0;
  char folder[128] = {};  // its end, for messages
  unsigned char has[kTablesAtOnce / 8] = {};
};

static_assert(sizeof(Proposal) <= ExchangeSlot::kMaxBytes);

Proposal Read(const Group& circle, int rank) { return circle.payload(rank).Read<Proposal>(); }

bool Has(const Proposal& proposal, int64_t place) {
  return (proposal.has[place / 8] >> (place % 8) & 1) != 0;
}

std::string Describe(const Proposal& request) {
  std::string text = StrCat("'", request.folder, "'");
  if (request.table >= 0) text += StrCat(", table number ", request.table);
  if (request.step >= 0) text += StrCat(", step ", request.step);
  if (request.keep > 0) text += StrCat(", keep ", request.keep);
  return text + (request.flag != 0 ? ", with the flag" : "");
}

bool IsSame(const Proposal& a, const Proposal& b) {
  return a.folder_crc == b.folder_crc && a.flag == b.flag && a.step == b.step && a.keep == b.keep &&
         a.table == b.table;
}

}  // namespace

Negotiation::Negotiation(RankContext* group, CollectiveKind kind, CheckpointRequest request,
                         Tables tables, int64_t num_created)
    : group_(group),
      kind_(kind),
      request_(std::move(request)),
      tables_(std::move(tables)),
      num_created_(num_created) {}

void Negotiation::Arrive() {
  Proposal proposal;
  const std::string& folder = request_.folder;
  proposal.folder_crc = Crc32c(folder.data(), static_cast<int64_t>(folder.size()));
  proposal.flag = request_.flag ? 1 : 0;
  proposal.step = request_.step;
  proposal.keep = request_.keep;
  proposal.table = request_.table;
  constexpr size_t kMost = sizeof(proposal.folder) - 1;
  CopyText(proposal.folder, folder.substr(folder.size() > kMost ? folder.size() - kMost : 0));
  for (const auto& table : tables_) {
    const int64_t place = table->id() - base_;
    if (place < 0 || place >= kTablesAtOnce) continue;
    proposal.has[place / 8] |= static_cast<unsigned char>(1U << (place % 8));
  }
  group_->world()->BeginAllgather(kind_, &proposal, sizeof(proposal));
}

Status Negotiation::Compare() const {
  const Group& circle = *group_->world();
  const std::vector<int> present = circle.participants();
  const int first = present.front();
  const Proposal one = Read(circle, first);
  for (const int rank : present) {
    const Proposal other = Read(circle, rank);
    if (IsSame(one, other)) continue;
    return Status(Code::kMismatch, StrCat("the ranks did not make the same call: rank ", first,
                                          " called ", NameOf(kind_), " of ", Describe(one),
                                          ", rank ", rank, " of ", Describe(other)));
  }
  return Status::Ok();
}

Status Negotiation::Step(const WaitLimit& limit) {
  for (;;) {
    if (!arrived_) Arrive();
    arrived_ = true;
    MV_RETURN_IF_NOT_OK(group_->world()->Wait(limit));
    arrived_ = false;
    MV_RETURN_IF_NOT_OK(Compare());
    for (const int rank : group_->world()->participants()) {
      const Proposal other = Read(*group_->world(), rank);
      const auto lacks = [&](const std::shared_ptr<Table>& table) {
        const int64_t place = table->id() - base_;
        return place >= 0 && place < kTablesAtOnce && !Has(other, place);
      };
      tables_.erase(std::remove_if(tables_.begin(), tables_.end(), lacks), tables_.end());
    }
    base_ += kTablesAtOnce;
    if (base_ >= num_created_) break;
  }
  if (request_.table < 0) return Status::Ok();
  const auto is_other = [&](const std::shared_ptr<Table>& table) {
    return table->id() != request_.table;
  };
  tables_.erase(std::remove_if(tables_.begin(), tables_.end(), is_other), tables_.end());
  return Status::Ok();
}

}  // namespace multiverso
