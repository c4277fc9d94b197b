// Plan: one simulated job as plain data: its ranks and options, its tables, and a list of steps.
//
// A step is a call of one rank or of all ranks, or a fault of a rank. Each rank runs the steps that
// are for it, in the order of the list. So a list without some of its steps is a plan again, and a
// collective call that is removed is removed from all ranks, which is what shrinking needs.
//
// A plan is a readable text, which Parse reads back. The texts in tests/sim/runs/ are such plans:
//
//   job ranks=4 per_node=2 mode=async on_loss=fail timeout_ms=120000 peer_timeout_ms=30000
//   world seed=17 mean_run=20 writes=0 point_ns=200 latency_us=300
//   table kind=matrix dtype=float64 updater=add rows=32 columns=4
//   all barrier
//   rank 1 add table=0 value=17 ids=1,3,5
//   rank 2 kill points=1234
//
// A line that begins with # is a comment. What a line leaves out has the value that is 0 or the
// first in its list.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sim {

// The numbers of a step by name, and a list of numbers (rows or keys). What they mean is said where
// the call is run (rank.cc). A fault is a step, too: `kill` and `suspend` begin to count the points
// that the rank passes when the rank reaches the step, and the fault happens after `points` more;
// with opening=1, they count from the rank's first point on.
struct Step {
  static constexpr int kAll = -1;  // the rank of a step of all ranks

  int rank = kAll;
  std::string call;
  std::map<std::string, int64_t> numbers;
  std::vector<int64_t> ids;

  // Returns a number, or `otherwise` if the step does not have it.
  int64_t Get(const std::string& name, int64_t otherwise = 0) const;
  bool IsFor(int of_rank) const { return rank == kAll || rank == of_rank; }
  bool IsFault() const { return call == "kill" || call == "suspend"; }
  bool IsOfOpening() const { return IsFault() && Get("opening") != 0; }
  std::string Text() const;
};

struct TablePlan {
  std::string kind = "matrix";    // array, matrix, lazy (a matrix with an initializer), hash
  std::string dtype = "float64";  // float64, float32, int64, int32
  std::string updater = "add";    // add, sgd (with learning rate 1), adagrad
  int64_t rows = 32;              // of a hash table, the number of keys that the steps use
  int64_t columns = 4;

  int64_t count() const { return rows * columns; }
  // Returns whether a value is the sum of what was added, so that the ledger can check it.
  bool IsSum() const { return updater != "adagrad"; }
  std::string Text() const;
};

struct Plan {
  // ---- The session.
  int ranks = 4;
  int per_node = 2;            // the last node may have fewer
  std::string mode = "async";  // async, sync, staleness
  int64_t staleness = 0;
  std::string on_loss = "fail";  // fail, continue
  bool is_elastic = false;
  int64_t timeout_ms = 120000;
  int64_t peer_timeout_ms = 30000;
  std::set<int> servers;  // ranks that are servers only; the others are then workers only
  // What a rank does after a call has failed: leave, close, or go_on with its next steps.
  std::string after_error = "leave";

  // ---- The world around it.
  uint64_t seed = 1;         // of the scheduler
  int mean_run = 20;         // points between two switches, on average
  bool writes = false;       // whether each store is a point
  bool reorders = false;     // whether operations on shared memory may be reordered
  bool signals = true;       // whether a rank may end the process of another one
  int64_t point_ns = 200;    // virtual time of a point
  int64_t latency_us = 300;  // largest latency of a message

  std::vector<TablePlan> tables;  // all ranks create these first
  std::vector<Step> steps;

  // ---- What the text of a scripted run may expect; without such a line, what the faults allow.
  // A part of the text of the first violation: the run is one of a fault that is known and not
  // mended yet.
  std::string known_violation;

  int nodes() const { return (ranks + per_node - 1) / per_node; }
  int NodeOf(int rank) const { return rank / per_node; }
  bool Continues() const { return on_loss == "continue" || is_elastic; }
  bool IsWorker(int rank) const { return servers.count(rank) == 0; }
  // Returns the ranks that receive messages for a node: its servers, or its first rank.
  std::vector<int> ServiceRanks(int node) const;
  // Returns the ranks that a step with that call is for.
  std::set<int> RanksWith(const std::string& call) const;
  // Returns the ranks that are suspended for longer than peer_timeout allows, so that others may
  // exclude them. Those suspended for less than a third of it must not be.
  std::set<int> SuspendedLong() const;
  bool HasFaults() const;
  // Returns whether the ranks make different collective calls on purpose.
  bool Disagrees() const;

  std::string Text() const;
};

// Returns whether a step with that call is made together with the other ranks or workers.
bool IsCollective(const std::string& call);

// Reads the text of a plan. Returns false and says why in *error if a line is not understood.
bool Parse(const std::string& text, Plan* plan, std::string* error);

// What `simulation run` lets a user fix, instead of the choice of the seed: "ranks", "per_node",
// "mode", "kills", "suspends", ... (draw.cc lists them).
using Wishes = std::map<std::string, std::string>;

// Draws a plan. Equal seeds and wishes give equal plans.
Plan Draw(uint64_t seed, const Wishes& wishes);
// Returns the names that wishes may have.
const std::vector<std::string>& NamesOfWishes();

}  // namespace sim
