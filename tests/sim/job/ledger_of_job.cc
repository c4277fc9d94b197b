// The checks of the ledger that need the whole job.
#include <algorithm>

#include "base/text.h"
#include "job/ledger.h"
#include "job/ledger_parts.h"

namespace sim {

using multiverso::Code;
using multiverso::StrCat;

namespace {

// Adds in doubt are tried in all combinations, up to so many.
constexpr size_t kMostDoubts = 12;

// Returns whether some of the numbers add up to a sum.
bool IsSumOfSome(const std::vector<int64_t>& numbers, int64_t sum) {
  const size_t count = std::min(numbers.size(), kMostDoubts);
  for (unsigned some = 0; some < (1U << count); ++some) {
    int64_t total = 0;
    for (size_t i = 0; i < count; ++i) total += (some >> i & 1) != 0 ? numbers[i] : 0;
    if (total == sum) return true;
  }
  return false;
}

}  // namespace

void Ledger::CheckJob(const std::string& hang) {
  for (const CallRecord& call : calls_) {
    if (call.end >= 0) continue;
    Note(StrCat("never ended: rank ", call.rank, ": ", call.what, ", begun at ",
                TimeText(call.start)));
  }
  if (!hang.empty()) {
    Violation("no hang: " + hang);
    return;
  }
  if (!plan_.Disagrees() && !CountsDiffer()) CheckCollectives();
  // A server skips the calls of workers, a rank that dies may not come to the different call, and a
  // session that continues does without a rank that leaves.
  const bool may_agree = !plan_.servers.empty() || plan_.HasFaults() ||
                         (plan_.Continues() && !plan_.RanksWith("leave").empty());
  const bool must_fail = plan_.Disagrees() && !may_agree;
  // A session that has been aborted can be closed without an error.
  const auto has_failed = [](const CallRecord& call) { return call.code != Code::kOk; };
  if (must_fail && std::none_of(calls_.begin(), calls_.end(), has_failed)) {
    Violation("a disagreement is a mismatch: no call has failed");
  }
  // A rank that leaves is lost to the others, and the others are told of the first error.
  const CallRecord* first = nullptr;
  for (const CallRecord& call : calls_) {
    const bool is_earlier = first == nullptr || call.end < first->end;
    if (must_fail && has_failed(call) && call.end >= 0 && is_earlier) first = &call;
  }
  if (first != nullptr && first->code != Code::kMismatch && plan_.RanksWith("leave").empty()) {
    Violation(StrCat("a disagreement is a mismatch: the first error, of rank ", first->rank, ", ",
                     first->what, ", is ", multiverso::NameOf(first->code), ": ", first->text));
  }
  // Where calls differ, the last barrier of one rank may be met by another barrier of the others,
  // so that their last adds come after its last get.
  if (plan_.mode != "sync" && !plan_.Disagrees()) CheckSums();
  CheckAbort();
  for (int rank = 0; rank < plan_.ranks; ++rank) CheckEnd(rank);
}

void Ledger::CheckAbort() {
  for (const CallRecord& call : calls_) {
    // A rank that is killed or suspended while it tells the others tells only some of them, who
    // then hear of its loss.
    const int64_t allowed = kSlack + (plan_.HasFaults() ? plan_.peer_timeout_ms * 1000000 : 0);
    if (call.end < 0 || MayBeSilent(call.rank)) continue;
    if (call.end - std::max(call.start, aborted_) <= allowed || call.end < aborted_) continue;
    Violation(StrCat("an abort is known soon: rank ", call.rank, ", ", call.what, " ended at ",
                     TimeText(call.end), ", a rank knew of an abort at ", TimeText(aborted_)));
    break;
  }
}

void Ledger::CheckCollectives() {
  double everybody = 0;
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (plan_.IsWorker(rank)) everybody += static_cast<double>(int64_t{1} << rank);
  }
  for (const auto& [number, collective] : collectives_) {
    const std::string what = StrCat("one outcome: collective ", number);
    for (const auto& [rank, sum] : collective.sums) {
      if (sum != collective.sums.begin()->second) {
        Violation(StrCat(what, ": rank ", rank, " has the sum ", NumberText(sum), ", rank ",
                         collective.sums.begin()->first, " ",
                         NumberText(collective.sums.begin()->second)));
      }
      for (int other = 0; other < plan_.ranks; ++other) {
        const bool is_in = (static_cast<int64_t>(sum) >> other & 1) != 0;
        if (!is_in || collective.entered.count(other) != 0) continue;
        Violation(StrCat(what, ": the sum ", NumberText(sum), " of rank ", rank, " has rank ",
                         other, ", which did not come"));
      }
      if ((static_cast<int64_t>(sum) >> rank & 1) == 0) {
        Violation(StrCat(what, ": rank ", rank, " is not in its sum ", NumberText(sum)));
      }
      if (!plan_.Continues() && sum != everybody) {
        Violation(StrCat(what, ": the sum ", NumberText(sum), " of rank ", rank,
                         " is not that of all workers"));
      }
    }
    if (!plan_.Continues()) continue;
    int first = -1;
    for (const auto& [rank, code] : collective.codes) {
      if (died_.count(rank) != 0 || suspended_.count(rank) != 0) continue;
      if (first < 0) first = rank;
      if (code == collective.codes.at(first)) continue;
      Violation(StrCat(what, ": rank ", rank, " has ", multiverso::NameOf(code), " from ",
                       collective.what.at(rank), ", rank ", first, " ",
                       multiverso::NameOf(collective.codes.at(first))));
    }
  }
}

