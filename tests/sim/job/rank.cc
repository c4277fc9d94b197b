#include "job/rank.h"

#include <cmath>
#include <cstring>

#include "base/text.h"
#include "job/options.h"
#include "job/values.h"
#include "session/session_opening.h"
#include "sum/aggregation.h"
#include "table/collective_get.h"

namespace sim {

using multiverso::Code;
using multiverso::Progress;
using multiverso::Request;
using multiverso::RequestKind;
using multiverso::Status;
using multiverso::StrCat;
using multiverso::WaitLimit;

const RankProgram::NamedCall RankProgram::kCalls[] = {
    {"add", &RankProgram::Add, false},
    {"add_get", &RankProgram::AddGet, false},
    {"get", &RankProgram::GetValues, false},
    {"get_together", &RankProgram::GetTogether, false},
    {"aggregate", &RankProgram::Aggregate, false},
    {"broadcast", &RankProgram::Broadcast, false},
    {"barrier", &RankProgram::Barrier, true},
    {"create", &RankProgram::CreateAnother, true},
    {"finish", &RankProgram::Finish, false},
    {"sleep", &RankProgram::Sleep, true},
    {"leave", &RankProgram::Leave, true},
};

void RankProgram::Run() {
  if (!Open()) return;
  if (CreateTables()) {
    for (size_t i = 0; i < plan_.steps.size() && !is_over_; ++i) {
      if (plan_.steps[i].IsFor(rank_)) RunStep(i);
    }
    step_ = -1;
    if (!is_over_) SeeTheEnd();
  }
  if (!is_over_) Close();
}

bool RankProgram::IsExcluded() const {
  return session_ != nullptr && session_->context()->peers()->own_exclusion().load() != 0;
}

bool RankProgram::Make(const std::string& what, Kind kind, const Body& body,
                       const std::function<void(int collective)>& when_ok) {
  const bool is_collective = kind == Kind::kCollective;
  for (int attempt = 0;; ++attempt) {
    const size_t record = job_.ledger->Began(rank_, step_, what, plan_.timeout_ms * 1000000,
                                             IsExcluded(), is_collective);
    const int collective = job_.ledger->calls()[record].collective;
    const Status status =
        body(session_ == nullptr ? WaitLimit{} : WaitLimit::Until(session_->NextDeadline()));
    job_.ledger->Ended(record, status);
    if (status.ok()) {
      if (when_ok) when_ok(collective);
      return true;
    }
    const bool may_repeat = is_collective && plan_.Continues() && attempt <= plan_.ranks;
    if (may_repeat && status.code() == Code::kPeerLost && !IsExcluded()) continue;
    AfterError(what, status);
    return false;
  }
}

void RankProgram::AfterError(const std::string& what, const Status& status) {
  LookForExclusions();
  LookIntoMemory();
  if (plan_.after_error == "go_on" && session_ != nullptr) return;
  is_over_ = true;
  job_.ledger->Leaving(rank_);
  if (session_ != nullptr && plan_.after_error == "close") {
    const size_t record = job_.ledger->Began(rank_, -1, "close after an error",
                                             plan_.timeout_ms * 1000000, IsExcluded(), false);
    job_.ledger->Ended(record, session_->Close());
  } else if (session_ != nullptr) {
    session_->Leave("after an error");
  }
  job_.ledger->RankOver(rank_, what, status);
  session_.reset();
}

bool RankProgram::Open() {
  return Make("open", Kind::kCollective, [this](const WaitLimit&) {
    auto opened = multiverso::OpenSession(
        OptionsOf(plan_, rank_), std::make_unique<SimTransport>(job_.hub, job_.network, rank_));
    if (opened.ok()) session_ = std::move(opened.value());
    return opened.status();
  });
}

bool RankProgram::CreateTable(const multiverso::TableSpec& spec, const std::string& what,
                              bool is_expected_to_differ) {
  return Make(what, Kind::kCollective, [&](const WaitLimit&) {
    auto made = session_->CreateTable(spec, nullptr);
    if (made.ok()) {
      if (is_expected_to_differ) job_.ledger->Violation(what + ": succeeded with other arguments");
      tables_.push_back(session_->KeepTable(std::move(made.value())));
    }
    // The session stays usable after such a mistake.
    const bool is_right = is_expected_to_differ && made.status().code() == Code::kMismatch;
    return is_right ? Status::Ok() : made.status();
  });
}

bool RankProgram::CreateTables() {
  for (size_t i = 0; i < plan_.tables.size(); ++i) {
    if (!CreateTable(SpecOf(plan_.tables[i]), StrCat("create table ", i), false)) return false;
  }
  return true;
}

bool RankProgram::RunStep(size_t number) {
  const Step& step = plan_.steps[number];
  step_ = static_cast<int>(number);
  if (step.IsFault()) {
    PlanFault(step);
    return true;
  }
  for (const NamedCall& named : kCalls) {
    if (step.call != named.name) continue;
    if (!named.is_for_servers && !plan_.IsWorker(rank_)) {
      if (IsCollective(step.call)) job_.ledger->SkippedCollective(rank_);
      return true;
    }
    return (this->*named.call)(step);
  }
  job_.ledger->Violation("the plan has an unknown call: " + step.Text());
  is_over_ = true;
  return false;
}

void RankProgram::PlanFault(const Step& step) {
  const uint64_t point = PointsOf(rank_) + static_cast<uint64_t>(step.Get("points"));
  if (step.call == "kill") {
    KillAt(rank_, point);
  } else {
    SuspendAt(rank_, point, step.Get("ms") * 1000000);
  }
}

bool RankProgram::MakeOnTable(const Step& step, int table, Request request, int64_t count,
                              const std::function<void()>& when_ok, Outcome* outcome) {
  const int64_t limit_ms = step.Get("limit_ms");
  multiverso::Table* const called = tables_[static_cast<size_t>(table)];
  return Make(step.Text(), Kind::kAlone, [&](WaitLimit limit) -> Status {
    if (limit_ms > 0) limit = WaitLimit::For(std::chrono::milliseconds(limit_ms));
    MV_RETURN_IF_NOT_OK(called->Check(request, count));
    multiverso::Result<std::shared_ptr<const multiverso::ArrangedAdd>> rows(nullptr);
    if (called->MustArrange(request)) rows = called->Arrange(&request);
    MV_RETURN_IF_NOT_OK(rows.status());
    Progress progress;
    Status status = Status::Pending();
    // A call that need not wait ends in a slice that has ended before it, as in the C API.
    if (called->RunsHere(request.kind)) {
      status = called->Run(request, &progress,
                           WaitLimit{multiverso::Instant::max(), multiverso::Instant::min()});
    }
    if (status.pending()) status = called->Run(request, &progress, limit);
    if (status.ok() && when_ok) when_ok();
    *outcome = status.ok() ? Outcome::kDone : Outcome::kFailed;
    // The end of a short limit is what the step wanted.
    const bool was_cut = limit_ms > 0 && status.code() == Code::kTimeout;
    if (was_cut) *outcome = Outcome::kCut;
    return was_cut ? Status::Ok() : status;
  });
}

char* RankProgram::Keep(std::vector<char> bytes) {
  const Quiet no_points;
  // Messages of calls that ended without their answers may refer to the memory until the job ends.
  job_.memory->push_back(std::move(bytes));
  return job_.memory->back().data();
}

std::vector<int64_t> RankProgram::IdsOf(const Step& step, const TablePlan& table) const {
  std::vector<int64_t> ids = RowsOf(step, table, rank_);
  if (table.kind != "hash") return ids;
  if (ids.empty()) {
    for (int64_t row = 0; row < table.rows; ++row) ids.push_back(row);
  }
  for (int64_t& id : ids) id = KeyOf(id);
  return ids;
}

Request RankProgram::RequestOf(const TablePlan& table, bool is_add, const std::vector<int64_t>& ids,
                               const char* delta, char* out) {
  const bool is_of_keys = table.kind == "hash";
  const bool has_ids = !ids.empty();
  const RequestKind kind = is_add ? (is_of_keys       ? RequestKind::kAddKeys
                                     : has_ids        ? RequestKind::kAddRows
                                     : out != nullptr ? RequestKind::kAddGet
                                                      : RequestKind::kAdd)
                                  : (is_of_keys ? RequestKind::kGetKeys
                                     : has_ids  ? RequestKind::kGetRows
                                                : RequestKind::kGet);
  return Request::Of(kind, ids.data(), static_cast<int64_t>(ids.size()), delta, out);
}

bool RankProgram::CallOnTable(const Step& step, bool is_add, bool is_get) {
  if (is_add && has_finished_) return true;
  const int number = static_cast<int>(step.Get("table")) % static_cast<int>(plan_.tables.size());
  const TablePlan& table = table_plan(number);
  const std::vector<int64_t> rows = RowsOf(step, table, rank_);
  const std::vector<int64_t> ids = IdsOf(step, table);
  const int64_t num_rows = rows.empty() ? table.rows : static_cast<int64_t>(rows.size());
  const int64_t count = num_rows * table.columns;
  const int64_t value = step.Get("value", 1) + 37 * rank_;
  const char* const delta = is_add ? Keep(DeltaOf(table, rows, value)) : nullptr;
  char* const out =
      is_get ? Keep(std::vector<char>(static_cast<size_t>(count * BytesOf(table)))) : nullptr;
  size_t add = 0;
  if (is_add) add = job_.ledger->AddBegan(rank_, number, rows, value);
  // What the call must see at least; an add_get also its own add.
  std::vector<int64_t> before = job_.ledger->Acknowledged(number);
  if (is_add && is_get) {
    for (int64_t i = 0; i < table.count(); ++i) {
      before[static_cast<size_t>(i)] += value * Ledger::WeightOf(i);
    }
  }
  Outcome outcome = Outcome::kFailed;
  const Request request = RequestOf(table, is_add, ids, delta, out);
  const bool goes_on = MakeOnTable(
      step, number, request, count,
      [&] {
        if (is_get) {
          job_.ledger->Saw(rank_, number, rows, ToSums(table, out, count), before);
        }
      },
      &outcome);
  if (is_add) job_.ledger->AddEnded(add, outcome == Outcome::kDone);
  return goes_on;
}

bool RankProgram::Add(const Step& step) { return CallOnTable(step, true, false); }
bool RankProgram::AddGet(const Step& step) { return CallOnTable(step, true, true); }
bool RankProgram::GetValues(const Step& step) { return CallOnTable(step, false, true); }

bool RankProgram::GetTogether(const Step& step) {
  const int number = static_cast<int>(step.Get("table")) % static_cast<int>(plan_.tables.size());
  const TablePlan& table = table_plan(number);
  multiverso::Table* const called = tables_[static_cast<size_t>(number)];
  const std::vector<int64_t> ids = IdsOf(Step(), table);
  const int64_t bytes = table.count() * BytesOf(table);
  char* const out = Keep(std::vector<char>(static_cast<size_t>(bytes)));
  const Request request = RequestOf(table, false, ids, nullptr, out);
  std::vector<int64_t> before;
  return Make(
      step.Text(), Kind::kCollective,
      [&](const WaitLimit& limit) -> Status {
        before = job_.ledger->Acknowledged(number);
        MV_RETURN_IF_NOT_OK(called->Check(request, table.count()));
        Progress progress;
        if (called->EveryGetIsCollective()) return called->Run(request, &progress, limit);
        return multiverso::CollectiveGet(called, request, limit);
      },
      [&](int collective) {
        job_.ledger->Saw(rank_, number, {}, ToSums(table, out, table.count()), before);
        job_.ledger->SawTogether(rank_, collective, std::string(out, static_cast<size_t>(bytes)));
      });
}

bool RankProgram::Aggregate(const Step& step) {
  const auto count = static_cast<size_t>(step.Get("count", 1));
  double* array = nullptr;
  return Make(
      step.Text(), Kind::kCollective,
      [&](const WaitLimit&) {
        // A bit for each rank shows whose arrays are in a sum.
        array = reinterpret_cast<double*>(Keep(std::vector<char>(count * sizeof(double))));
        for (size_t i = 0; i < count; ++i) array[i] = std::ldexp(1.0, rank_);
        return session_->Aggregate({multiverso::ReduceOp::kSum, multiverso::DType::kFloat64, array,
                                    static_cast<int64_t>(count)});
      },
      [&](int collective) {
        for (size_t i = 1; i < count; ++i) {
          if (array[i] == array[0]) continue;
          job_.ledger->Violation(StrCat("one outcome: rank ", rank_, ", collective ", collective,
                                        ": elements of an aggregate have sums of other ranks"));
          break;
        }
        job_.ledger->Aggregated(rank_, collective, array[0]);
      });
}

bool RankProgram::Broadcast(const Step& step) {
  const int64_t count = step.Get("count", 1);
  const int workers = session_->members().num_workers();
  const int me = session_->members().worker_id();
  multiverso::Transfer::Call call{};
  call.kind = multiverso::CollectiveKind::kBroadcast;
  call.op = multiverso::ReduceOp::kSum;
  call.dtype = multiverso::DType::kInt64;
  call.root = static_cast<int>(step.Get("root")) % workers;
  auto* const array = reinterpret_cast<int64_t*>(
      Keep(std::vector<char>(static_cast<size_t>(count) * sizeof(int64_t))));
  const int64_t expected = 1000 + step_;
  for (int64_t i = 0; i < count; ++i) array[i] = me == call.root ? expected + i : -1;
  const multiverso::Transfer::Part part{reinterpret_cast<char*>(array), count};
  call.received.assign(static_cast<size_t>(workers), multiverso::Transfer::Part{});
  call.received[static_cast<size_t>(call.root)] = part;
  call.sent = {me == call.root ? part : multiverso::Transfer::Part{}};
  return Make(
      step.Text(), Kind::kCollective, [&](const WaitLimit&) { return session_->Move(call); },
      [&](int) {
        for (int64_t i = 0; i < count; ++i) {
          if (array[i] == expected + i) continue;
          job_.ledger->Violation(
              StrCat("one outcome: rank ", rank_, ": a broadcast has other values than its root"));
          break;
        }
      });
}

bool RankProgram::Barrier(const Step& step) {
  return Make(
      step.Text(), Kind::kCollective, [this](const WaitLimit&) { return session_->Barrier(); },
      [this](int collective) { job_.ledger->LeftBarrier(rank_, collective); });
}

bool RankProgram::CreateAnother(const Step& step) {
  TablePlan table;
  table.kind = "array";
  table.columns = 1;
  table.rows = step.Get("rows", 1);
  const int64_t differs_on = step.Get("differs_on", -1);
  if (differs_on == rank_) ++table.rows;
  return CreateTable(SpecOf(table), step.Text(), differs_on >= 0 && plan_.ranks > 1);
}

bool RankProgram::Finish(const Step&) {
  if (has_finished_) return true;
  has_finished_ = true;
  job_.ledger->Finished(rank_);
  session_->Finish();
  return true;
}

bool RankProgram::Sleep(const Step& step) {
  SleepUntil(Now() + step.Get("us") * 1000);
  return true;
}

bool RankProgram::Leave(const Step& step) {
  is_over_ = true;
  job_.ledger->Leaving(rank_);
  session_->Leave("by its own will");
  job_.ledger->RankOver(rank_, step.Text(), Status::Ok());
  session_.reset();
  return false;
}

void RankProgram::LookForExclusions() {
  if (session_ == nullptr) return;
  for (int other = 0; other < plan_.ranks; ++other) {
    if (session_->context()->peers()->IsExcludedForSilence(other)) {
      job_.ledger->FoundExcluded(rank_, other);
    }
  }
}

void RankProgram::LookIntoMemory() {
  if (session_ == nullptr || plan_.mode == "sync") return;
  for (size_t i = 0; i < plan_.tables.size() && i < tables_.size(); ++i) {
    const TablePlan& table = plan_.tables[i];
    if (table.kind == "hash" || table.kind == "lazy" || !table.IsSum()) continue;
    const multiverso::RowRange rows = tables_[i]->partition().node_rows();
    const char* const values = tables_[i]->shard()->values();
    if (rows.count() == 0 || values == nullptr) continue;
    const int64_t columns = tables_[i]->spec().num_col;
    job_.ledger->FoundInMemory(rank_, static_cast<int>(i), rows.first * columns,
                               ToSums(table, values, rows.count() * columns));
  }
}

bool RankProgram::SeeTheEnd() {
  // All meet after their last adds, so that each sees all of them.
  if (plan_.mode != "sync") {
    if (!Make(
            "last barrier", Kind::kCollective,
            [this](const WaitLimit&) { return session_->Barrier(); },
            [this](int collective) { job_.ledger->LeftBarrier(rank_, collective); })) {
      return false;
    }
  }
  for (size_t i = 0; i < plan_.tables.size() && plan_.IsWorker(rank_); ++i) {
    const TablePlan& table = plan_.tables[i];
    const std::vector<int64_t> ids = IdsOf(Step(), table);
    char* const out = Keep(std::vector<char>(static_cast<size_t>(table.count() * BytesOf(table))));
    Step last;
    last.rank = rank_;
    last.call = "get";
    last.numbers["table"] = static_cast<int64_t>(i);
    const std::vector<int64_t> before = job_.ledger->Acknowledged(static_cast<int>(i));
    Outcome outcome = Outcome::kFailed;
    const bool goes_on = MakeOnTable(
        last, static_cast<int>(i), RequestOf(table, false, ids, nullptr, out), table.count(),
        [&] {
          const std::vector<double> values = ToSums(table, out, table.count());
          job_.ledger->Saw(rank_, static_cast<int>(i), {}, values, before);
          job_.ledger->SawAtEnd(rank_, static_cast<int>(i), values);
        },
        &outcome);
    if (!goes_on) return false;
  }
  return true;
}

void RankProgram::Close() {
  LookForExclusions();
  const size_t record =
      job_.ledger->Began(rank_, -1, "close", plan_.timeout_ms * 1000000, IsExcluded(), false);
  const Status status = session_->Close();
  job_.ledger->Ended(record, status);
  is_over_ = true;
  job_.ledger->RankOver(rank_, "close", status);
  session_.reset();
}

}  // namespace sim
