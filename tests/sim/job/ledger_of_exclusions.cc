// The checks of the ledger that concern ranks which the others have excluded because of their
// silence.
#include <algorithm>

#include "base/text.h"
#include "job/ledger.h"
#include "job/ledger_parts.h"

namespace sim {

using multiverso::Code;
using multiverso::Status;
using multiverso::StrCat;

namespace {

// Within this time, a rank that runs has made the steps that follow an exclusion in the code, and
// the messages that say so, or that were sent before it, have arrived.
constexpr int64_t kSettled = kSecond;
constexpr int64_t kFewSteps = kSecond * 3 / 10;

}  // namespace

bool Ledger::IsOnlyFault(int rank) const {
  return died_.empty() && suspended_.size() == 1 && suspended_.count(rank) != 0;
}

int64_t Ledger::SilentBeside(int rank, int other) const {
  const auto [from, until] = suspended_.at(rank);
  const int64_t end = std::min(until, Now());
  const auto found = suspended_.find(other);
  if (found == suspended_.end()) return end - from;
  // The other one ran before its own suspension, and after it.
  const auto [others_from, others_until] = found->second;
  return std::max(std::min(end, others_from) - from, end - std::max(from, others_until));
}

void Ledger::SeesExcluded(int rank, int other, int by) {
  const Quiet no_points;
  if (!excluded_.emplace(other, Exclusion{Now(), by}).second || !died_.empty()) return;
  // A node is silent as a whole.
  const std::vector<int> silent = plan_.NodeOf(by) == plan_.NodeOf(other)
                                      ? std::vector<int>{other}
                                      : plan_.ServiceRanks(plan_.NodeOf(other));
  for (const int one : silent) {
    if (suspended_.count(one) == 0) continue;
    const int64_t silence = SilentBeside(one, by);
    // Its last heartbeat is older than its suspension by a few tenths of peer_timeout at most.
    if (silence >= plan_.peer_timeout_ms * 1000000 / 2) continue;
    Violation(StrCat("a rank that resumes gives the others a new peer_timeout: rank ", by,
                     " has excluded rank ", other, ", and rank ", one, " was silent for ",
                     silence / 1000000, " ms while it ran, as rank ", rank, " sees"));
  }
}

void Ledger::CheckExclusion(const CallRecord& call, const Status& status) {
  const std::string who = StrCat("rank ", call.rank, ", ", call.what);
  const bool is_close = call.what.rfind("close", 0) == 0;
  if (status.code() == Code::kTimeout && status.peer() != nullptr &&
      plan_.NodeOf(status.peer()->rank) == plan_.NodeOf(call.rank) &&
      status.text().find("has sent no heartbeat") != std::string::npos) {
    told_of_silence_.emplace(status.peer()->rank, call.end);
  }
  // A rank that was excluded goes on alone, so the others make the calls of the plan, until one of
  // them has another error.
  const auto has_failed = [&](const CallRecord& one) {
    return one.code != Code::kOk && one.code != Code::kPeerLost && &one != &call &&
           suspended_.count(one.rank) == 0;
  };
  if (status.code() == Code::kMismatch && plan_.on_loss == "continue" && !plan_.Disagrees() &&
      died_.empty() && suspended_.count(call.rank) == 0 &&
      std::none_of(calls_.begin(), calls_.end(), has_failed)) {
    Violation(StrCat("the others continue: ", who, ": ", status.text()));
  }
  if (!IsOnlyFault(call.rank)) return;
  const int64_t resumed = suspended_.at(call.rank).second;
  const auto told = told_of_silence_.find(call.rank);
  if (told != told_of_silence_.end() && status.ok() && !is_close && call.start >= resumed &&
      call.start >= told->second + kFewSteps) {
    Violation(StrCat("an excluded rank changes nothing: ", who,
                     " succeeded after others were told of the silence of this rank"));
  }
  const auto found = excluded_.find(call.rank);
  if (found == excluded_.end()) return;
  if (plan_.on_loss == "continue" && plan_.signals &&
      found->second.known_since + kFewSteps < resumed) {
    Violation(StrCat("the process of an excluded rank is ended: ", who, ", went on, but rank ",
                     found->second.by, " had excluded the rank before it resumed"));
  }
  const bool knows = call.was_excluded || call.is_excluded;
  if (!knows || !knows_exclusion_.insert(call.rank).second) return;
  // What says so had arrived before it resumed.
  if (found->second.known_since + kSettled >= resumed) return;
  for (const CallRecord& earlier : calls_) {
    if (earlier.rank != call.rank || earlier.code != Code::kOk || earlier.start < resumed ||
        earlier.end < 0 || earlier.collective >= 0 || earlier.end + kSettled < call.end) {
      continue;
    }
    Violation(StrCat("an excluded rank changes nothing: rank ", earlier.rank, ", ", earlier.what,
                     " succeeded, although the rank had been excluded before it resumed"));
    break;
  }
}

// Checks that what a rank sends after other nodes have excluded it changes no value: a value is at
// most what an earlier get saw, and what ranks of other nodes have added since.
void Ledger::CheckUnchanged(int rank, int table, const std::vector<int64_t>& rows,
                            const std::vector<double>& values) {
  if (plan_.mode != "async" || suspended_.size() != 1 || excluded_.empty()) return;
  const int silent = suspended_.begin()->first;
  const int node = plan_.NodeOf(silent);
  const auto found = excluded_.find(silent);
  if (!IsOnlyFault(silent) || found == excluded_.end() || plan_.NodeOf(rank) == node) return;
  const auto call = std::find_if(calls_.rbegin(), calls_.rend(),
                                 [&](const CallRecord& one) { return one.rank == rank; });
  if (call->start < found->second.known_since + kSettled) return;
  const TablePlan& plan = At(plan_.tables, table);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const int64_t row = rows.empty() ? place / plan.columns : At(rows, place / plan.columns);
    const int64_t element = row * plan.columns + place % plan.columns;
    const auto [before, is_first] = seen_.emplace(std::pair(table, element), Seen());
    auto most = static_cast<int64_t>(before->second.value);
    for (const AddRecord& add : adds_) {
      const bool is_settled = add.is_over && add.over_at + kSettled < before->second.start;
      if (is_settled || add.table != table || plan_.NodeOf(add.rank) == node || !Names(add, row)) {
        continue;
      }
      most += add.value * WeightOf(element);
    }
    if (!is_first && values[i] > static_cast<double>(most)) {
      Violation(StrCat("an excluded rank changes nothing: rank ", rank, " gets ",
                       NumberText(values[i]), " of element ", element, " of table ", table,
                       ", but it was at most ", most, " without rank ", silent));
      return;
    }
    before->second = Seen{values[i], call->start};
  }
}