void Ledger::CheckSums() {
  for (const auto& [who, values] : at_end_) {
    const auto [rank, table] = who;
    const TablePlan& plan = At(plan_.tables, table);
    if (!plan.IsSum()) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto element = static_cast<int64_t>(i);
      const int64_t acknowledged = At(At(acknowledged_, table), element);
      if (values[i] == static_cast<double>(acknowledged)) continue;
      std::vector<int64_t> doubtful;
      for (const AddRecord& add : adds_) {
        if (add.table == table && !add.is_acknowledged && !add.is_void &&
            Names(add, element / plan.columns)) {
          doubtful.push_back(add.value * WeightOf(element));
        }
      }
      if (IsSumOfSome(doubtful, static_cast<int64_t>(values[i]) - acknowledged)) continue;
      Violation(StrCat("every add is made once: at the end, rank ", rank, " sees ",
                       NumberText(values[i]), " in element ", element, " of table ", table,
                       ", acknowledged ", acknowledged, ", ", doubtful.size(), " adds in doubt"));
      break;
    }
  }
}

bool Ledger::MayTimeOut() const {
  return std::any_of(suspended_.begin(), suspended_.end(), [&](const auto& suspended) {
    return suspended.second.second - suspended.second.first >= plan_.timeout_ms * 1000000;
  });
}

bool Ledger::NamesSuspended(const std::string& text) const {
  return std::any_of(suspended_.begin(), suspended_.end(), [&](const auto& suspended) {
    return text.find("rank " + std::to_string(suspended.first)) != std::string::npos;
  });
}

void Ledger::CheckEnd(int rank) {
  const End& end = At(ends_, rank);
  if (died_.count(rank) != 0 || end.how.empty()) return;
  const std::string what =
      StrCat("rank ", rank, ", ", end.how, ": ", multiverso::NameOf(end.code), ": ", end.text);
  // Before all have joined, nobody may know which rank is missing.
  if (end.how == "open" && end.code != Code::kOk &&
      (!died_.empty() || !plan_.SuspendedLong().empty())) {
    if (end.code != Code::kTimeout && end.code != Code::kPeerLost && suspended_.empty()) {
      Violation("a loss is PeerLostError or a timeout: " + what);
    }
    return;
  }
  if (plan_.Disagrees()) {
    // Which of the errors a rank gets depends on whether another one has left already.
    if (end.code != Code::kOk && end.code != Code::kMismatch && end.code != Code::kPeerLost &&
        suspended_.empty()) {
      Violation("a disagreement is a mismatch: " + what);
    }
    return;
  }
  if (end.code == Code::kOk) return;
  const bool was_suspended = !suspended_.empty();
  const bool was_suspended_long = was_suspended && !plan_.SuspendedLong().empty();
  if (died_.empty() && !was_suspended_long) {
    Violation(StrCat(
        was_suspended ? "a short suspension has no effect: " : "without faults nothing fails: ",
        what));
  } else if (!was_suspended_long && plan_.Continues()) {
    Violation("the others continue: " + what);
  } else if (plan_.after_error != "leave" && end.code == Code::kMismatch) {
    // A rank that goes on or closes after its error makes another call than those that have none
    // yet.
  } else if (!was_suspended_long && end.code != Code::kPeerLost) {
    Violation("a loss is PeerLostError: " + what);
  } else if (end.code == Code::kAborted) {
    // A rank that did not wait when another one ended the session is told by its next call.
    const bool is_timeout = MayTimeOut() && end.text.find(" waited ") != std::string::npos;
    if (!NamesSuspended(end.text) && !is_timeout) Violation("a silent rank is named: " + what);
  } else if (end.code != Code::kPeerLost && end.code != Code::kTimeout &&
             end.code != Code::kState) {
    Violation("a silent rank is a timeout: " + what);
  }
  if (was_suspended || died_.empty()) return;
  int64_t known = INT64_MAX;
  for (const auto& [dead, at] : died_) known = std::min(known, at);
  for (const CallRecord& call : calls_) {
    if (call.rank != rank || call.code == Code::kOk || call.end < 0) continue;
    // A rank that has begun the call before it died is missed only after the last rank has come.
    int64_t begun = call.start;
    for (const CallRecord& other : calls_) {
      if (call.collective >= 0 && other.collective == call.collective) {
        begun = std::max(begun, other.start);
      }
    }
    if (call.end - std::max(begun, known) <= kSlack) break;
    Violation(StrCat("a loss is known soon: rank ", rank, ", ", call.what, " began at ",
                     TimeText(call.start), ", a rank died at ", TimeText(known),
                     ", the call failed at ", TimeText(call.end)));
    break;
  }
}

}  // namespace sim
