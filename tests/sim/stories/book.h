// Book: what the jobs of a story added, saved, loaded and published, and what a checkpoint or a
// publication may therefore contain.
//
// Element e of row r of a table has the value sum * WeightOf(e), where sum is that of the adds to
// the row, so a value at a wrong place is seen. All are whole numbers, which every order of adding
// gives exactly. An add that did not return, because its rank died, may have been made in part.
//
// The book is outside of the simulated world: no function here is a point.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace sim {

struct RowSums {
  std::vector<std::vector<int64_t>> acknowledged;  // by table and row
  std::vector<std::vector<std::vector<int64_t>>> doubtful;
};

// A save or a publication.
struct Cut {
  int job = 0;
  bool is_background = false;
  int64_t keep = 0;
  // What the tables contain when the last rank that takes part makes the call.
  RowSums content;
  std::set<int> joined;                       // ranks that may have joined after the call was over
  std::map<int, multiverso::Status> results;  // by rank; of a background save, those of its end
  std::map<int, multiverso::Status> began;    // the results of the calls of a background save
  bool is_acknowledged = false;
};

class Book {
 public:
  explicit Book(std::vector<int64_t> rows) : rows_(std::move(rows)) { base_ = Empty(); }

  static int64_t WeightOf(int64_t element) { return 1 + element % 3; }

  // ---- A job begins with tables of zeros.
  void BeginJob(int job);
  void EndJob();
  int job() const { return job_; }

  // ---- Adds of a rank, which makes one call at a time.
  void AddBegan(int rank, int table, const std::vector<int64_t>& rows, int64_t value);
  void AddEnded(int rank, bool is_acknowledged);

  // ---- Saves by their steps, which increase through the story, and publications by theirs.
  void SaveBegan(int64_t step, int64_t keep, bool is_background);
  // Notes the result of a save, which for one in the background is only that of its beginning.
  void SaveEnded(int rank, int64_t step, const multiverso::Status& status);
  // Notes the result of the save in the background of that rank, if it has one.
  void BackgroundEnded(int rank, const multiverso::Status& status);
  void PublishBegan(int64_t step);
  void PublishEnded(int rank, int64_t step, const multiverso::Status& status);

  // Notes that a load has returned that step, or -1, and checks that it is a permitted one.
  void Loaded(int rank, int64_t step);
  // Checks what a rank reads when no rank adds.
  void CheckTable(const std::string& who, int table, const double* values, int64_t first_element,
                  int64_t count);
  // Returns what the tables contain if no rank is in the middle of an add.
  RowSums Content(const Cut* cut = nullptr) const;
  // Checks what a rank reads while others add: at least what had been acknowledged before.
  void CheckBetween(const std::string& who, const RowSums& before, int table,
                    const std::vector<double>& values);
  void CheckSaved(const std::string& who, int64_t step, int table, const double* values,
                  int64_t first_element, int64_t count);
  // Checks what a reader sees of a publication.
  void CheckPublished(const std::string& who, int64_t step, int table, const double* values,
                      int64_t count);
  bool IsSave(int64_t step) const { return saves_.count(step) != 0; }
  const std::map<int64_t, Cut>& saves() const { return saves_; }
  // Returns the step of the last save that any rank knows to be complete, or -1.
  int64_t LastAcknowledged() const;

  // A rank has joined an elastic session.
  void Joined(int rank);

  // ---- Results of collective calls that all ranks make in the same order.
  void Called(int rank, const std::string& call, const multiverso::Status& status);
  // Checks that each call of the job had one result on all ranks but those in `except`.
  void CheckOneOutcome(const std::set<int>& except);

  void Violation(const std::string& text);
  void Note(const std::string& text);  // for the trace
  const std::vector<std::string>& violations() const { return violations_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Own {  // the adds of a rank since the tables were last set
    RowSums sums;
    RowSums in_doubt;  // the same adds, each of which may be missing
    uint64_t generation = 0;
    bool is_open = false;  // an add has begun and not returned
    int table = 0;
    std::vector<int64_t> rows;
    int64_t value = 0;
  };

  RowSums Empty() const;
  static void Sum(RowSums* to, const RowSums& from);
  void EnterCut(Cut* cut);
  void Refresh();
  void Check(const std::string& who, const RowSums& content, int table, const double* values,
             int64_t first_element, int64_t count);
  Own& OwnOf(int rank);

  const std::vector<int64_t> rows_;  // of each table
  int job_ = -1;
  RowSums base_;
  uint64_t generation_ = 0;        // of base_
  std::map<int, uint64_t> loads_;  // how many loads a rank has made in this job
  std::vector<RowSums> bases_;     // after each load of this job
  std::map<int, Own> own_;
  std::map<int64_t, Cut> saves_;
  std::map<int64_t, Cut> publications_;
  Cut* open_cut_ = nullptr;               // the last, which is open until a rank has its result
  std::map<int, int64_t> in_background_;  // the step of each rank's save in the background
  std::map<int, std::vector<std::pair<std::string, multiverso::Status>>> calls_;
  std::vector<std::string> violations_;
  std::vector<std::string> notes_;
};

}  // namespace sim
