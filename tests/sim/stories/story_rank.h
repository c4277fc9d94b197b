// StoryRank: what one rank of a job of a story does: it opens the session, creates both tables,
// makes the calls of the job that are for it, and closes or leaves.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calls/table.h"
#include "session/session.h"
#include "stories/book.h"
#include "stories/story.h"
#include "world/disk.h"
#include "world/network.h"

namespace sim {

// What the ranks of a job share that is not simulated.
struct StoryJob {
  Step world;
  Step options;             // the `job` step
  std::vector<Step> steps;  // until the next job
  Book* book = nullptr;
  Disk* disk = nullptr;
  std::shared_ptr<Hub> hub;
  std::shared_ptr<Network> network;
  int first_process = 0;    // of rank 0; the others follow
  bool is_flipped = false;  // whether a bit of a file changed before the job
  // How each rank ended; empty while it runs.
  std::vector<std::string> ends;
  std::vector<multiverso::Status> end_status;
  bool has_saved = false;
  int told = 0;       // workers of an elastic session that left when they were told
  int last_ones = 0;  // those of them that were the last
  // Workers that are about to join, or have joined, and of these those that have said that they
  // leave. A worker that leaves when nobody else stays is the last, if none is before.
  std::vector<char> is_there, is_leaving;
  bool has_lonely_one = false;
  bool died_leaving = false;
  int opened = 0;
  int refused_threads = 0;  // planned ones

  int ranks() const { return static_cast<int>(options.Get("ranks", 1)); }
  int workers() const { return ranks() + static_cast<int>(options.Get("joiners")); }
  int per_node() const { return static_cast<int>(options.Get("per_node", 1)); }
  bool Has(const std::string& call) const;
  // Returns whether all other workers have ended or leave.
  bool IsLonely(int rank) const;
  // Returns whether the first `count` workers have ended.
  bool HaveEnded(int count) const;
  // Returns whether the calls of the job may fail because of a rank or of the power.
  // The matrix has rows that exist from the start, or from their first change, or that have keys.
  enum Kind : int64_t { kDense, kLazy, kKeys };
  Kind kind() const { return static_cast<Kind>(world.Get("kind")); }
  // Returns whether a failure is one of the disk, in the words of a call that has failed.
  bool IsFailureOfDisk(const multiverso::Status& status) const;
};

constexpr char kStoryFolder[] = "/scratch/run";
constexpr char kStoryName[] = "story";

multiverso::SessionOptions StoryOptions(const StoryJob& job, int node);
multiverso::TableSpec StorySpec(const StoryJob& job, int table);
int64_t StoryRows(const StoryJob& job, int table);
constexpr int64_t StoryKey(int64_t row) { return row * 7919 + 3; }
// A request that gets all of a table into `out`. The ids of rows stay in *ids.
multiverso::Request StoryGet(const StoryJob& job, int table, std::vector<int64_t>* ids, void* out);

class StoryRank {
 public:
  StoryRank(StoryJob* job, int rank) : job_(job), rank_(rank) {}
  void Run();

 private:
  bool Open();
  bool CreateTables();
  // Makes a step. Returns whether the rank goes on.
  bool Make(const Step& step);
  void PlanFault(const Step& step);
  bool Add(const Step& step);
  bool Save(const Step& step);
  bool Wait();
  bool Load(const Step& step);
  bool Publish(const Step& step);
  // Records the result of a call that all make. Returns whether the rank goes on: after success,
  // and after a failure of the disk or of a file if the disk can fail.
  bool Goes(const std::string& call, const multiverso::Status& status);
  bool CheckTables(const std::string& when);
  // Checks that nothing remains open or mapped in this process after the session.
  void CheckHoldings();
  multiverso::Status Read(int table, std::vector<double>* values);

  // ---- Of a worker of an elastic session.
  void RunElastic();
  bool Join();
  void LeaveAsTold(const Step& step);
  void EndElastic(const std::string& how);
  bool CheckBounds();
  void Leave(const std::string& where, const multiverso::Status& status);
  multiverso::Status Run(multiverso::Table* table, const multiverso::Request& request);

  StoryJob* job_;
  const int rank_;
  // A load has failed while it changed the tables, so this rank makes no more calls but the close.
  bool is_half_loaded_ = false;
  std::unique_ptr<multiverso::Session> session_;
  std::vector<multiverso::Table*> tables_;
};

// Follows the publications of the session until it ends.
void RunReader(StoryJob* job, int number);

}  // namespace sim
