// Ledger: what the ranks of a job issued, what was acknowledged, and what they saw, in order of
// virtual time, and the checks of it.
//
// Every call of a rank is a CallRecord. The checks that need one moment are made when a call ends
// (Ended, Saw); those that need the whole job are made by CheckJob. A check that fails is a
// violation, whose text begins with the name of the promise that is broken.
//
// The memory is outside the simulated world: no function here is a point at which a rank may be
// switched, killed or suspended.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/plan.h"

namespace sim {

struct CallRecord {
  int rank = 0;
  int step = -1;                // in Plan::steps; -1 for opening, creation of tables and the end
  std::string what;             // the call and its arguments
  int64_t start = 0, end = -1;  // virtual; -1 while the call runs
  int64_t limit_ns = 0;         // how long the call may wait
  bool was_excluded = false;    // whether others had excluded the rank when the call began
  bool is_excluded = false;     // and when it ended
  multiverso::Code code = multiverso::Code::kOk;
  std::string text;
  int collective = -1;  // the number of the collective call on this rank, from 0
};

// An add, whose value in element e of a table is value * WeightOf(e).
struct AddRecord {
  int rank = 0;
  int table = 0;
  std::vector<int64_t> rows;  // empty: all
  int64_t value = 0;
  bool is_over = false, is_acknowledged = false;
  bool is_void = false;  // its rank had been excluded before, so it must not be made
  int64_t over_at = 0;
  int64_t round = 0;  // the number of this rank's adds to the table before, or kNoRound
};
// Of an add that has failed before it was made, so that the next one of its rank is in its round.
constexpr int64_t kNoRound = -1;

class Ledger {
 public:
  explicit Ledger(const Plan& plan);
  // Writes calls, faults and outcomes in order of virtual time to memory, as they come, so that
  // they are there after a crash.
  void WriteTo(char* trace, size_t* used, size_t size);

  // Elements of a row have different weights, so that values at a wrong place are seen.
  static int64_t WeightOf(int64_t element) { return 1 + element % 3; }

  // ---- Calls. Began returns the number of the record, for Ended.
  size_t Began(int rank, int step, const std::string& what, int64_t limit_ns, bool was_excluded,
               bool is_collective);
  void Ended(size_t record, const multiverso::Status& status, bool is_excluded);

  // ---- Adds and gets.
  size_t AddBegan(int rank, int table, std::vector<int64_t> rows, int64_t value, bool is_void);
  // `rounds` is what the library says of an add that has failed in sync mode: how many adds of its
  // rank are in rounds. It is -1 for other adds.
  void AddEnded(size_t add, bool is_acknowledged, int64_t rounds);
  // Returns the sums of the acknowledged adds, which a get that begins now must see.
  std::vector<int64_t> Acknowledged(int table) const;
  // Checks what a get of the rows saw (all if empty): `values` in units of the adds, without the
  // sign of the updater.
  void Saw(int rank, int table, const std::vector<int64_t>& rows, const std::vector<double>& values,
           const std::vector<int64_t>& acknowledged_before);
  // Checks that all workers get the same bytes from a collective get.
  void SawTogether(int rank, int collective, const std::string& bytes);
  // Checks that all ranks get the same result from the creation of a table.
  void CreatedTogether(int rank, int collective, multiverso::Code code);
  // Notes the values of the whole table that a rank sees when all have met after their last adds.
  void SawAtEnd(int rank, int table, const std::vector<double>& values);
  // Notes what a rank finds in its node's memory after a call has failed: from row `first_row` on.
  void FoundInMemory(int rank, int table, int64_t first_row, const std::vector<double>& values);

  // ---- Collectives and losses.
  // Counts a collective call in which the rank takes no part.
  void SkippedCollective(int rank);
  // Checks that all ranks that take part entered the barrier that this rank leaves.
  void LeftBarrier(int rank, int collective);
  void Aggregated(int rank, int collective, double sum);
  // Notes that the rank's node counts another as excluded because of its silence.
  void FoundExcluded(int rank, int other);
  // Notes, after each call, that the rank's node counts another as excluded by rank `by`.
  void SeesExcluded(int rank, int other, int by);
  // Notes that the rank knows that the session has been aborted.
  void FoundAborted(int rank);
  // Notes that the rank is about to leave, which others may see before RankOver.
  void Leaving(int rank);
  // Notes that the rank joins no further rounds.
  void Finished(int rank);
  void Died(int rank);
  void Suspended(int rank, int64_t ns);
  void RankOver(int rank, const std::string& how, const multiverso::Status& status);

  // Checks what needs the whole job. `hang` is empty, or what the engine says about a hang.
  void CheckJob(const std::string& hang);
  void Violation(const std::string& text);