// Checks that what a rank sends after other nodes have excluded it completes no round: a get that
// failed for want of it does not succeed later.
void Ledger::CheckUnchangedRounds(int rank, int table) {
  if (suspended_.size() != 1 || excluded_.empty()) return;
  const int silent = suspended_.begin()->first;
  const auto found = excluded_.find(silent);
  if (!IsOnlyFault(silent) || found == excluded_.end()) return;
  const auto call = std::find_if(calls_.rbegin(), calls_.rend(),
                                 [&](const CallRecord& one) { return one.rank == rank; });
  for (const CallRecord& earlier : calls_) {
    if (earlier.rank != rank || earlier.what != call->what || earlier.code != Code::kPeerLost ||
        earlier.end < found->second.known_since) {
      continue;
    }
    // What ranks of other nodes have added had arrived.
    const auto is_missing = [&](const AddRecord& add) {
      return add.table == table && plan_.NodeOf(add.rank) != plan_.NodeOf(silent) &&
             (!add.is_over || add.over_at + kSettled > earlier.end);
    };
    if (std::any_of(adds_.begin(), adds_.end(), is_missing)) continue;
    Violation(StrCat("an excluded rank changes nothing: rank ", rank, ", ", call->what,
                     ", which failed at ", TimeText(earlier.end), " without rank ", silent,
                     ", succeeds"));
    return;
  }
}

}  // namespace sim
