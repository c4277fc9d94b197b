// MemoryFiles: a file system in memory that holds the files of one checkpoint.
#pragma once

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_system.h"
#include "target.h"

namespace multiverso::fuzz {

class MemoryFiles final : public FileSystem {
 public:
  // Returns nullptr if the file does not exist.
  std::string* Find(const std::string& path) {
    const auto found = files_.find(path);
    return found == files_.end() ? nullptr : &found->second;
  }
  const std::string* Find(const std::string& path) const {
    const auto found = files_.find(path);
    return found == files_.end() ? nullptr : &found->second;
  }

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return std::unique_ptr<WritableFile>(std::make_unique<Writable>(&files_[path]));
  }
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    const std::string* const bytes = Find(path);
    if (bytes == nullptr) return IoFailure(path, "open", ENOENT);
    return std::unique_ptr<ReadableFile>(std::make_unique<Readable>(path, bytes));
  }
  Result<EntryKind> KindOf(const std::string& path) override {
    return Find(path) == nullptr ? EntryKind::kNone : EntryKind::kFile;
  }
  Result<std::vector<std::string>> List(const std::string& /*path*/) override {
    return std::vector<std::string>();
  }
  Status EnsureFolders(const std::string& /*path*/) override { return Status::Ok(); }
  Status CreateFolder(const std::string& /*path*/) override { return Status::Ok(); }
  // Renames a file, or a folder with its files.
  Status Rename(const std::string& from, const std::string& to) override {
    std::map<std::string, std::string> renamed;
    for (auto& [path, bytes] : files_) {
      const bool moves = path == from || path.rfind(from + "/", 0) == 0;
      renamed[moves ? to + path.substr(from.size()) : path] = std::move(bytes);
    }
    files_ = std::move(renamed);
    return Status::Ok();
  }
  Status Link(const std::string& from, const std::string& to) override {
    files_[to] = files_[from];
    return Status::Ok();
  }
  Status SyncFolder(const std::string& /*path*/) override { return Status::Ok(); }
  Status Remove(const std::string& path) override {
    files_.erase(path);
    return Status::Ok();
  }
  Status RemoveFolder(const std::string& /*path*/,
                      bool (* /*may_remove*/)(const std::string&)) override {
    return Status::Ok();
  }

 private:
  class Writable final : public WritableFile {
   public:
    explicit Writable(std::string* bytes) : bytes_(bytes) {}
    Status Write(const void* data, int64_t bytes) override {
      bytes_->append(static_cast<const char*>(data), static_cast<size_t>(bytes));
      return Status::Ok();
    }
    Status Sync() override { return Status::Ok(); }

   private:
    std::string* bytes_;
  };

  class Readable final : public ReadableFile {
   public:
    Readable(std::string path, const std::string* bytes) : path_(std::move(path)), bytes_(bytes) {}
    const std::string& path() const override { return path_; }
    int64_t bytes() const override { return static_cast<int64_t>(bytes_->size()); }
    Status Read(int64_t offset, void* out, int64_t count) override {
      Require(offset >= 0 && count >= 0 && count <= bytes() && offset <= bytes() - count,
              "reads within the file", std::to_string(count) + " at " + std::to_string(offset));
      std::memcpy(out, bytes_->data() + offset, static_cast<size_t>(count));
      return Status::Ok();
    }

   private:
    std::string path_;
    const std::string* bytes_;
  };

  std::map<std::string, std::string> files_;
};

}  // namespace multiverso::fuzz
