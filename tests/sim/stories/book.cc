#include "stories/book.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "engine/scheduler.h"
#include "stories/story.h"

namespace sim {

using multiverso::Status;

namespace {

std::string Number(int64_t value) { return std::to_string(value); }

int64_t ColumnsOf(int table) { return table == 0 ? kMatrixColumns : kArrayElements; }

}  // namespace

RowSums Book::Empty() const {
  RowSums sums;
  for (const int64_t rows : rows_) {
    sums.acknowledged.emplace_back(static_cast<size_t>(rows));
    sums.doubtful.emplace_back(static_cast<size_t>(rows));
  }
  return sums;
}

void Book::Sum(RowSums* to, const RowSums& from) {
  for (size_t table = 0; table < to->acknowledged.size(); ++table) {
    for (size_t row = 0; row < to->acknowledged[table].size(); ++row) {
      to->acknowledged[table][row] += from.acknowledged[table][row];
      auto& doubtful = to->doubtful[table][row];
      const auto& more = from.doubtful[table][row];
      doubtful.insert(doubtful.end(), more.begin(), more.end());
    }
  }
}

void Book::BeginJob(int job) {
  const Quiet is_quiet;
  job_ = job;
  base_ = Empty();
  ++generation_;
  bases_ = {base_};
  own_.clear();
  loads_.clear();
  calls_.clear();
  in_background_.clear();
}

void Book::EndJob() {
  // What a rank knew about its save in the background has ended with it.
  in_background_.clear();
  open_cut_ = nullptr;
}

Book::Own& Book::OwnOf(int rank) {
  Own& own = own_[rank];
  if (own.sums.acknowledged.empty()) {
    own.sums = own.in_doubt = Empty();
    own.generation = generation_;
  }
  return own;
}

void Book::AddBegan(int rank, int table, const std::vector<int64_t>& rows, int64_t value) {
  const Quiet is_quiet;
  Own& own = OwnOf(rank);
  own.is_open = true;
  own.table = table;
  own.rows = rows;
  own.value = value;
  for (int64_t row = 0; rows.empty() && row < rows_[static_cast<size_t>(table)]; ++row) {
    own.rows.push_back(row);
  }
  Refresh();
}

void Book::AddEnded(int rank, bool is_acknowledged) {
  const Quiet is_quiet;
  Own& own = OwnOf(rank);
  own.is_open = false;
  for (const int64_t row : own.rows) {
    const auto table = static_cast<size_t>(own.table);
    if (is_acknowledged) {
      own.sums.acknowledged[table][static_cast<size_t>(row)] += own.value;
    } else {
      own.sums.doubtful[table][static_cast<size_t>(row)].push_back(own.value);
    }
    own.in_doubt.doubtful[table][static_cast<size_t>(row)].push_back(own.value);
  }
  Refresh();
}

void Book::EnterCut(Cut* cut) {
  // A rank that joined an elastic session after the call was over takes no part in it.
  if (!cut->results.empty() || !cut->began.empty()) return;
  cut->job = job_;
  cut->content = Content(cut);
  open_cut_ = cut;
}

void Book::Refresh() {
  // A rank that has not made the call yet, and ends before it, adds to what is saved.
  if (open_cut_ != nullptr) EnterCut(open_cut_);
}

void Book::Joined(int rank) {
  const Quiet is_quiet;
  // A call may be over, though no rank has returned from it.
  for (auto& [step, cut] : saves_) {
    if (cut.job == job_ && cut.results.empty()) cut.joined.insert(rank);
  }
}

void Book::SaveBegan(int64_t step, int64_t keep, bool is_background) {
  const Quiet is_quiet;
  Cut& cut = saves_[step];
  EnterCut(&cut);
  cut.keep = keep;
  cut.is_background = is_background;
}

void Book::SaveEnded(int rank, int64_t step, const Status& status) {
  const Quiet is_quiet;
  Cut& cut = saves_[step];
  cut.began[rank] = status;
  if (cut.is_background && status.ok()) {
    in_background_[rank] = step;
    return;
  }
  cut.results[rank] = status;
  // A rank that joined after all that took part had died only knows that the call is over.
  if (status.ok() && cut.joined.count(rank) == 0) cut.is_acknowledged = true;
}

void Book::BackgroundEnded(int rank, const Status& status) {
  const Quiet is_quiet;
  const auto found = in_background_.find(rank);
  if (found == in_background_.end()) return;
  Cut& cut = saves_[found->second];
  cut.results[rank] = status;
  cut.is_acknowledged = cut.is_acknowledged || status.ok();
  in_background_.erase(found);
}

void Book::PublishBegan(int64_t step) {
  const Quiet is_quiet;
  EnterCut(&publications_[step]);
}

void Book::PublishEnded(int rank, int64_t step, const Status& status) {
  const Quiet is_quiet;
  publications_[step].results[rank] = status;
}

int64_t Book::LastAcknowledged() const {
  int64_t last = -1;
  for (const auto& [step, cut] : saves_) {
    if (cut.is_acknowledged) last = step;
  }
  return last;
}

RowSums Book::Content(const Cut* cut) const {
  uint64_t load = 0;
  for (const auto& [rank, loads] : loads_) load = std::max(load, loads);
  RowSums content = bases_[static_cast<size_t>(load)];
  // Ranks that died take no part in later calls, but what they added stays.
  for (const auto& [rank, own] : own_) {
    if (own.generation != generation_ + load) continue;
    Sum(&content, cut != nullptr && cut->joined.count(rank) != 0 ? own.in_doubt : own.sums);
    for (const int64_t row : own.is_open ? own.rows : std::vector<int64_t>()) {
      content.doubtful[static_cast<size_t>(own.table)][static_cast<size_t>(row)].push_back(
          own.value);
    }
  }
  return content;
}

void Book::Loaded(int rank, int64_t step) {
  const Quiet is_quiet;
  const int64_t least = LastAcknowledged();
  if (step < least) {
    Violation("load: rank " + Number(rank) + " of job " + Number(job_) + " received step " +
              Number(step) + ", but the save of step " + Number(least) + " was acknowledged");
  }
  if (step >= 0 && saves_.count(step) == 0) {
    Violation("load: rank " + Number(rank) + " received step " + Number(step) +
              ", which no save has");
    return;
  }
  const uint64_t load = loads_[rank] + 1;
  if (bases_.size() <= load) {
    bases_.push_back(step < 0 ? Content() : saves_[step].content);
  }
  loads_[rank] = load;
  Own& own = OwnOf(rank);
  own.sums = own.in_doubt = Empty();
  own.generation = generation_ + load;
}

void Book::Check(const std::string& who, const RowSums& content, int table, const double* values,
                 int64_t first_element, int64_t count) {
  const int64_t columns = ColumnsOf(table);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t element = first_element + i;
    const auto row = static_cast<size_t>(element / columns);
    const int64_t sum = content.acknowledged[static_cast<size_t>(table)][row];
    const auto& doubtful = content.doubtful[static_cast<size_t>(table)][row];
    const auto weight = static_cast<double>(WeightOf(element));
    bool fits = false;
    const size_t choices = size_t{1} << std::min<size_t>(doubtful.size(), 10);
    for (size_t subset = 0; subset < choices && !fits; ++subset) {
      int64_t with = sum;
      for (size_t k = 0; k < doubtful.size() && k < 10; ++k) {
        if ((subset >> k & 1) != 0) with += doubtful[k];
      }
      fits = values[i] == weight * static_cast<double>(with);
    }
    if (fits) continue;
    char text[200];
    std::snprintf(text, sizeof(text),
                  "%s: element %" PRId64
                  " of table %d is %.17g, expected %.17g, with %zu adds in "
                  "doubt",
                  who.c_str(), element, table, values[i], weight * static_cast<double>(sum),
                  doubtful.size());
    Violation(text);
    return;
  }
}

