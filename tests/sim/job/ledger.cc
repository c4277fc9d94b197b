#include "job/ledger.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "job/ledger_parts.h"

namespace sim {

using multiverso::Code;
using multiverso::Status;
using multiverso::StrCat;

namespace {

// Rows of more bytes travel in several messages, and may be seen between two of them.
constexpr int64_t kLargestWholeRow = 512 * 1024;

}  // namespace

Ledger::Ledger(const Plan& plan) : plan_(plan) {
  for (const TablePlan& table : plan_.tables) {
    acknowledged_.emplace_back(static_cast<size_t>(table.count()), 0);
    issued_.emplace_back(static_cast<size_t>(table.count()), 0);
    rounds_.emplace_back();
    rounds_.back().made.assign(static_cast<size_t>(plan_.ranks), 0);
    rounds_.back().sums.emplace_back(static_cast<size_t>(table.count()), 0);
  }
  next_collective_.assign(static_cast<size_t>(plan_.ranks), 0);
  ends_.resize(static_cast<size_t>(plan_.ranks));
}

void Ledger::WriteTo(char* trace, size_t* used, size_t size) {
  trace_ = trace;
  trace_used_ = used;
  trace_size_ = size;
}

void Ledger::Note(const std::string& text) {
  const std::string line = TimeText(Now()) + " " + text + "\n";
  if (trace_ == nullptr || *trace_used_ + line.size() > trace_size_) return;
  std::memcpy(trace_ + *trace_used_, line.data(), line.size());
  *trace_used_ += line.size();
}

void Ledger::Violation(const std::string& text) {
  const Quiet no_points;
  Note("VIOLATION: " + text);
  violations_.push_back(text);
}

// ---- Calls.

size_t Ledger::Began(int rank, int step, const std::string& what, int64_t limit_ns,
                     bool was_excluded, bool is_collective) {
  const Quiet no_points;
  CallRecord call;
  call.rank = rank;
  call.step = step;
  call.what = what;
  call.start = Now();
  call.limit_ns = limit_ns;
  call.was_excluded = was_excluded;
  if (is_collective) {
    call.collective = At(next_collective_, rank)++;
    Collective& collective = collectives_[call.collective];
    collective.entered.insert(rank);
    collective.what[rank] = what;
    for (const Rounds& rounds : rounds_) collective.adds[rank].push_back(At(rounds.made, rank));
  }
  calls_.push_back(std::move(call));
  return calls_.size() - 1;
}

void Ledger::Ended(size_t record, const Status& status, bool is_excluded) {
  const Quiet no_points;
  CallRecord& call = calls_[record];
  call.is_excluded = is_excluded;
  call.end = Now();
  call.code = status.code();
  call.text = status.text();
  if (call.collective >= 0) collectives_[call.collective].codes[call.rank] = status.code();
  Note(StrCat("rank ", call.rank, ": ", call.what, ", begun at ", TimeText(call.start), ": ",
              status.ok() ? "ok" : multiverso::NameOf(status.code()), status.ok() ? "" : ": ",
              status.text()));
  CheckCall(call, status);
  CheckExclusion(call, status);
}

bool Ledger::IsOpening(int rank) const {
  return std::any_of(calls_.begin(), calls_.end(), [&](const CallRecord& call) {
    return call.rank == rank && call.what == "open" && call.end < 0;
  });
}

bool Ledger::HasHadTime(int rank) const {
  // The last look of the library at its exclusion lies before the end of the call, and after it
  // each store may be a step, too.
  const uint64_t last_steps = plan_.writes ? 1000 : 100;
  const auto suspended = points_at_suspension_.find(rank);
  return suspended != points_at_suspension_.end() &&
         PointsOfProgram(rank) > suspended->second + last_steps;
}

void Ledger::CheckCall(const CallRecord& call, const Status& status) {
  const std::string who = StrCat("rank ", call.rank, ", ", call.what);
  // A rank that has been told so may close in peace.
  const bool is_close = call.what.rfind("close", 0) == 0;
  if (status.ok() && call.was_excluded && !is_close) {
    Violation(StrCat("an excluded rank changes nothing: ", who, " of an excluded rank succeeded"));
  }
  const bool is_on_table = call.collective < 0 && !is_close;
  if (status.ok() && call.is_excluded && !call.was_excluded && is_on_table &&
      HasHadTime(call.rank)) {
    Violation(StrCat("an excluded rank changes nothing: ", who,
                     " of a rank that was excluded meanwhile does not say so"));
  }
  int64_t waited = call.end - call.start;
  const int64_t allowed = call.limit_ns + kSlack;
  const auto suspended = suspended_.find(call.rank);
  if (suspended != suspended_.end()) {
    const auto [from, until] = suspended->second;
    waited -= std::max<int64_t>(0, std::min(until, call.end) - std::max(from, call.start));
  }
  if (waited > allowed) {
    Violation(StrCat("no wait beyond its deadline: ", who, " took ", waited / 1000000,
                     " ms, allowed ", allowed / 1000000));
  }
  for (const auto& [silent, times] : suspended_) {
    const int64_t from = std::max(times.first, call.start);
    const int64_t end = std::min(times.second, call.end);
    // Calls in which ranks meet end with the session. Others may wait for the end of a node that
    // ends only then.
    const bool is_meeting = call.what.find("barrier") != std::string::npos ||
                            call.what.find("aggregate") != std::string::npos;
    const int64_t most = (is_meeting ? 1 : 2) * plan_.peer_timeout_ms * 1000000 + kSlack;
    // An opening waits as long for a rank that has not come as for one that starts late.
    if (suspended != suspended_.end() || call.what == "open") continue;
    if (end <= LatestEnd(call, from, most)) continue;
    Violation(StrCat("a loss is known soon: ", who, " went on for ", (end - from) / 1000000,
                     " ms while rank ", silent, " was silent"));
  }
  if (status.code() == Code::kPeerLost && status.peer() == nullptr) {
    Violation(StrCat("a lost rank is named: ", who, ": ", status.text()));
  } else if (status.code() == Code::kPeerLost) {
    const int lost = status.peer()->rank;
    const bool is_other = lost >= 0 && lost < plan_.ranks && lost != call.rank;
    // A rank ends its part before the ledger notes its end, and so does one that fails to open the
    // session because of another rank.
    const bool may_have_left = leaving_.count(lost) != 0 || (plan_.HasFaults() && IsOpening(lost));
    if (!is_other || (!MayBeSilent(lost) && !may_have_left)) {
      Violation(StrCat("a lost rank is named: ", who, " names rank ", lost,
                       ", which is not lost: ", status.text()));
    }
  }
}

int64_t Ledger::LatestEnd(const CallRecord& call, int64_t from, int64_t most) const {
  int64_t latest = from + most;
  for (bool is_later = plan_.Continues(); is_later;) {
    is_later = false;
    for (const auto& [other, times] : suspended_) {
      const int64_t begin = std::max(times.first, call.start);
      const int64_t end = std::min(begin + most, times.second + kSlack);
      if (begin > latest || end <= latest) continue;
      latest = end;
      is_later = true;
    }
  }
  return latest;
}

// ---- Adds and gets.

size_t Ledger::AddBegan(int rank, int table, std::vector<int64_t> rows, int64_t value,
                        bool is_void) {
  const Quiet no_points;
  AddRecord add;
  add.is_void = is_void;
  add.rank = rank;
  add.table = table;
  add.rows = std::move(rows);
  add.value = value;
  add.round = At(At(rounds_, table).made, rank)++;
  const TablePlan& plan = At(plan_.tables, table);
  for (int64_t element = 0; element < plan.count(); ++element) {
    if (!is_void && Names(add, element / plan.columns))
      At(At(issued_, table), element) += value * WeightOf(element);
  }
  adds_.push_back(std::move(add));
  return adds_.size() - 1;
}

void Ledger::AddEnded(size_t number, bool is_acknowledged, int64_t rounds) {
  const Quiet no_points;
  AddRecord& add = adds_[number];
  add.is_over = true;
  add.is_acknowledged = is_acknowledged;
  add.over_at = Now();
  if (!is_acknowledged) {
    failed_.insert(add.rank);
    if (rounds < 0) return;
    if (rounds != add.round && rounds != add.round + 1) {
      Violation(StrCat("equal bits: ", NameOf(add), " has failed in round ", add.round,
                       ", and its rank has made ", rounds, " rounds"));
    }
    if (rounds == add.round) add.round = kNoRound;
    At(At(rounds_, add.table).made, add.rank) = rounds;
    return;
  }
  const TablePlan& plan = At(plan_.tables, add.table);
  for (int64_t element = 0; element < plan.count(); ++element) {
    if (Names(add, element / plan.columns)) {
      At(At(acknowledged_, add.table), element) += add.value * WeightOf(element);
    }
  }
  // A failed add may or may not have counted.
  if (plan_.mode != "staleness" || failed_.count(add.rank) != 0) return;
  // A worker's add number j waits until every other worker has made at least j - s adds.
  for (int other = 0; other < plan_.ranks; ++other) {
    if (!plan_.IsWorker(other) || finished_.count(other) != 0 || !At(ends_, other).how.empty()) {
      continue;
    }
    const int64_t made = At(At(rounds_, add.table).made, other);
    if (made >= add.round - plan_.staleness || died_.count(other) != 0) continue;
    Violation(StrCat("staleness: ", NameOf(add), " is number ", add.round,
                     " of its rank, but rank ", other, " has made only ", made));
  }
}

std::string Ledger::NameOf(const AddRecord& add) const {
  return StrCat("an add of rank ", add.rank, " to table ", add.table, " of value ", add.value);
}

std::vector<int64_t> Ledger::Acknowledged(int table) const {
  const Quiet no_points;
  return At(acknowledged_, table);
}

bool Ledger::IsInDoubt(int table, int64_t row) const {
  return std::any_of(adds_.begin(), adds_.end(), [&](const AddRecord& add) {
    // A rank that dies may leave in part what it makes itself, or as the server of another's call.
    const bool is_in_doubt = add.is_over ? !add.is_acknowledged : !died_.empty();
    return is_in_doubt && !add.is_void && add.table == table && Names(add, row);
  });
}

void Ledger::Saw(int rank, int table, const std::vector<int64_t>& rows,
                 const std::vector<double>& values, const std::vector<int64_t>& before) {
  const Quiet no_points;
  if (plan_.mode == "sync") {
    CheckRounds(rank, table, rows, values);
    CheckUnchangedRounds(rank, table);
    return;
  }
  const TablePlan& plan = At(plan_.tables, table);
  if (!plan.IsSum()) return;
  const std::vector<int64_t> bound = LeastWithStaleness(rank, table);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const int64_t row = rows.empty() ? place / plan.columns : At(rows, place / plan.columns);
    const int64_t element = row * plan.columns + place % plan.columns;
    const auto least = static_cast<double>(std::max(At(before, element), At(bound, element)));
    const auto most = static_cast<double>(At(At(issued_, table), element));
    if (values[i] >= least && values[i] <= most) continue;
    Violation(StrCat("acknowledged <= value <= issued: rank ", rank, " gets ",
                     NumberText(values[i]), " of element ", element, " of table ", table,
                     ", acknowledged ", NumberText(least), ", issued ", NumberText(most)));
    break;
  }
  CheckRows(rank, table, rows, values);
  CheckUnchanged(rank, table, rows, values);
}

