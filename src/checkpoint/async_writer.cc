#include "checkpoint/async_writer.h"

#include <system_error>

#include "base/without_signals.h"

namespace multiverso {

AsyncWriter::AsyncWriter(WritableFile* file) : file_(file) {
  const WithoutSignals without_signals;
  try {
    thread_ = std::thread(&AsyncWriter::Run, this);
  } catch (const std::system_error&) {
    // Without a thread, Write writes in the caller's thread, which only takes longer.
  }
}

AsyncWriter::~AsyncWriter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status AsyncWriter::Write(const char* data, int64_t bytes) {
  if (!thread_.joinable()) return file_->Write(data, bytes);
  MV_RETURN_IF_NOT_OK(Drain());
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    data_ = data;
    bytes_ = bytes;
  }
  changed_.notify_all();
  return Status::Ok();
}

Status AsyncWriter::Drain() {
  std::unique_lock<std::mutex> guard(mutex_);
  changed_.wait(guard, [this] { return data_ == nullptr; });
  return status_;
}

void AsyncWriter::Run() {
  std::unique_lock<std::mutex> guard(mutex_);
  while (true) {
    changed_.wait(guard, [this] { return data_ != nullptr || stops_; });
    if (data_ == nullptr) return;
    const char* const data = data_;
    const int64_t bytes = bytes_;
    guard.unlock();
    const Status status = file_->Write(data, bytes);
    guard.lock();
    status_ = status;
    data_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace multiverso