  const std::vector<std::string>& violations() const { return violations_; }
  const std::vector<CallRecord>& calls() const { return calls_; }

 private:
  struct Collective {
    std::set<int> entered;
    std::map<int, multiverso::Code> codes;
    std::map<int, std::string> what;
    std::map<int, double> sums;
    std::map<int, std::vector<int64_t>> adds;   // by rank and table: the adds before the call
    std::pair<int, std::string> bytes{-1, ""};  // of a collective get, and who got them first
  };
  struct End {
    std::string how;  // empty while the rank runs
    multiverso::Code code = multiverso::Code::kOk;
    std::string text;
    int64_t at = 0;
  };

  struct Exclusion {
    int64_t known_since = 0;  // by another rank
    int by = 0;
  };
  // What a get has seen of an element after an exclusion, and when it began.
  struct Seen {
    double value = 0;
    int64_t start = 0;
  };

  struct Rounds {
    std::vector<int64_t> made;                    // by rank: adds begun, but for kNoRound
    std::vector<std::vector<int64_t>> sums;       // after each number of rounds, by element
    std::map<int64_t, std::vector<double>> seen;  // by number of rounds: the first whole get
  };

  // Returns whether a collective call may go on without the rank.
  bool MayBeMissing(int rank) const;
  // Returns whether collective calls of servers may have other numbers than those of workers, which
  // repeat a call that a loss has failed.
  bool CountsDiffer() const;
  // Returns whether others may hear nothing of the rank: it was stopped, or all ranks were through
  // which its node speaks.
  bool MayBeSilent(int rank) const;
  // Returns whether the table has an add of the row that may be made partly or later.
  bool IsInDoubt(int table, int64_t row) const;
  // Returns whether a rank is suspended for longer than a call may wait.
  bool MayTimeOut() const;
  // Returns whether the rank has begun to open the session and does not know the result.
  bool IsOpening(int rank) const;
  void CheckCall(const CallRecord& call, const multiverso::Status& status);
  // Returns until when a call may go on beside a rank that is silent from `from` on. In a session
  // that continues, it waits for one silent rank after the other, for `most` each.
  int64_t LatestEnd(const CallRecord& call, int64_t from, int64_t most) const;
  std::vector<int64_t> LeastWithStaleness(int rank, int table) const;
  void CheckRows(int rank, int table, const std::vector<int64_t>& rows,
                 const std::vector<double>& values);
  void CheckRounds(int rank, int table, const std::vector<int64_t>& rows,
                   const std::vector<double>& values);
  void CheckCollectives();
  void CheckSums();
  void CheckAbort();
  void CheckEnd(int rank);
  bool NamesSuspended(const std::string& text) const;
  // ---- Exclusions (ledger_of_exclusions.cc).
  // Returns whether the rank is the only one with a fault, so that the others have told it that it
  // was excluded.
  bool IsOnlyFault(int rank) const;
  // Returns for how long the rank was suspended while another one ran.
  int64_t SilentBeside(int rank, int other) const;
  void CheckExclusion(const CallRecord& call, const multiverso::Status& status);
  void CheckUnchanged(int rank, int table, const std::vector<int64_t>& rows,
                      const std::vector<double>& values);
  void CheckUnchangedRounds(int rank, int table);
  // Returns whether the rank has made so many steps since it resumed that it must have noticed its
  // exclusion in the call that now ends.
  bool HasHadTime(int rank) const;
  void Note(const std::string& text);
  std::string NameOf(const AddRecord& add) const;

  const Plan plan_;
  std::vector<CallRecord> calls_;
  std::vector<AddRecord> adds_;
  std::vector<std::vector<int64_t>> acknowledged_;  // by table and element
  std::vector<std::vector<int64_t>> issued_;
  std::vector<Rounds> rounds_;                                 // by table
  std::map<int, Collective> collectives_;                      // by number
  std::vector<int> next_collective_;                           // by rank
  std::map<std::pair<int, int>, std::vector<double>> at_end_;  // by rank and table
  std::vector<End> ends_;
  std::set<int> finished_, leaving_;
  std::set<int> failed_;                                  // ranks with a failed add
  int64_t aborted_ = INT64_MAX;                           // when a rank knew of an abort first
  std::map<int, int64_t> died_;                           // when
  std::map<int, std::pair<int64_t, int64_t>> suspended_;  // when, until
  std::map<int, uint64_t> points_at_suspension_;
  std::map<int, Exclusion> excluded_;
  std::map<int, int64_t> told_of_silence_;  // when a rank of its node was told that it is silent
  std::set<int> knows_exclusion_;
  std::map<std::pair<int, int64_t>, Seen> seen_;  // by table and element
  char* trace_ = nullptr;
  size_t* trace_used_ = nullptr;
  size_t trace_size_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace sim
