#include "checkpoint/save_job.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <utility>

#include "base/copy_bytes.h"
#include "base/crc.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "base/wait_lines.h"
#include "base/without_signals.h"
#include "checkpoint/data_file.h"
#include "checkpoint/reader.h"

namespace multiverso {
namespace {

// The intervals at which the rank that commits polls for the files of the other ranks.
constexpr auto kFirstPollInterval = std::chrono::milliseconds(1);
constexpr auto kMaxPollInterval = std::chrono::milliseconds(50);
// A write starts a thread, so the buffers have several blocks.
constexpr int64_t kBufferBytes = 8 * kBlockBytes;
// The time in which a complete file becomes visible on a file system of several machines.
constexpr auto kVisibleWithin = std::chrono::seconds(20);

}  // namespace

Result<std::unique_ptr<SaveJob>> SaveJob::Start(FileSystem* files, SavePlan plan,
                                                std::unique_ptr<BlockSource> source) {
  std::unique_ptr<SaveJob> job(new SaveJob(files, std::move(plan), std::move(source)));
  MV_ASSIGN_OR_RETURN(
      job->thread_, StartThread("the thread that writes", [saving = job.get()] { saving->Run(); }));
  return job;
}

SaveJob::~SaveJob() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

template <class Change>
void SaveJob::ChangeAndWake(Change change) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    change();
  }
  changed_.notify_all();
}

void SaveJob::Stop() {
  ChangeAndWake([this] { stop_.store(true); });
}

void SaveJob::NoteAllWritten() {
  ChangeAndWake([this] { all_written_ = true; });
}

Status SaveJob::AwaitWritten(const WaitLimit& limit) {
  return Await(&written_, &written_status_, limit);
}

Status SaveJob::AwaitCommitted(const WaitLimit& limit) {
  return Await(&committed_, &committed_status_, limit);
}

Status SaveJob::Await(const bool* done, const Status* status, const WaitLimit& limit) {
  std::unique_lock<std::mutex> guard(mutex_);
  while (!changed_.wait_until(guard, limit.NextCheck(Clock::now()), [&] { return *done; })) {
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(Code::kTimeout,
                    StrCat(plan_.saving, ": writing the checkpoint took too long", LimitAdvice()));
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
  }
  return *status;
}

void SaveJob::Run() {
  const auto finish = [this](bool* done, Status* status, const Status& result) {
    ChangeAndWake([&] {
      *done = true;
      *status = result;
    });
  };
  Status status;
  try {
    if (plan_.file_index >= 0) status = WriteFile();
  } catch (const std::exception& error) {
    status = Status(Code::kMemory, StrCat(plan_.saving, ": ", error.what()));
  }
  source_.reset();  // the source may own much memory
  finish(&written_, &written_status_, status);
  try {
    if (status.ok() && plan_.commits) status = CollectFiles();
    if (status.ok() && plan_.commits) status = Commit();
  } catch (const std::exception& error) {
    status = Status(Code::kMemory, StrCat(plan_.saving, ": ", error.what()));
  }
  finish(&committed_, &committed_status_, status);
  if (status.ok()) RemoveOld();
}

void SaveJob::RemoveOld() {
  try {
    CheckpointFolder(files_, plan_.folder).RemoveLeftovers(retired_);
  } catch (const std::exception& error) {
    LogWarning(StrCat("old checkpoints stay: ", error.what()));
  }
}

Status SaveJob::CheckMayContinue() const {
  if (stop_.load(std::memory_order_relaxed)) {
    return Status(Code::kAborted, StrCat(plan_.saving, ": the save was aborted"));
  }
  if (Clock::now() < plan_.deadline) return Status::Ok();
  return Status(Code::kTimeout,
                StrCat(plan_.saving, ": writing the checkpoint took too long", LimitAdvice()));
}

Status SaveJob::WriteFile() {
  DataHeader header;
  header.id = plan_.manifest.id;
  header.index = static_cast<uint32_t>(plan_.file_index);
  header.sections = plan_.sections;
  header.version = VersionOfData(plan_.manifest, header.sections);
  if (!LayOut(&header)) return Status(Code::kMemory, StrCat(plan_.saving, ": too large"));
  const std::string path = StrCat(plan_.saving, "/", DataFileName(header.index));
  const std::string partial_path = PartialName(path);
  MV_ASSIGN_OR_RETURN(auto file, files_->Create(partial_path));
  Status status = WriteData(file.get(), header);
  if (status.ok()) status = file->Sync();
  file.reset();
  if (status.ok()) status = files_->Rename(partial_path, path);
  // The removal of the partial file frees space on a full disk.
  if (!status.ok()) (void)files_->Remove(partial_path);
  return status;
}