// A get after a worker's j-th add sees at least j - s adds of every other worker.
std::vector<int64_t> Ledger::LeastWithStaleness(int rank, int table) const {
  const TablePlan& plan = At(plan_.tables, table);
  std::vector<int64_t> least(static_cast<size_t>(plan.count()), 0);
  if (plan_.mode != "staleness" || !failed_.empty()) return least;
  const int64_t round = At(At(rounds_, table).made, rank) - plan_.staleness;
  for (const AddRecord& add : adds_) {
    if (add.table != table || (add.rank != rank && add.round >= round)) continue;
    for (int64_t element = 0; element < plan.count(); ++element) {
      if (Names(add, element / plan.columns)) {
        At(least, element) += add.value * WeightOf(element);
      }
    }
  }
  return least;
}

// Every add gives all elements of a row the same value times their weights, so a row that has
// another proportion was read, or written, in part.
void Ledger::CheckRows(int rank, int table, const std::vector<int64_t>& rows,
                       const std::vector<double>& values) {
  const TablePlan& plan = At(plan_.tables, table);
  if (plan.columns * 8 > kLargestWholeRow) return;
  const auto num_rows = static_cast<int64_t>(values.size()) / plan.columns;
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t row = rows.empty() ? i : At(rows, i);
    const int64_t first = row * plan.columns;
    for (int64_t column = 1; column < plan.columns; ++column) {
      const double scaled =
          At(values, i * plan.columns + column) * static_cast<double>(WeightOf(first));
      const double other =
          At(values, i * plan.columns) * static_cast<double>(WeightOf(first + column));
      if (scaled == other) continue;
      if (!IsInDoubt(table, row)) {
        Violation(StrCat("rows are never torn: rank ", rank, ", table ", table, ", row ", row));
      }
      break;
    }
  }
}

