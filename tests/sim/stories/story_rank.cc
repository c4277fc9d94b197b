#include "stories/story_rank.h"

#include <algorithm>

#include "base/text.h"
#include "engine/scheduler.h"
#include "reader/job_reader.h"
#include "session/session_opening.h"

namespace sim {

using namespace multiverso;

bool StoryJob::Has(const std::string& call) const {
  return std::any_of(steps.begin(), steps.end(),
                     [&](const Step& step) { return step.call == call; });
}

bool StoryJob::HaveEnded(int count) const {
  return std::all_of(ends.begin(), ends.begin() + count,
                     [](const std::string& end) { return !end.empty(); });
}

SessionOptions StoryOptions(const StoryJob& job, int node) {
  SessionOptions options;
  options.mode.mode = static_cast<Mode>(job.options.Get("mode"));
  options.mode.staleness = options.mode.mode == Mode::kStale ? 2 : 0;
  options.on_loss = job.options.Get("continues") != 0 ? OnLoss::kContinue : OnLoss::kFail;
  options.is_elastic = job.options.Get("elastic") != 0;
  options.timeout = std::chrono::milliseconds(120'000);
  options.peer_timeout = std::chrono::milliseconds(30'000);
  options.files = job.disk->OnNode(node);
  CopyText(options.name, kStoryName);
  return options;
}

int64_t StoryRows(const StoryJob& job, int table) {
  return table == 0 ? job.options.Get("rows", 16) : 1;
}

Request StoryGet(const StoryJob& job, int table, std::vector<int64_t>* ids, void* out) {
  if (table != 0 || job.kind() != StoryJob::kKeys) return Request::Get(out);
  for (int64_t row = 0; row < StoryRows(job, 0); ++row) ids->push_back(StoryKey(row));
  return Request::Of(RequestKind::kGetKeys, ids->data(), static_cast<int64_t>(ids->size()), nullptr,
                     out);
}

bool StoryJob::IsFailureOfDisk(const Status& status) const {
  return status.code() == Code::kCheckpointIo && status.file() != nullptr &&
         disk->HasFailed(*status.file());
}

TableSpec StorySpec(const StoryJob& job, int table) {
  TableSpec spec;
  CopyText(spec.name, table == 0 ? "m" : "a");
  spec.dtype = static_cast<int32_t>(table == 0 ? DType::kFloat64 : DType::kFloat32);
  spec.kind = static_cast<int32_t>(table == 0 ? TableKind::kMatrix : TableKind::kArray);
  spec.num_row = table == 0 ? StoryRows(job, table) : kArrayElements;
  spec.num_col = table == 0 ? kMatrixColumns : 1;
  if (table != 0 || job.kind() == StoryJob::kDense) return spec;
  spec.initializer.kind = static_cast<int32_t>(InitializerKind::kZeros);
  if (job.kind() == StoryJob::kLazy) return spec;
  spec.kind = static_cast<int32_t>(TableKind::kHash);
  // A rank that is killed in an add leaves the room of its new key taken.
  spec.keys.capacity = StoryRows(job, table) + 16;
  spec.num_row = 0;
  return spec;
}

Status StoryRank::Run(Table* table, const Request& request) {
  return table->Run(request, WaitLimit::Until(session_->NextDeadline()));
}

void StoryRank::Run() {
  if (job_->options.Get("elastic") != 0) return RunElastic();
  if (!Open() || !CreateTables()) return;
  for (const Step& step : job_->steps) {
    if (!step.IsFor(rank_)) continue;
    if (!Make(step)) return;
    if (is_half_loaded_) break;
  }
  Status status = session_->Barrier();
  if (!Goes("barrier", status)) return;
  if (!is_half_loaded_ && !CheckTables("at the end")) return;
  status = session_->Close();
  job_->book->BackgroundEnded(rank_, status);
  job_->book->Called(rank_, "close", status);
  session_.reset();
  CheckHoldings();
  job_->end_status[static_cast<size_t>(rank_)] = status;
  job_->ends[static_cast<size_t>(rank_)] = "close";
}

bool StoryRank::Open() {
  auto opened = OpenSession(StoryOptions(*job_, rank_ / job_->per_node()),
                            std::make_unique<SimTransport>(job_->hub, job_->network, rank_));
  job_->book->Called(rank_, "open", opened.status());
  if (!opened.ok()) {
    Leave("open", opened.status());
    return false;
  }
  session_ = std::move(opened.value());
  ++job_->opened;
  return true;
}

bool StoryRank::CreateTables() {
  for (int table = 0; table < kStoryTables; ++table) {
    auto made = session_->CreateTable(StorySpec(*job_, table), nullptr);
    if (!Goes("creation", made.status())) return false;
    tables_.push_back(session_->KeepTable(std::move(made.value())));
  }
  return true;
}

void StoryRank::Leave(const std::string& where, const Status& status) {
  if (session_ != nullptr) session_->Leave("after an error");
  session_.reset();
  job_->end_status[static_cast<size_t>(rank_)] = status;
  job_->ends[static_cast<size_t>(rank_)] = where;
}

bool StoryRank::Goes(const std::string& call, const Status& status) {
  job_->book->Called(rank_, call, status);
  if (status.ok()) return true;
  // A session that continues goes on without the lost rank.
  const bool continues = job_->options.Get("continues") != 0 || job_->options.Get("elastic") != 0;
  if (status.code() == Code::kPeerLost && continues) return true;
  const bool is_io = status.code() == Code::kCheckpointIo;
  const bool is_corrupt = status.code() == Code::kCheckpointCorrupt;
  if ((is_io || is_corrupt) && status.file() == nullptr) {
    job_->book->Violation("error: " + call + " has no file: " + status.text());
  }
  const bool lacks_thread = status.code() == Code::kMemory && job_->refused_threads > 0;
  if (is_io && !job_->IsFailureOfDisk(status)) {
    job_->book->Violation("error: " + call +
                          " names a call of the disk that has not failed: " + status.text());
  }
  const bool may_fail = is_io || lacks_thread || (is_corrupt && job_->is_flipped);
  if (may_fail) return true;
  Leave(call, status);
  return false;
}

void StoryRank::PlanFault(const Step& step) {
  const int process = job_->first_process + rank_;
  const uint64_t point = PointsOf(process) + static_cast<uint64_t>(step.Get("points"));
  if (step.call == "kill") KillAt(process, point);
  if (step.call == "refuse") {
    ++job_->refused_threads;
    RefuseThread(process, static_cast<int>(step.Get("thread")));
  }
  if (step.call == "suspend") SuspendAt(process, point, step.Get("ms") * 1'000'000);
}

bool StoryRank::Make(const Step& step) {
  if (step.call == "add") return Add(step);
  if (step.call == "save") return Save(step);
  if (step.call == "wait") return Wait();
  if (step.call == "load") return Load(step);
  if (step.call == "publish") return Publish(step);
  if (step.call == "barrier") return Goes("barrier", session_->Barrier());
  PlanFault(step);
  return true;
}

bool StoryRank::Add(const Step& step) {
  const int table = static_cast<int>(step.Get("table")) % kStoryTables;
  // In rounds, every rank makes the add, with a value of its own.
  const int64_t value = 1 + (step.Get("value") + 7 * rank_) % 200;
  std::vector<int64_t> ids;
  for (const int64_t id : step.ids) {
    if (table == 0 && id < StoryRows(*job_, 0)) ids.push_back(id);
  }
  std::vector<int64_t> named;  // the rows or keys of the request
  std::vector<double> wide;
  std::vector<float> narrow;
  Request request;
  if (table == 0) {
    for (const int64_t row : ids) {
      for (int64_t column = 0; column < kMatrixColumns; ++column) {
        wide.push_back(static_cast<double>(value * Book::WeightOf(row * kMatrixColumns + column)));
      }
    }
    const bool has_keys = job_->kind() == StoryJob::kKeys;
    for (int64_t i = 0; ids.empty() && i < StoryRows(*job_, 0) * kMatrixColumns; ++i) {
      wide.push_back(static_cast<double>(value * Book::WeightOf(i)));
    }
    named = ids;
    for (int64_t row = 0; has_keys && ids.empty() && row < StoryRows(*job_, 0); ++row) {
      named.push_back(row);
    }
    for (int64_t& id : named) id = has_keys ? StoryKey(id) : id;
    const RequestKind kind = has_keys        ? RequestKind::kAddKeys
                             : named.empty() ? RequestKind::kAdd
                                             : RequestKind::kAddRows;
    request =
        Request::Of(kind, named.data(), static_cast<int64_t>(named.size()), wide.data(), nullptr);
  } else {
    for (int64_t i = 0; i < kArrayElements; ++i) {
      narrow.push_back(static_cast<float>(value * Book::WeightOf(i)));
    }
    request = Request::Add(narrow.data());
  }
  job_->book->AddBegan(rank_, table, ids, value);
  const Status status = Run(tables_[static_cast<size_t>(table)], request);
  job_->book->AddEnded(rank_, status.ok());
  if (status.ok()) return true;
  Leave("add", status);
  return false;
}

bool StoryRank::Save(const Step& step) {
  AgreedCall call;
  call.folder = kStoryFolder;
  call.step = step.Get("step");
  call.keep = step.Get("keep");
  call.incremental = step.Get("incremental") != 0;
  call.in_background = step.Get("background") != 0;
  // The save before, in the background, ends in this call, if not in a call of its own.
  if (session_->IsSaving() && !Wait()) return false;
  job_->book->SaveBegan(call.step, call.keep, call.in_background);
  const Status status = session_->Save(call);
  job_->book->SaveEnded(rank_, call.step, status);
  if (status.ok()) job_->has_saved = true;
  return Goes(step.Text(), status);
}

bool StoryRank::Wait() {
  const Status status = session_->SaveWait();
  job_->book->BackgroundEnded(rank_, status);
  return Goes("wait", status);
}

bool StoryRank::Load(const Step& step) {
  if (session_->IsSaving() && !Wait()) return false;
  AgreedCall call;
  call.folder = kStoryFolder;
  call.missing_ok = true;
  const Result<int64_t> loaded = session_->Load(call);
  if (loaded.ok()) job_->book->Loaded(rank_, loaded.value());
  if (!Goes(loaded.ok() ? StrCat(step.Text(), " = ", loaded.value()) : step.Text(),
            loaded.status())) {
    return false;
  }
  // All ranks receive these failures.
  is_half_loaded_ =
      !loaded.ok() && (job_->disk->failed_reads() > 0 || loaded.status().code() == Code::kPeerLost);
  return is_half_loaded_ || CheckTables("after a load");
}

bool StoryRank::Publish(const Step& step) {
  if (job_->options.Get("readers") < 0) return true;
  job_->book->PublishBegan(step.Get("step"));
  const Status status = session_->Publish(step.Get("step")).status();
  job_->book->PublishEnded(rank_, step.Get("step"), status);
  return Goes(step.Text(), status);
}

Status StoryRank::Read(int table, std::vector<double>* values) {
  const int64_t count = table == 0 ? StoryRows(*job_, 0) * kMatrixColumns : kArrayElements;
  values->resize(static_cast<size_t>(count));
  std::vector<int64_t> ids;
  if (table == 0) return Run(tables_[0], StoryGet(*job_, 0, &ids, values->data()));
  std::vector<float> narrow(static_cast<size_t>(count));
  const Status status = Run(tables_[1], Request::Get(narrow.data()));
  std::copy(narrow.begin(), narrow.end(), values->begin());
  return status;
}

bool StoryRank::CheckTables(const std::string& when) {
  // Nobody adds before all have looked.
  for (int table = 0; table < kStoryTables; ++table) {
    std::vector<double> values;
    const Status status = Read(table, &values);
    if (!status.ok()) {
      Leave("get", status);
      return false;
    }
    job_->book->CheckTable(StrCat("get: rank ", rank_, " ", when), table, values.data(), 0,
                           static_cast<int64_t>(values.size()));
  }
  return Goes("barrier", session_->Barrier());
}

void StoryRank::CheckHoldings() {
  tables_.clear();
  const Holdings held = HeldBy(CurrentRank());
  if (held.descriptors == 0 && held.mappings == 0 && held.threads == 0) return;
  job_->book->Violation(StrCat("left: after the session, worker ", rank_, " has ", held.descriptors,
                               " descriptors, ", held.mappings, " mappings and ", held.threads,
                               " threads"));
}

}  // namespace sim
