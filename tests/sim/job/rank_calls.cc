// The calls of a simulated rank.
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "calls/collective_get.h"
#include "engine/scheduler.h"
#include "job/options.h"
#include "job/rank.h"
#include "job/values.h"
#include "sum/aggregation.h"

namespace sim {

using multiverso::Code;
using multiverso::ReduceOp;
using multiverso::Request;
using multiverso::RequestKind;
using multiverso::Status;
using multiverso::StrCat;
using multiverso::WaitLimit;

namespace {

// When a rank writes over the delta of a call that ended before its values were sent: messages that
// say so, which may be behind others, have arrived.
constexpr int64_t kDeltaReuse = 200000000;
// An aggregate shows by a byte of its sum whose arrays are in it, and by the byte's value of which
// call they are.
constexpr int kBitsPerRank = 8;
constexpr int kCallsApart = 200;

// Returns the sum of which this is the mean, if its arrays are all those of one call, or 0.
int64_t SumOfMean(double mean, int64_t each, int ranks) {
  for (int terms = 1; terms <= ranks; ++terms) {
    const int64_t sum = std::llround(mean * terms);
    int arrays = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t theirs = sum >> (kBitsPerRank * rank) & ((1 << kBitsPerRank) - 1);
      if (theirs == each) ++arrays;
      if (theirs != each && theirs != 0) arrays = -ranks;
    }
    if (arrays == terms) return sum;
  }
  return 0;
}

Status RunOnTable(multiverso::Table* table, const Request& request, int64_t count,
                  const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(table->Check(request, count));
  return table->Run(request, limit);
}

}  // namespace

bool RankProgram::MakeOnTable(const Step& step, int table, const Request& request, int64_t count,
                              const std::function<void(bool is_done)>& when_over) {
  const int64_t limit_ms = step.Get("limit_ms");
  multiverso::Table* const called = tables_[static_cast<size_t>(table)];
  return Make(
      step.Text(), Kind::kAlone,
      [&](WaitLimit limit) -> Status {
        if (limit_ms > 0) limit = WaitLimit::For(std::chrono::milliseconds(limit_ms));
        const Status status = RunOnTable(called, request, count, limit);
        // The end of a short limit is what the step wanted.
        was_cut_ = limit_ms > 0 && status.code() == Code::kTimeout;
        when_over(status.ok());
        return was_cut_ ? Status::Ok() : status;
      },
      {}, limit_ms);
}

void RankProgram::ReuseDeltas() {
  const Quiet no_points;
  for (const FreeDelta& delta : free_deltas_) {
    if (delta.from <= Now()) std::memset(delta.begin, 0x5a, delta.bytes);
  }
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

int64_t RankProgram::RoundsOf(int table) const {
  if (plan_.mode != "sync") return -1;
  const auto worker = static_cast<size_t>(session_->members().worker_id());
  const auto* const consistency = tables_[static_cast<size_t>(table)]->consistency();
  return static_cast<int64_t>(consistency->Clocks().at(worker));
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
  char* const delta = is_add ? Keep(DeltaOf(table, rows, value)) : nullptr;
  char* const out =
      is_get ? Keep(std::vector<char>(static_cast<size_t>(count * BytesOf(table)))) : nullptr;
  size_t add = 0;
  if (is_add) add = job_.ledger->AddBegan(rank_, number, rows, value, IsExcluded());
  // What the call must see at least; an add_get also its own add.
  std::vector<int64_t> before = job_.ledger->Acknowledged(number);
  if (is_add && is_get) {
    for (int64_t i = 0; i < table.count(); ++i) {
      before[static_cast<size_t>(i)] += value * Ledger::WeightOf(i);
    }
  }
  const Request request = RequestOf(table, is_add, ids, delta, out);
  return MakeOnTable(step, number, request, count, [&](bool is_done) {
    if (is_get && is_done) {
      job_.ledger->Saw(rank_, number, rows, ToSums(table, out, count), before);
    }
    if (!is_add) return;
    job_.ledger->AddEnded(add, is_done, is_done ? -1 : RoundsOf(number));
    const auto bytes = static_cast<size_t>(count * BytesOf(table));
    // Rounds do not need the memory after the call.
    if (plan_.mode == "sync") std::memset(delta, 0x5a, bytes);
    // The message to a server that the call has ended, or that the server counts as lost, arrives
    // before that.
    if (!is_done) free_deltas_.push_back({delta, bytes, Now() + kDeltaReuse});
  });
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
        if (called->EveryGetIsCollective()) return called->Run(request, limit);
        return multiverso::CollectiveGet(called, request, limit);
      },
      [&](int collective) {
        job_.ledger->Saw(rank_, number, {}, ToSums(table, out, table.count()), before);
        // In sync mode, it reads the rounds that its rank has made, and only those are compared.
        if (plan_.mode == "sync") return;
        job_.ledger->SawTogether(rank_, collective, std::string(out, static_cast<size_t>(bytes)));
      });
}

