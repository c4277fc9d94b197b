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
  const Quiet quiet;
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
  // From now on, the job's checkpoints contain what they do.
  for (auto* cuts : {&saves_, &publications_}) {
    for (auto& [step, cut] : *cuts) {
      if (cut.job != job_) continue;
      cut.base = ContentOf(cut);
      cut.entered.clear();
      cut.generation = 0;
    }
  }
  own_.clear();
}

Book::Own& Book::OwnOf(int rank) {
  Own& own = own_[rank];
  if (own.sums.acknowledged.empty()) {
    own.sums = Empty();
    own.generation = generation_;
  }
  return own;
}

void Book::AddBegan(int rank, int table, const std::vector<int64_t>& rows, int64_t value) {
  const Quiet quiet;
  Own& own = OwnOf(rank);
  own.is_open = true;
  own.table = table;
  own.rows = rows;
  own.value = value;
  if (!rows.empty()) return;
  for (int64_t row = 0; row < rows_[static_cast<size_t>(table)]; ++row) own.rows.push_back(row);
}

void Book::AddEnded(int rank, bool is_acknowledged) {
  const Quiet quiet;
  Own& own = OwnOf(rank);
  own.is_open = false;
  for (const int64_t row : own.rows) {
    const auto table = static_cast<size_t>(own.table);
    if (is_acknowledged) {
      own.sums.acknowledged[table][static_cast<size_t>(row)] += own.value;
    } else {
      own.sums.doubtful[table][static_cast<size_t>(row)].push_back(own.value);
    }
  }
}

void Book::EnterCut(Cut* cut, int rank) {
  if (cut->entered.empty()) {
    cut->job = job_;
    cut->base = bases_[static_cast<size_t>(loads_[rank])];
    cut->generation = generation_ + loads_[rank];
  }
  cut->entered[rank] = OwnOf(rank).sums;
}

void Book::SaveBegan(int rank, int64_t step, int64_t keep, bool is_background) {
  const Quiet quiet;
  Cut& cut = saves_[step];
  EnterCut(&cut, rank);
  cut.keep = keep;
  cut.is_background = is_background;
}

void Book::SaveEnded(int rank, int64_t step, const Status& status) {
  const Quiet quiet;
  Cut& cut = saves_[step];
  cut.began[rank] = status;
  if (cut.is_background && status.ok()) {
    in_background_[rank] = step;
    return;
  }
  cut.results[rank] = status;
  cut.is_acknowledged = cut.is_acknowledged || status.ok();
}

void Book::BackgroundEnded(int rank, const Status& status) {
  const Quiet quiet;
  const auto found = in_background_.find(rank);
  if (found == in_background_.end()) return;
  Cut& cut = saves_[found->second];
  cut.results[rank] = status;
  cut.is_acknowledged = cut.is_acknowledged || status.ok();
  in_background_.erase(found);
}

void Book::PublishBegan(int rank, int64_t step) {
  const Quiet quiet;
  EnterCut(&publications_[step], rank);
}

int64_t Book::LastAcknowledged() const {
  int64_t last = -1;
  for (const auto& [step, cut] : saves_) {
    if (cut.is_acknowledged) last = step;
  }
  return last;
}

RowSums Book::ContentOf(const Cut& cut) const {
  RowSums content = cut.base;
  for (const auto& [rank, sums] : cut.entered) Sum(&content, sums);
  if (cut.job != job_) return content;
  // Ranks that died before the call take no part in it, but what they added stays.
  for (const auto& [rank, own] : own_) {
    if (cut.entered.count(rank) != 0 || own.generation != cut.generation) continue;
    Sum(&content, own.sums);
    for (const int64_t row : own.is_open ? own.rows : std::vector<int64_t>()) {
      content.doubtful[static_cast<size_t>(own.table)][static_cast<size_t>(row)].push_back(
          own.value);
    }
  }
  return content;
}

void Book::Loaded(int rank, int64_t step) {
  const Quiet quiet;
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
  const uint64_t load = ++loads_[rank];
  if (bases_.size() <= load) {
    bases_.push_back(step < 0 ? bases_.back() : ContentOf(saves_[step]));
    if (step < 0) {
      for (const auto& [other, own] : own_) Sum(&bases_.back(), own.sums);
    }
  }
  Own& own = OwnOf(rank);
  own.sums = Empty();
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
                  "%s: element %" PRId64 " of table %d is %.17g, expected %.17g, with %zu adds in "
                  "doubt",
                  who.c_str(), element, table, values[i], weight * static_cast<double>(sum),
                  doubtful.size());
    Violation(text);
    return;
  }
}

void Book::CheckTable(const std::string& who, int table, const double* values,
                      int64_t first_element, int64_t count) {
  const Quiet quiet;
  uint64_t load = 0;
  for (const auto& [rank, loads] : loads_) load = std::max(load, loads);
  Cut now;
  now.job = job_;
  now.generation = generation_ + load;
  now.base = bases_[static_cast<size_t>(load)];
  Check(who, ContentOf(now), table, values, first_element, count);
}

void Book::CheckSaved(const std::string& who, int64_t step, int table, const double* values,
                      int64_t first_element, int64_t count) {
  const Quiet quiet;
  Check(who, ContentOf(saves_[step]), table, values, first_element, count);
}

void Book::CheckPublished(const std::string& who, int64_t step, int table, const double* values,
                          int64_t count) {
  const Quiet quiet;
  const auto found = publications_.find(step);
  if (found == publications_.end()) {
    Violation(who + ": publication of step " + Number(step) + ", which no rank has made");
    return;
  }
  Check(who, ContentOf(found->second), table, values, 0, count);
}

void Book::Called(int rank, const std::string& call, const Status& status) {
  const Quiet quiet;
  calls_[rank].emplace_back(call, status);
  Note("rank " + Number(rank) + " " + call + ": " + NameOf(status.code()) +
       (status.ok() ? "" : " " + status.text()));
}

void Book::CheckOneOutcome(const std::set<int>& except) {
  const Quiet quiet;
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
