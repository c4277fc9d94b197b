// RankProgram: what one rank of a simulated job does: it opens the session, creates the tables,
// runs the plan's steps that are for it, and closes or leaves.
//
// A new kind of step is a function of this class and an entry of kCalls (rank.cc). It begins and
// ends a record in the ledger with `Make`, which also decides whether the rank goes on.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "calls/table.h"
#include "job/ledger.h"
#include "job/plan.h"
#include "session/session.h"
#include "world/network.h"

namespace sim {

// What the ranks of a job share that is not simulated.
struct Job {
  const Plan* plan = nullptr;
  Ledger* ledger = nullptr;
  std::shared_ptr<Hub> hub;
  std::shared_ptr<Network> network;
  std::list<std::vector<char>>* memory = nullptr;  // of arguments and results, until the job ends
};

class RankProgram {
 public:
  RankProgram(const Job& job, int rank) : job_(job), plan_(*job.plan), rank_(rank) {}

  // Runs the whole program in the current fiber.
  void Run();

 private:
  // Whether a call waits for others: its record has the number of the collective.
  enum class Kind { kAlone, kCollective };
  using Body = std::function<multiverso::Status(const multiverso::WaitLimit&)>;
  using Call = bool (RankProgram::*)(const Step& step);
  struct NamedCall {
    const char* name;
    Call call;
    bool is_for_servers;  // whether ranks that are servers only make the call, too
  };
  static const NamedCall kCalls[];

  // Makes a call, and records it. A collective call of a session that continues is repeated if a
  // rank was lost. Returns whether the rank goes on; otherwise its part is over.
  // The call may wait for `limit_ms`, or as long as the session says if that is 0.
  bool Make(const std::string& what, Kind kind, const Body& body,
            const std::function<void(int collective)>& when_ok = {}, int64_t limit_ms = 0);
  // Makes a call on a table, whose `limit_ms` may be shorter than the session's timeout. The end of
  // such a limit is no failure. `count` is the number of elements of its delta or result.
  // Calls `when_over` at the call's end with whether it succeeded.
  bool MakeOnTable(const Step& step, int table, const multiverso::Request& request, int64_t count,
                   const std::function<void(bool is_done)>& when_over);
  bool CallOnTable(const Step& step, bool is_add, bool is_get);
  // Returns how many adds of this rank to the table are in rounds of sync mode, else -1.
  int64_t RoundsOf(int table) const;
  static multiverso::Request RequestOf(const TablePlan& table, bool is_add,
                                       const std::vector<int64_t>& ids, const char* delta,
                                       char* out);
  // Returns the row ids or keys of a request for the rows of the step; none for a whole table.
  std::vector<int64_t> IdsOf(const Step& step, const TablePlan& table) const;
  char* Keep(std::vector<char> bytes);
  // Writes over the deltas of calls that ended a while ago before their values were sent.
  void ReuseDeltas();

  bool Open();
  bool CreateTables();
  // Creates a table. The memory for it may be missing on a rank if `may_lack_memory`.
  bool CreateTable(const multiverso::TableSpec& spec, const std::string& what,
                   bool is_expected_to_differ = false, bool may_lack_memory = false);
  bool RunStep(size_t number);
  void PlanFault(const Step& step);
  bool SeeTheEnd();
  void Close();
  // Ends this rank's part after an error, as the plan says.
  void AfterError(const std::string& what, const multiverso::Status& status);
  void LookIntoMemory();
  void LookForExclusions();
  // Notes whom this rank's node counts as excluded. Takes no time, since each call does so.
  void SeeExclusions();

  // ---- Steps.
  bool Add(const Step& step);
  bool AddGet(const Step& step);
  bool GetValues(const Step& step);
  bool GetTogether(const Step& step);
  bool Aggregate(const Step& step);
  bool Barrier(const Step& step);
  bool CreateAnother(const Step& step);
  bool Broadcast(const Step& step);
  bool Finish(const Step& step);
  bool Sleep(const Step& step);
  bool Leave(const Step& step);

  const TablePlan& table_plan(int table) const {
    return plan_.tables[static_cast<size_t>(table) % plan_.tables.size()];
  }
  bool IsExcluded() const;

  const Job job_;
  const Plan& plan_;
  const int rank_;
  std::unique_ptr<multiverso::Session> session_;
  std::vector<multiverso::Table*> tables_;
  // A delta that the program may write over from then on.
  struct FreeDelta {
    char* begin;
    size_t bytes;
    int64_t from;
  };
  std::vector<FreeDelta> free_deltas_;
  int step_ = -1;         // that runs now
  bool was_cut_ = false;  // whether the last call on a table ended at its short limit
  bool has_finished_ = false;
  bool is_over_ = false;
};

}  // namespace sim