void Book::CheckTable(const std::string& who, int table, const double* values,
                      int64_t first_element, int64_t count) {
  const Quiet is_quiet;
  Check(who, Content(), table, values, first_element, count);
}

void Book::CheckBetween(const std::string& who, const RowSums& before, int table,
                        const std::vector<double>& values) {
  const Quiet is_quiet;
  const RowSums after = Content();
  const int64_t columns = ColumnsOf(table);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto row = i / static_cast<size_t>(columns);
    const auto weight = static_cast<double>(WeightOf(static_cast<int64_t>(i)));
    int64_t most = after.acknowledged[static_cast<size_t>(table)][row];
    for (const int64_t value : after.doubtful[static_cast<size_t>(table)][row]) most += value;
    const int64_t least = before.acknowledged[static_cast<size_t>(table)][row];
    if (values[i] >= weight * static_cast<double>(least) &&
        values[i] <= weight * static_cast<double>(most)) {
      continue;
    }
    Violation(who + ": element " + Number(static_cast<int64_t>(i)) + " of table " + Number(table) +
              " is " + std::to_string(values[i]) + " times " +
              Number(static_cast<int64_t>(weight)) + ", acknowledged " + Number(least) +
              ", issued " + Number(most));
    return;
  }
}

void Book::CheckSaved(const std::string& who, int64_t step, int table, const double* values,
                      int64_t first_element, int64_t count) {
  const Quiet is_quiet;
  Check(who, saves_[step].content, table, values, first_element, count);
}

void Book::CheckPublished(const std::string& who, int64_t step, int table, const double* values,
                          int64_t count) {
  const Quiet is_quiet;
  const auto found = publications_.find(step);
  if (found == publications_.end()) {
    Violation(who + ": publication of step " + Number(step) + ", which no rank has made");
    return;
  }
  Check(who, found->second.content, table, values, 0, count);
}

void Book::Called(int rank, const std::string& call, const Status& status) {
  const Quiet is_quiet;
  calls_[rank].emplace_back(call, status);
  Note("rank " + Number(rank) + " " + call + ": " + NameOf(status.code()) +
       (status.ok() ? "" : " " + status.text()));
}

void Book::CheckOneOutcome(const std::set<int>& except) {
  const Quiet is_quiet;
  const std::vector<std::pair<std::string, Status>>* first = nullptr;
  int first_rank = -1;
  for (const auto& [rank, calls] : calls_) {
    if (except.count(rank) != 0) continue;
    if (first == nullptr) {
      first = &calls;
      first_rank = rank;
      continue;
    }
    for (size_t i = 0; i < std::min(first->size(), calls.size()); ++i) {
      if ((*first)[i].second.code() == calls[i].second.code()) continue;
      Violation("outcome: " + calls[i].first + " was " + NameOf(calls[i].second.code()) +
                " on rank " + Number(rank) + " and " + NameOf((*first)[i].second.code()) +
                " on rank " + Number(first_rank));
      return;
    }
  }
}

void Book::Violation(const std::string& text) {
  violations_.push_back(text);
  Note("VIOLATION " + text);
}

void Book::Note(const std::string& text) {
  char when[40];
  std::snprintf(when, sizeof(when), "%10.4f s ", 1e-9 * static_cast<double>(Now()) - 1000);
  notes_.push_back(when + text);
}

}  // namespace sim