bool RankProgram::Aggregate(const Step& step) {
  const auto count = static_cast<size_t>(step.Get("count", 1));
  double* array = nullptr;
  const int mine = 1 + step_ % kCallsApart;
  const bool is_mean = step.Get("mean") != 0 && !plan_.Disagrees();
  return Make(
      step.Text(), Kind::kCollective,
      [&](const WaitLimit&) {
        array = reinterpret_cast<double*>(Keep(std::vector<char>(count * sizeof(double))));
        for (size_t i = 0; i < count; ++i) array[i] = std::ldexp(mine, kBitsPerRank * rank_);
        return session_->Aggregate({is_mean ? ReduceOp::kMean : ReduceOp::kSum,
                                    multiverso::DType::kFloat64, array,
                                    static_cast<int64_t>(count)});
      },
      [&](int collective) {
        for (size_t i = 1; i < count; ++i) {
          if (array[i] == array[0]) continue;
          job_.ledger->Violation(StrCat("one outcome: rank ", rank_, ", collective ", collective,
                                        ": elements of an aggregate have sums of other ranks"));
          break;
        }
        if (count == 0) return;
        double ranks = 0;
        // A mean of other arrays gives 0, so that the rank seems not to have taken part.
        const int64_t sum =
            is_mean ? SumOfMean(array[0], mine, plan_.ranks) : std::llround(array[0]);
        for (int rank = 0; rank < plan_.ranks; ++rank) {
          const int64_t theirs = sum >> (kBitsPerRank * rank) & ((1 << kBitsPerRank) - 1);
          if (theirs == 0) continue;
          ranks += std::ldexp(1.0, rank);
          if (theirs == mine || plan_.Disagrees()) continue;
          job_.ledger->Violation(StrCat("one outcome: rank ", rank_, ", collective ", collective,
                                        ": the sum has an array of rank ", rank,
                                        " from another call"));
        }
        job_.ledger->Aggregated(rank_, collective, ranks);
      });
}

bool RankProgram::Broadcast(const Step& step) {
  const int64_t count = step.Get("count", 1);
  const int workers = session_->members().num_workers();
  const int me = session_->members().worker_id();
  multiverso::Transfer::Call call{};
  call.kind = multiverso::CollectiveKind::kBroadcast;
  call.op = ReduceOp::kSum;
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
          // After different calls, two ranks may be one apart, in calls that are alike.
          if (array[i] == expected + i || plan_.Disagrees()) continue;
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
  const int64_t refused_on = step.Get("refused_on", -1);
  if (refused_on == rank_) RefuseMemory(rank_, step.Get("mapping", 1));
  const bool goes_on =
      CreateTable(SpecOf(table), step.Text(), differs_on >= 0 && plan_.ranks > 1, refused_on >= 0);
  RefuseMemory(rank_, 0);
  return goes_on;
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

}  // namespace sim
