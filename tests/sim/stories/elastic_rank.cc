// A worker of an elastic session: one of those that open it, or one that joins it.
//
// All workers run the same list of steps from its beginning. An add is made by the worker whose
// number it has; a collective call by all, and a worker that joined after such a call was over
// returns from it at once. A worker that is told to leave, at a `told` step, leaves there, and the
// last of them saves.
#include "base/text.h"
#include "engine/scheduler.h"
#include "session/joining.h"
#include "session/session_opening.h"
#include "stories/story_rank.h"

namespace sim {

using namespace multiverso;

bool StoryJob::IsLonely(int rank) const {
  for (size_t other = 0; other < is_there.size(); ++other) {
    const bool stays = is_there[other] != 0 && is_leaving[other] == 0 && ends[other].empty();
    if (stays && other != static_cast<size_t>(rank)) return false;
  }
  return true;
}

void StoryRank::RunElastic() {
  const bool joins = rank_ >= job_->ranks();
  if (!(joins ? Join() : Open()) || !CreateTables()) return;
  const auto after_told = [&](const Step& step) {
    return step.call == "told" && step.IsFor(rank_);
  };
  for (const Step& step : job_->steps) {
    if (after_told(step)) return LeaveAsTold(step);
    if (!step.IsFor(rank_)) continue;
    if (!Make(step)) return;
    if (!CheckBounds()) return;
  }
  EndElastic("close");
}

bool StoryRank::Join() {
  for (const Step& step : job_->steps) {
    if (step.call == "join" && step.IsFor(rank_)) SleepUntil(Now() + step.Get("after_us") * 1000);
  }
  for (;;) {
    const bool is_over = job_->HaveEnded(job_->ranks());
    char& is_there = job_->is_there[static_cast<size_t>(rank_)];
    is_there = 1;
    auto joined = JoinSession(StoryOptions(*job_, 0), kStoryName);
    if (joined.ok()) {
      session_ = std::move(joined.value());
      job_->book->Joined(rank_);
      job_->book->Note(StrCat("worker ", rank_, " joins as rank ", session_->members().rank()));
      return true;
    }
    is_there = 0;
    // There is no session yet, or none any more.
    if (joined.status().code() != Code::kState) {
      job_->book->Violation("join: " + joined.status().text());
    }
    if (joined.status().code() != Code::kState || is_over) {
      job_->ends[static_cast<size_t>(rank_)] = "did not join";
      return false;
    }
    SleepUntil(Now() + 1'000'000);
  }
}

void StoryRank::LeaveAsTold(const Step& step) {
  session_->SayThatItLeaves();
  job_->is_leaving[static_cast<size_t>(rank_)] = 1;
  const bool is_lonely = job_->IsLonely(rank_);
  const bool is_last = session_->IsLastToLeave();
  if (is_lonely) job_->has_lonely_one = true;
  job_->book->Note(StrCat("worker ", rank_, is_last ? " leaves last" : " leaves"));
  if (is_last) {
    ++job_->last_ones;
    AgreedCall call;
    call.folder = kStoryFolder;
    call.step = step.Get("step");
    job_->book->SaveBegan(call.step, 0, false);
    const Status status = session_->Save(call);
    job_->book->SaveEnded(rank_, call.step, status);
    job_->book->Called(rank_, "last save", status);
    if (!status.ok() && job_->disk->failures() == 0) {
      job_->book->Violation("last save: " + status.text());
    }
  }
  ++job_->told;
  EndElastic("told");
}

void StoryRank::EndElastic(const std::string& how) {
  if (!CheckBounds()) return;
  const Status status = session_->Close();
  session_.reset();
  job_->book->Called(rank_, how, status);
  job_->ends[static_cast<size_t>(rank_)] = how;
  job_->end_status[static_cast<size_t>(rank_)] = status;
  CheckHoldings();
}

bool StoryRank::CheckBounds() {
  for (int table = 0; table < kStoryTables; ++table) {
    const RowSums before = job_->book->Content();
    std::vector<double> values;
    const Status status = Read(table, &values);
    if (!status.ok()) {
      Leave("get", status);
      return false;
    }
    job_->book->CheckBetween(StrCat("get: worker ", rank_), before, table, values);
  }
  return true;
}

}  // namespace sim
