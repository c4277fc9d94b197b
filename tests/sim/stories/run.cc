#include "stories/run.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/text.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "engine/scheduler.h"
#include "stories/story_rank.h"

namespace sim {

using namespace multiverso;

namespace {

constexpr int64_t kMillisecond = 1'000'000;
// A rank learns of the death of another within this time.
constexpr int64_t kNoticeNs = 5'000 * kMillisecond;

class StoryRun {
 public:
  explicit StoryRun(const Story& story) : story_(story), book_({16, 1}) {}

  StoryResult Run();

 private:
  void RunJobs();
  void RunJob();
  void SetDiskFaults();
  // Lets faults of the disk's calls happen, in the process that makes the call.
  void AtDiskChange(const Step& fault);
  void KillRanks(const std::vector<int>& ranks);
  void AwaitEnd();
  int64_t LimitOfNotice() const;
  void CheckEnds();
  int64_t NumberOf(const std::string& end) const;
  void CheckDisk();
  // Checks what would be there after a power failure at this moment.
  void CheckPowerFailure();
  // Checks the checkpoints that are visible on a disk, and returns their names.
  std::vector<CheckpointName> CheckVisible(Disk* disk, const std::string& when);
  // Checks that saves have removed no more than they were told.
  void CheckKept(int64_t visible);
  void CheckSaved(FileSystem* files, const std::string& path, const std::string& when,
                  int64_t step);
  void OnDeath(int process);