void Ledger::CheckRounds(int rank, int table, const std::vector<int64_t>& rows,
                         const std::vector<double>& values) {
  Rounds& rounds = At(rounds_, table);
  const TablePlan& plan = At(plan_.tables, table);
  const int64_t number = At(rounds.made, rank);
  const std::string what =
      StrCat("equal bits: rank ", rank, " after ", number, " rounds of table ", table);
  for (int other = 0; other < plan_.ranks; ++other) {
    if (!plan_.IsWorker(other) || finished_.count(other) != 0) continue;
    if (At(rounds.made, other) >= number) continue;
    Violation(StrCat(what, ": rank ", other, " has made only ", At(rounds.made, other)));
    return;
  }
  if (rows.empty()) {
    const auto [first, is_new] = rounds.seen.emplace(number, values);
    if (!is_new && first->second != values) Violation(what + ": another rank got other bits");
  }
  if (!plan.IsSum()) return;
  while (static_cast<int64_t>(rounds.sums.size()) <= number) {
    std::vector<int64_t> sums = rounds.sums.back();
    const auto round = static_cast<int64_t>(rounds.sums.size()) - 1;
    for (const AddRecord& add : adds_) {
      if (add.table != table || add.round != round) continue;
      for (int64_t element = 0; element < plan.count(); ++element) {
        if (Names(add, element / plan.columns)) At(sums, element) += add.value * WeightOf(element);
      }
    }
    rounds.sums.push_back(std::move(sums));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const int64_t row = rows.empty() ? place / plan.columns : At(rows, place / plan.columns);
    const int64_t element = row * plan.columns + place % plan.columns;
    const auto expected = static_cast<double>(At(At(rounds.sums, number), element));
    if (values[i] == expected) continue;
    Violation(StrCat(what, ": element ", element, " is ", NumberText(values[i]), ", expected ",
                     NumberText(expected)));
    return;
  }
}