Status SaveJob::WriteData(WritableFile* file, const DataHeader& header) {
  const std::string header_bytes = EncodeDataHeader(header);
  MV_RETURN_IF_NOT_OK(file->Write(header_bytes.data(), static_cast<int64_t>(header_bytes.size())));
  // One buffer is written, in a thread, while the other is filled.
  std::vector<char> buffers[2];
  for (auto& buffer : buffers) buffer.resize(static_cast<size_t>(kBufferBytes));
  int current = 0;
  int64_t filled = 0;
  std::vector<uint32_t> checksums;
  checksums.reserve(static_cast<size_t>(header.checksums) + 1);
  std::future<Status> written;  // its end waits for the thread
  const auto drain = [&] { return written.valid() ? written.get() : Status::Ok(); };
  const auto write = [&](const char* data, int64_t size) -> Status {
    MV_RETURN_IF_NOT_OK(drain());
    const WithoutSignals without_signals;
    // If no thread can be started, drain() writes.
    written = std::async(std::launch::async | std::launch::deferred,
                         [file, data, size] { return file->Write(data, size); });
    return Status::Ok();
  };
  for (size_t i = 0; i < header.sections.size(); ++i) {
    const Section& section = header.sections[i];
    for (int64_t at = 0; at < section.padded_bytes(); at += kBlockBytes) {
      MV_RETURN_IF_NOT_OK(CheckMayContinue());
      const int64_t bytes = std::min(kBlockBytes, section.bytes - at);
      const int64_t padded = std::min(kBlockBytes, section.padded_bytes() - at);
      if (filled + padded > kBufferBytes) {
        MV_RETURN_IF_NOT_OK(write(buffers[current].data(), filled));
        current = 1 - current;
        filled = 0;
      }
      char* const buffer = buffers[current].data() + filled;
      MV_ASSIGN_OR_RETURN(const auto fetched, source_->Fetch(i, at, bytes, buffer));
      const char* data = fetched;
      if (data != buffer && filled == 0 && padded == kBlockBytes && bytes == padded) {
        checksums.push_back(Crc32c(data, padded));
        MV_RETURN_IF_NOT_OK(write(data, padded));
        continue;
      }
      if (data != buffer) CopyBytes(buffer, data, static_cast<size_t>(bytes));
      std::memset(buffer + bytes, 0, static_cast<size_t>(padded - bytes));
      checksums.push_back(Crc32c(buffer, padded));
      filled += padded;
    }
  }
  if (filled > 0) MV_RETURN_IF_NOT_OK(write(buffers[current].data(), filled));
  MV_RETURN_IF_NOT_OK(drain());
  checksums.push_back(Crc32c(checksums.data(), header.checksums * 4));
  return file->Write(checksums.data(), static_cast<int64_t>(checksums.size()) * 4);
}

Status SaveJob::CollectFiles() {
  SavedFile own;
  own.id = plan_.manifest.id;
  own.number = plan_.manifest.number;
  std::vector<SavedFile>& saved = plan_.manifest.files;
  saved.insert(saved.begin(), plan_.num_files, own);
  for (uint32_t index = 0; index < plan_.num_files; ++index) saved[index].index = index;
  auto interval = kFirstPollInterval;
  Instant give_up = Instant::max();
  for (uint32_t index = 0; index < plan_.num_files;) {
    // why_never is asked before CollectFile: a rank may leave as soon as it has written its file.
    const Status never = plan_.why_never ? plan_.why_never(index) : Status::Ok();
    const Status status = CollectFile(index);
    if (status.ok()) {
      ++index;
      continue;
    }
    if (!status.pending()) return status;
    MV_RETURN_IF_NOT_OK(CheckMayContinue());
    MV_RETURN_IF_NOT_OK(never);
    const Instant now = Clock::now();
    std::unique_lock<std::mutex> guard(mutex_);
    if (all_written_ && give_up == Instant::max()) give_up = now + kVisibleWithin;
    if (now >= give_up) {
      return Status(Code::kCheckpointIo,
                    StrCat(plan_.saving, ": ", DataFileName(index),
                           " has been written but is not seen here: expected a folder on a file "
                           "system that all nodes share"),
                    FileFault{plan_.saving + "/" + DataFileName(index), ENOENT, 0});
    }
    const bool knew_all_written = all_written_;
    changed_.wait_for(guard, interval,
                      [&] { return stop_.load() || all_written_ != knew_all_written; });
    interval = std::min(interval * 2, decltype(interval)(kMaxPollInterval));
  }
  return Status::Ok();
}

Status SaveJob::CollectFile(uint32_t index) {
  const std::string path = StrCat(plan_.saving, "/", DataFileName(index));
  MV_ASSIGN_OR_RETURN(const auto kind, files_->KindOf(path));
  if (kind == EntryKind::kNone) return Status::Pending();
  MV_ASSIGN_OR_RETURN(const auto file, files_->Open(path));
  SavedFile& saved = plan_.manifest.files[index];
  saved.bytes = file->bytes();
  std::string header(static_cast<size_t>(kDataPreludeBytes), '\0');
  MV_RETURN_IF_NOT_OK(file->Read(0, header.data(), kDataPreludeBytes));
  MV_ASSIGN_OR_RETURN(const int64_t bytes, HeaderBytesOf(header, saved.bytes, path));
  header.resize(static_cast<size_t>(bytes));
  MV_RETURN_IF_NOT_OK(file->Read(0, header.data(), bytes));
  saved.header_crc = HeaderCrcOf(header);
  return DecodeDataHeader(header, saved.bytes, plan_.manifest, index, path).status();
}

Status SaveJob::Commit() {
  const std::string bytes = EncodeManifest(plan_.manifest);
  {
    MV_ASSIGN_OR_RETURN(auto file, files_->Create(ManifestPath(plan_.saving)));
    MV_RETURN_IF_NOT_OK(file->Write(bytes.data(), static_cast<int64_t>(bytes.size())));
    MV_RETURN_IF_NOT_OK(file->Sync());
  }
  MV_RETURN_IF_NOT_OK(CheckMayContinue());
  CheckpointFolder folder(files_, plan_.folder);
  MV_RETURN_IF_NOT_OK(folder.Commit(plan_.saving, plan_.name));
  if (plan_.keep > 0) {
    const Status retired = folder.Retire(plan_.keep, &retired_);
    // A failure to remove old checkpoints does not affect the new checkpoint.
    if (!retired.ok()) LogWarning(StrCat("old checkpoints stay: ", retired.text()));
  }
  return Status::Ok();
}

}  // namespace multiverso