  const Story& story_;
  Book book_;
  Disk disk_;
  std::unique_ptr<StoryJob> job_;
  int number_ = -1;
  int next_process_ = 0;
  int killed_ = 0;
  int64_t first_death_ = -1;
  bool power_failed_ = false;
  int node_without_power_ = -1;
  std::vector<int64_t> ended_at_;
  bool had_leftovers_ = false;
  int64_t visible_ = 0;  // checkpoints after the job before
};

void StoryRun::OnDeath(int process) {
  if (job_ == nullptr) return;
  const int rank = process - job_->first_process;
  if (rank < 0 || rank >= job_->workers()) return;
  if (rank < job_->ranks()) job_->network->Die(rank);
  if (!job_->ends[static_cast<size_t>(rank)].empty()) return;
  book_.Note(StrCat("rank ", rank, " dies"));
  job_->ends[static_cast<size_t>(rank)] = "died";
  job_->died_leaving = job_->died_leaving || job_->is_leaving[static_cast<size_t>(rank)] != 0;
  ++killed_;
  if (first_death_ < 0) first_death_ = Now();
}

void StoryRun::KillRanks(const std::vector<int>& ranks) {
  std::vector<int> processes;
  for (const int rank : ranks) processes.push_back(job_->first_process + rank);
  for (const int process : processes) disk_.CutOff(process);
  // The one that makes the call of the disk is the last, since its death ends this function.
  std::stable_partition(processes.begin(), processes.end(),
                        [](int process) { return process != CurrentRank(); });
  for (const int process : processes) KillNow(process);
}

void StoryRun::AtDiskChange(const Step& fault) {
  std::vector<int> ranks;
  if (fault.call == "killer") {
    ranks = {CurrentRank() - job_->first_process};
  } else {
    const auto node = fault.numbers.find("node");
    for (int rank = 0; rank < job_->workers(); ++rank) {
      if (node != fault.numbers.end() &&
          rank / job_->per_node() != node->second % ((job_->ranks() - 1) / job_->per_node() + 1)) {
        continue;
      }
      ranks.push_back(rank);
    }
    if (node == fault.numbers.end()) power_failed_ = true;
    if (node != fault.numbers.end()) node_without_power_ = ranks[0] / job_->per_node();
  }
  book_.Note(fault.Text());
  if (node_without_power_ >= 0) {
    // The bytes are gone when the others may next look at them.
    const Quiet is_quiet;
    disk_.LosePowerOf(node_without_power_);
  }
  KillRanks(ranks);
}

void StoryRun::SetDiskFaults() {
  const auto call_of = [](const Step& step) {
    return DiskFaults::At{static_cast<DiskCall>(step.Get("of") % kDiskCalls), step.Get("at")};
  };
  DiskFaults faults;
  faults.slow_ns = job_->options.Get("slow_us") * 1000;
  for (const Step& step : job_->steps) {
    if (step.call == "fail") {
      faults.fail_at = call_of(step);
      faults.count = step.Get("count", 1);
      faults.every = step.Get("every");
      faults.error_number = static_cast<int>(step.Get("errno", EIO));
    }
    if (step.call == "full") faults.capacity = disk_.UsedBytes() + step.Get("bytes");
    if (step.call == "power" || step.call == "killer") {
      faults.at[call_of(step)] = [this, step] { AtDiskChange(step); };
    }
  }
  disk_.SetFaults(faults);
}

void StoryRun::AwaitEnd() {
  ended_at_.assign(job_->ends.size(), -1);
  while (!job_->HaveEnded(job_->workers())) {
    SleepUntil(Now() + 20 * kMillisecond);
    for (size_t rank = 0; rank < ended_at_.size(); ++rank) {
      if (ended_at_[rank] < 0 && !job_->ends[rank].empty()) ended_at_[rank] = Now();
    }
  }
}

void StoryRun::RunJob() {
  book_.BeginJob(number_);
  book_.Note(StrCat("job ", number_, ": ", job_->options.Text()));
  first_death_ = -1;
  power_failed_ = false;
  node_without_power_ = -1;
  const int ranks = job_->ranks();
  const int readers = static_cast<int>(job_->options.Get("readers"));
  setenv("MULTIVERSO_RANKS_PER_NODE", std::to_string(job_->per_node()).c_str(), 1);
  job_->book = &book_;
  job_->disk = &disk_;
  job_->hub = std::make_shared<Hub>(ranks);
  job_->network = std::make_shared<Network>(ranks);
  const int workers = job_->workers();
  job_->ends.resize(static_cast<size_t>(workers));
  job_->end_status.resize(static_cast<size_t>(workers));
  job_->is_there.assign(static_cast<size_t>(workers), 0);
  job_->is_leaving.assign(static_cast<size_t>(workers), 0);
  std::fill_n(job_->is_there.begin(), ranks, 1);
  job_->first_process = next_process_;
  next_process_ += workers + std::max(readers, 0);
  if (job_->Has("flip")) {
    const std::string path = disk_.FlipABit(kStoryFolder);
    job_->is_flipped = !path.empty();
    if (job_->is_flipped) book_.Note("a bit changes in " + path);
  }
  SetDiskFaults();
  disk_.BeforeChanges([this] { CheckPowerFailure(); });
  StoryJob* const job = job_.get();
  for (int rank = 0; rank < workers; ++rank) {
    Spawn(job->first_process + rank, [job, rank] { StoryRank(job, rank).Run(); });
  }
  for (int reader = 0; reader < readers; ++reader) {
    Spawn(job->first_process + workers + reader, [job, reader] { RunReader(job, reader); });
  }
  AwaitEnd();
  // Readers notice the end by themselves, and may read what was published last.
  if (readers > 0) SleepUntil(Now() + kNoticeNs);
  CheckEnds();
  if (power_failed_ || job_->Has("outage")) disk_.LosePower();
  if (job_->is_flipped) disk_.UndoFlip();
  CheckDisk();
  book_.EndJob();
}

void StoryRun::RunJobs() {
  for (size_t i = 0; i < story_.steps.size();) {
    job_ = std::make_unique<StoryJob>();
    job_->world = story_.world;
    job_->options = story_.steps[i++];
    ++number_;
    while (i < story_.steps.size() && story_.steps[i].call != "job") {
      job_->steps.push_back(story_.steps[i++]);
    }
    RunJob();
    if (!book_.violations().empty()) return;
  }
}

int64_t StoryRun::LimitOfNotice() const {
  int64_t limit = kNoticeNs + 30 * job_->options.Get("slow_us") * 1000;
  for (const Step& step : job_->steps) {
    if (step.call == "suspend") limit += step.Get("ms") * kMillisecond;
  }
  return limit;
}

void StoryRun::CheckEnds() {
  const bool is_elastic = job_->options.Get("elastic") != 0;
  const bool continues = is_elastic || job_->options.Get("continues") != 0;
  const bool saves_in_background = std::any_of(
      job_->steps.begin(), job_->steps.end(),
      [](const Step& step) { return step.call == "save" && step.Get("background") != 0; });
  std::set<int> dead;
  std::set<Code> closed;
  for (int rank = 0; rank < job_->workers(); ++rank) {
    const auto index = static_cast<size_t>(rank);
    const std::string& end = job_->ends[index];
    const Status& status = job_->end_status[index];
    const std::string what = StrCat("rank ", rank, " of job ", number_, " ended in ", end, ": ",
                                    NameOf(status.code()), " ", status.text());
    if (end == "died") {
      dead.insert(rank);
      continue;
    }
    if (end == "close") closed.insert(status.code());
    if (status.ok()) continue;
    // Those that created the tables may all end just after a worker has joined them.
    if (is_elastic && rank >= job_->ranks() && end == "creation" && status.code() == Code::kState) {
      continue;
    }
    if (end == "close" && job_->IsFailureOfDisk(status)) continue;
    // The closing call waits for the last save, which needs the part of the rank that died.
    const bool lacks_a_part = continues && !is_elastic && saves_in_background &&
                              first_death_ >= 0 && end == "close" &&
                              status.code() == Code::kPeerLost;
    if (lacks_a_part) continue;
    if (first_death_ < 0) {
      book_.Violation("end: without a loss, " + what);
    } else if (continues) {
      book_.Violation("end: did not go on: " + what);
    } else if (status.code() != Code::kPeerLost) {
      book_.Violation("end: expected PeerLostError, " + what);
    } else if (ended_at_[index] - first_death_ > LimitOfNotice()) {
      book_.Violation("notice: late, " + what);
    }
  }
  if (continues && !is_elastic && closed.size() > 1) {
    book_.Violation("one outcome: the close of some ranks failed, and that of others did not");
  }
  // Workers of an elastic session leave calls out, or repeat those that were over.
  if (!is_elastic && (dead.empty() || continues)) book_.CheckOneOutcome(dead);
  const bool all_told = job_->told + static_cast<int>(NumberOf("did not join")) == job_->workers();
  const bool must_have_last = all_told || (job_->has_lonely_one && !job_->died_leaving);
  if (job_->last_ones > 1 || (must_have_last && job_->last_ones == 0)) {
    book_.Violation(StrCat("last: ", job_->last_ones, " workers were the last to leave"));
  }
}

int64_t StoryRun::NumberOf(const std::string& end) const {
  return std::count(job_->ends.begin(), job_->ends.end(), end);
}

std::vector<CheckpointName> StoryRun::CheckVisible(Disk* disk, const std::string& when) {
  FileSystem* const files = disk->OnNode(0);
  const CheckpointFolder folder(files, kStoryFolder);
  const auto kind = files->KindOf(kStoryFolder);
  std::vector<CheckpointName> names;
  if (kind.ok() && kind.value() == EntryKind::kFolder) names = folder.List().value();
  int64_t last = -1;
  for (const CheckpointName& name : names) {
    CheckSaved(files, folder.PathOf(name), when, name.step);
    last = name.step;
  }
  const int64_t least = book_.LastAcknowledged();
  if (last < least) {
    book_.Violation(StrCat("lost", when, ": the save of step ", least,
                           " was acknowledged, and the last checkpoint has step ", last));
  }
  if (!std::is_sorted(names.begin(), names.end(),
                      [](const auto& a, const auto& b) { return a.step < b.step; })) {
    book_.Violation("order: the steps of the checkpoints do not increase");
  }
  return names;
}

void StoryRun::CheckPowerFailure() {
  if (job_->is_flipped || !book_.violations().empty()) return;
  // What follows a failure may be safe only because of what has failed.
  if (disk_.failures() == 0 && Random() % 4 != 0) return;
  Disk disk;
  disk.CopyFrom(disk_);
  disk.LosePower();
  (void)CheckVisible(&disk, " if the power fails");
}

void StoryRun::CheckDisk() {
  // What happened to the calls of the job is of interest after it; the checks have a whole disk.
  const bool had_failures = disk_.failures() > 0;
  const bool had_failed_removals = disk_.failed_removals() > 0;
  disk_.SetFaults(DiskFaults());
  disk_.BeforeChanges(nullptr);
  const std::vector<CheckpointName> names = CheckVisible(&disk_, "");
  CheckKept(static_cast<int64_t>(names.size()));
  std::string leftover;
  for (const std::string& path : disk_.PathsBelow(kStoryFolder)) {
    const bool is_partial = path.size() > 5 && path.compare(path.size() - 5, 5, ".part") == 0;
    if (path.find("/.") != std::string::npos || is_partial) leftover = path;
  }
  const bool is_clean = first_death_ < 0 && !had_failed_removals && !job_->Has("outage");
  if (!leftover.empty() && is_clean && (job_->has_saved || !had_leftovers_)) {
    book_.Violation("leftover: " + leftover);
  }
  had_leftovers_ = !leftover.empty();
  if (!is_clean || had_failures || names.empty()) return;
  const auto& cut = book_.saves().at(names.back().step);
  if (cut.job == number_ && cut.keep > 0 && static_cast<int64_t>(names.size()) > cut.keep) {
    book_.Violation(StrCat("keep: ", names.size(), " checkpoints, expected ", cut.keep));
  }
}

void StoryRun::CheckKept(int64_t visible) {
  int64_t keep = INT64_MAX;
  int64_t least = std::exchange(visible_, visible);
  for (const auto& [step, cut] : book_.saves()) {
    if (cut.job != number_) continue;
    if (cut.is_acknowledged) ++least;
    if (cut.keep > 0) keep = std::min(keep, cut.keep);
  }
  if (visible >= std::min(keep, least)) return;
  book_.Violation(
      StrCat("keep: ", visible, " checkpoints, expected at least ", std::min(keep, least)));
}

void StoryRun::CheckSaved(FileSystem* files, const std::string& path, const std::string& when,
                          int64_t step) {
  const WaitLimit limit = WaitLimit::Until(Instant::max());
  auto opened = CheckpointReader::Open(files, path);
  Status status = opened.status();
  if (status.ok()) status = opened.value()->Verify(0, opened.value()->blocks(), limit);
  if (!status.ok()) {
    book_.Violation("damage" + when + ": " + path + ": " + status.text());
    return;
  }
  CheckpointReader& reader = *opened.value();
  if (!book_.IsSave(step) || reader.manifest().tables.size() != kStoryTables) {
    book_.Violation("strange" + when + ": " + path);
    return;
  }
  for (uint32_t table = 0; table < kStoryTables; ++table) {
    const SavedTable& saved = reader.manifest().tables[table];
    // A load finds the places of these rows.
    if (saved.is_lazy() || saved.is_hash()) continue;
    const auto take = [&](int64_t first, int64_t count, const char* data) {
      std::vector<double> values(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {
        values[static_cast<size_t>(i)] = table == 0
                                             ? reinterpret_cast<const double*>(data)[i]
                                             : double{reinterpret_cast<const float*>(data)[i]};
      }
      book_.CheckSaved("content" + when + ": " + path, step, static_cast<int>(table), values.data(),
                       first, count);
      return Status::Ok();
    };
    const Status read = reader.Read(table, kParameterArea, 0, saved.num_row, limit, take);
    if (!read.ok()) book_.Violation("damage" + when + ": " + path + ": " + read.text());
  }
}

StoryResult StoryRun::Run() {
  Options options;
  options.seed = static_cast<uint64_t>(story_.world.Get("seed", 1));
  options.mean_run = static_cast<int>(story_.world.Get("mean_run", 30));
  options.writes_are_points = story_.world.Get("writes") != 0;
  options.net_max_ns = 1000 * story_.world.Get("latency_us", 300);
  options.point_ns = story_.world.Get("point_ns", 200);
  options.deadline_ns = int64_t{4} * 3600 * 1000 * kMillisecond;
  Start(options);
  sim::OnDeath([this](int process) { OnDeath(process); });
  // The process that starts the jobs is none of the ranks, and is never killed.
  Spawn(-1, [this] { RunJobs(); });
  if (!sim::Run()) book_.Violation("hang: " + Why());
  StoryResult result;
  result.violations = book_.violations();
  result.trace = book_.notes();
  result.hash = Hash();
  result.switches = Switches();
  result.killed = killed_;
  for (const auto& [step, cut] : book_.saves()) result.saved += cut.is_acknowledged ? 1 : 0;
  Finish();
  return result;
}

}  // namespace

StoryResult RunStory(const Story& story) { return StoryRun(story).Run(); }

}  // namespace sim