void Ledger::SawTogether(int rank, int collective, const std::string& bytes) {
  const Quiet no_points;
  auto& [first, expected] = collectives_[collective].bytes;
  if (first < 0) {
    first = rank;
    expected = bytes;
  } else if (bytes != expected) {
    Violation(StrCat("one outcome: rank ", rank, " and rank ", first,
                     " got other results from collective ", collective));
  }
}

void Ledger::CreatedTogether(int rank, int collective, Code code) {
  const Quiet no_points;
  Note(StrCat("rank ", rank, ": the result of the creation is ", multiverso::NameOf(code)));
  if (plan_.Disagrees() || CountsDiffer()) return;
  SawTogether(rank, collective, multiverso::NameOf(code));
}

void Ledger::SawAtEnd(int rank, int table, const std::vector<double>& values) {
  const Quiet no_points;
  at_end_[{rank, table}] = values;
}

void Ledger::FoundInMemory(int rank, int table, int64_t first, const std::vector<double>& values) {
  const Quiet no_points;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t element = first + static_cast<int64_t>(i);
    const int64_t least = At(At(acknowledged_, table), element);
    const int64_t most = At(At(issued_, table), element);
    if (values[i] >= static_cast<double>(least) && values[i] <= static_cast<double>(most)) continue;
    Violation(StrCat("acknowledged <= value <= issued: after its error, rank ", rank, " finds ",
                     NumberText(values[i]), " in element ", element, " of table ", table,
                     ", acknowledged ", least, ", issued ", most));
    return;
  }
}

