#include "job/rank.h"

#include <cmath>
#include <cstring>

#include "base/text.h"
#include "calls/collective_get.h"
#include "job/options.h"
#include "job/values.h"
#include "session/session_opening.h"
#include "sum/aggregation.h"

namespace sim {

using multiverso::Code;
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
  for (const Step& step : plan_.steps) {
    if (step.IsFor(rank_) && step.IsOfOpening()) PlanFault(step);
  }
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
                       const std::function<void(int collective)>& when_ok, int64_t limit_ms) {
  const bool is_collective = kind == Kind::kCollective;
  for (int attempt = 0;; ++attempt) {
    const int64_t limit = (limit_ms > 0 ? limit_ms : plan_.timeout_ms) * 1000000;
    const size_t record =
        job_.ledger->Began(rank_, step_, what, limit, IsExcluded(), is_collective);
    const int collective = job_.ledger->calls()[record].collective;
    const Status status =
        body(session_ == nullptr ? WaitLimit{} : WaitLimit::Until(session_->NextDeadline()));
    SeeExclusions();
    job_.ledger->Ended(record, status, IsExcluded() && !was_cut_);
    if (status.ok()) {
      if (when_ok) when_ok(collective);
      return true;
    }
    const bool may_repeat =
        is_collective && session_ != nullptr && plan_.Continues() && attempt <= plan_.ranks;
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
    job_.ledger->Ended(record, session_->Close(), false);
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
                              bool is_expected_to_differ, bool may_lack_memory) {
  Status created;
  const auto create = [&](const WaitLimit&) {
    auto made = session_->CreateTable(spec, nullptr);
    created = made.status();
    if (made.ok()) {
      if (is_expected_to_differ) job_.ledger->Violation(what + ": succeeded with other arguments");
      tables_.push_back(session_->KeepTable(std::move(made.value())));
    }
    // The session stays usable after such a mistake.
    const bool is_right = (is_expected_to_differ && created.code() == Code::kMismatch) ||
                          (may_lack_memory && created.code() == Code::kMemory);
    return is_right ? Status::Ok() : created;
  };
  return Make(what, Kind::kCollective, create, [&](int collective) {
    if (may_lack_memory) job_.ledger->CreatedTogether(rank_, collective, created.code());
  });
}

bool RankProgram::CreateTables() {
  for (size_t i = 0; i < plan_.tables.size(); ++i) {
    if (!CreateTable(SpecOf(plan_.tables[i]), StrCat("create table ", i))) return false;
  }
  return true;
}

bool RankProgram::RunStep(size_t number) {
  const Step& step = plan_.steps[number];
  step_ = static_cast<int>(number);
  ReuseDeltas();
  if (step.IsFault()) {
    if (!step.IsOfOpening()) PlanFault(step);
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

void RankProgram::LookForExclusions() {
  if (session_ == nullptr) return;
  if (session_->context()->state()->IsAborted()) job_.ledger->FoundAborted(rank_);
  for (int other = 0; other < plan_.ranks; ++other) {
    if (session_->context()->peers()->IsExcludedForSilence(other)) {
      job_.ledger->FoundExcluded(rank_, other);
    }
  }
}

void RankProgram::SeeExclusions() {
  const Quiet no_points;
  for (int other = 0; session_ != nullptr && other < plan_.ranks; ++other) {
    const int by = session_->context()->peers()->ExcludedBy(other);
    if (by >= 0 && other != rank_) job_.ledger->SeesExcluded(rank_, other, by);
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
    const bool goes_on =
        MakeOnTable(last, static_cast<int>(i), RequestOf(table, false, ids, nullptr, out),
                    table.count(), [&](bool is_done) {
                      if (!is_done) return;
                      const std::vector<double> values = ToSums(table, out, table.count());
                      job_.ledger->Saw(rank_, static_cast<int>(i), {}, values, before);
                      job_.ledger->SawAtEnd(rank_, static_cast<int>(i), values);
                    });
    if (!goes_on) return false;
  }
  return true;
}

void RankProgram::Close() {
  LookForExclusions();
  job_.ledger->Leaving(rank_);
  const size_t record =
      job_.ledger->Began(rank_, -1, "close", plan_.timeout_ms * 1000000, IsExcluded(), false);
  const Status status = session_->Close();
  job_.ledger->Ended(record, status, false);
  is_over_ = true;
  job_.ledger->RankOver(rank_, "close", status);
  session_.reset();
}

}  // namespace sim