// ---- Collectives and losses.

bool Ledger::MayBeMissing(int rank) const {
  return plan_.Continues() &&
         (died_.count(rank) != 0 || !At(ends_, rank).how.empty() || suspended_.count(rank) != 0);
}

void Ledger::SkippedCollective(int rank) { ++At(next_collective_, rank); }

bool Ledger::CountsDiffer() const {
  // A rank that is suspended may be excluded, and live.
  const bool any_lost = !died_.empty() || !suspended_.empty();
  return plan_.Continues() && !plan_.servers.empty() && any_lost;
}

bool Ledger::MayBeSilent(int rank) const {
  const auto was_stopped = [&](int other) {
    return suspended_.count(other) != 0 || died_.count(other) != 0;
  };
  if (was_stopped(rank)) return true;
  // The service ranks of a node send its heartbeats, and the session fails when one of them leaves.
  const auto is_quiet = [&](int other) { return was_stopped(other) || leaving_.count(other) != 0; };
  const std::vector<int> speakers = plan_.ServiceRanks(plan_.NodeOf(rank));
  return plan_.nodes() > 1 && std::all_of(speakers.begin(), speakers.end(), is_quiet);
}

void Ledger::LeftBarrier(int rank, int collective) {
  const Quiet no_points;
  const auto& adds = collectives_[collective].adds;
  if (plan_.mode == "sync" && !plan_.HasFaults() && failed_.empty() && finished_.empty()) {
    for (const auto& [other, theirs] : adds) {
      if (theirs == adds.at(rank) || !plan_.IsWorker(rank) || !plan_.IsWorker(other)) continue;
      Violation(StrCat("a disagreement is a mismatch: rank ", rank, " leaves collective ",
                       collective, ", to which rank ", other, " came with other rounds"));
      break;
    }
  }
  if (plan_.Disagrees() || CountsDiffer()) return;
  for (int other = 0; other < plan_.ranks; ++other) {
    if (collectives_[collective].entered.count(other) != 0 || MayBeMissing(other)) continue;
    Violation(StrCat("a barrier waits for all: rank ", rank, " left collective ", collective,
                     " before rank ", other, " came"));
  }
}

void Ledger::Aggregated(int rank, int collective, double sum) {
  const Quiet no_points;
  collectives_[collective].sums[rank] = sum;
}

void Ledger::FoundExcluded(int rank, int other) {
  const Quiet no_points;
  // What is said about a rank whose part is over does no harm.
  if (MayBeSilent(other) || !At(ends_, other).how.empty()) return;
  Violation(StrCat("only silent ranks are excluded: the node of rank ", rank, " has excluded rank ",
                   other, ", which was neither suspended nor killed"));
}

void Ledger::FoundAborted(int /*rank*/) { aborted_ = std::min(aborted_, Now()); }

void Ledger::Leaving(int rank) {
  const Quiet no_points;
  leaving_.insert(rank);
}

void Ledger::Finished(int rank) {
  const Quiet no_points;
  finished_.insert(rank);
}

void Ledger::Died(int rank) {
  const Quiet no_points;
  died_[rank] = Now();
  Note(StrCat("rank ", rank, " is killed"));
}

void Ledger::Suspended(int rank, int64_t ns) {
  const Quiet no_points;
  suspended_[rank] = {Now(), Now() + ns};
  points_at_suspension_[rank] = PointsOfProgram(rank);
  Note(StrCat("rank ", rank, " is suspended for ", ns / 1000000, " ms"));
}

void Ledger::RankOver(int rank, const std::string& how, const Status& status) {
  const Quiet no_points;
  End& end = At(ends_, rank);
  end.how = how;
  end.code = status.code();
  end.text = status.text();
  end.at = Now();
}

}  // namespace sim
