// The files of the simulated disk, as the processes of a node see them.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/scheduler.h"
#include "world/disk.h"

namespace sim {

using multiverso::EntryKind;
using multiverso::IoFailure;
using multiverso::ReadableFile;
using multiverso::Result;
using multiverso::Status;
using multiverso::WritableFile;

namespace {

// A write becomes visible in pieces of this size, between which its process may be killed.
constexpr int64_t kPieceBytes = 1 << 16;

}  // namespace

class DiskFile final : public WritableFile {
 public:
  DiskFile(Disk* disk, int node, std::string path, Disk::Entry file)
      : disk_(disk), node_(node), path_(std::move(path)), file_(std::move(file)) {}

  Status Write(const void* data, int64_t bytes) override {
    int error_number = disk_->Begin(DiskCall::kWrite, path_);
    const char* next = static_cast<const char*>(data);
    // A call that fails may have written a part.
    int64_t left =
        error_number == 0 ? bytes : static_cast<int64_t>(Random() % static_cast<uint64_t>(bytes));
    const int64_t room = disk_->faults_.capacity - disk_->UsedBytes();
    if (left > room) {
      left = std::max<int64_t>(room, 0);
      error_number = ENOSPC;
      disk_->NoteFailure(path_, ENOSPC);
    }
    while (left > 0 && disk_->cut_off_.count(CurrentRank()) == 0) {
      const int64_t piece = std::min(left, kPieceBytes);
      {
        const Quiet is_quiet;
        file_->unsynced.push_back({static_cast<int64_t>(file_->bytes.size()), piece, node_});
        file_->bytes.append(next, static_cast<size_t>(piece));
      }
      next += piece;
      left -= piece;
      written_ += piece;
      // Between two pieces the process may end.
      disk_->TakeTime();
    }
    return error_number == 0 ? Status::Ok() : IoFailure(path_, "write", error_number, written_);
  }

  Status Sync() override {
    const int error_number = disk_->Begin(DiskCall::kSync, path_);
    if (error_number != 0) return IoFailure(path_, "sync", error_number, written_);
    const Quiet is_quiet;
    file_->safe_bytes = file_->bytes;
    file_->unsynced.clear();
    return Status::Ok();
  }

 private:
  Disk* disk_;
  int node_;
  std::string path_;
  Disk::Entry file_;
  int64_t written_ = 0;
};

class OpenDiskFile final : public ReadableFile {
 public:
  OpenDiskFile(Disk* disk, std::string path, const std::string* bytes, std::shared_ptr<void> keeps)
      : disk_(disk),
        path_(std::move(path)),
        bytes_(bytes),
        size_(static_cast<int64_t>(bytes->size())),
        keeps_(std::move(keeps)) {}
  const std::string& path() const override { return path_; }
  int64_t bytes() const override { return size_; }
  Status Read(int64_t offset, void* out, int64_t bytes) override {
    const int error_number = disk_->Begin(DiskCall::kRead, path_);
    if (error_number != 0) return IoFailure(path_, "read", error_number);
    if (offset + bytes > static_cast<int64_t>(bytes_->size())) {
      return multiverso::CorruptionFailure(path_, static_cast<int64_t>(bytes_->size()),
                                           "the file ends here");
    }
    std::memcpy(out, bytes_->data() + offset, static_cast<size_t>(bytes));
    return Status::Ok();
  }

 private:
  Disk* disk_;
  std::string path_;
  const std::string* bytes_;
  int64_t size_;
  std::shared_ptr<void> keeps_;
};

class DiskView final : public multiverso::FileSystem {
 public:
  DiskView(Disk* disk, int node) : disk_(disk), node_(node) {}

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    auto file = std::make_shared<Disk::Node>();
    MV_RETURN_IF_NOT_OK(Add(path, file, DiskCall::kCreate, "create"));
    return std::unique_ptr<WritableFile>(std::make_unique<DiskFile>(disk_, node_, path, file));
  }
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    const int error_number = disk_->Begin(DiskCall::kRead, path);
    if (error_number != 0) return IoFailure(path, "open", error_number);
    const Quiet is_quiet;
    const Disk::Entry found = disk_->Find(path);
    if (found == nullptr) return IoFailure(path, "open", ENOENT);
    if (found->is_folder) return IoFailure(path, "read", EISDIR);
    return std::unique_ptr<ReadableFile>(
        std::make_unique<OpenDiskFile>(disk_, path, &found->bytes, found));
  }
  Result<EntryKind> KindOf(const std::string& path) override {
    disk_->TakeTime();
    const Quiet is_quiet;
    const Disk::Entry found = disk_->Find(path);
    if (found == nullptr) return EntryKind::kNone;
    return found->is_folder ? EntryKind::kFolder : EntryKind::kFile;
  }
  Result<std::vector<std::string>> List(const std::string& path) override {
    disk_->TakeTime();
    const Quiet is_quiet;
    const Disk::Entry found = disk_->Find(path);
    if (found == nullptr || !found->is_folder) {
      return IoFailure(path, "list", found == nullptr ? ENOENT : ENOTDIR);
    }
    std::vector<std::string> names;
    for (const auto& [name, entry] : found->entries) names.push_back(name);
    // The order is any.
    for (size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[Random() % i]);
    return names;
  }
  Status EnsureFolders(const std::string& path) override {
    std::string part;
    for (const std::string& name : Disk::NamesOf(path)) {
      part += "/" + name;
      MV_ASSIGN_OR_RETURN(const EntryKind kind, KindOf(part));
      if (kind == EntryKind::kNone) {
        const Status made = CreateFolder(part);
        // Another process may have made it meanwhile.
        const bool exists = !made.ok() && made.file()->error_number == EEXIST;
        if (!made.ok() && !exists) return made;
      } else if (kind != EntryKind::kFolder) {
        return IoFailure(part, "make folder", ENOTDIR);
      }
    }
    return Status::Ok();
  }
  Status CreateFolder(const std::string& path) override {
    auto folder = std::make_shared<Disk::Node>();
    folder->is_folder = true;
    return Add(path, folder, DiskCall::kCreate, "make folder");
  }
  Status Rename(const std::string& from, const std::string& to) override {
    const int error_number = disk_->Begin(DiskCall::kRename, to);
    if (error_number != 0) return IoFailure(to, "rename to", error_number);
    const Quiet is_quiet;
    std::string old_name;
    std::string new_name;
    const Disk::Entry folder = disk_->FolderOf(from, &old_name);
    const Disk::Entry target = disk_->FolderOf(to, &new_name);
    if (folder == nullptr || target == nullptr || folder->entries.count(old_name) == 0) {
      return IoFailure(to, "rename to", ENOENT);
    }
    const Disk::Entry entry = folder->entries[old_name];
    const auto there = target->entries.find(new_name);
    if (there != target->entries.end() && there->second->is_folder &&
        !there->second->entries.empty()) {
      return IoFailure(to, "rename to", ENOTEMPTY);
    }
    if (folder == target) {
      Disk::MakeChange(folder.get(), {old_name, new_name, entry});
    } else {
      Disk::MakeChange(target.get(), {"", new_name, entry});
      Disk::MakeChange(folder.get(), {old_name, "", nullptr});
    }
    return Status::Ok();
  }
  Status Link(const std::string& from, const std::string& to) override {
    Disk::Entry file;
    {
      const Quiet is_quiet;
      file = disk_->Find(from);
    }
    if (file == nullptr) return IoFailure(to, "link", ENOENT);
    return Add(to, file, DiskCall::kLink, "link");
  }
  Status SyncFolder(const std::string& path) override {
    const int error_number = disk_->Begin(DiskCall::kSyncFolder, path);
    if (error_number != 0) return IoFailure(path, "sync", error_number);
    const Quiet is_quiet;
    const Disk::Entry folder = disk_->Find(path);
    if (folder == nullptr) return IoFailure(path, "open", ENOENT);
    folder->safe_entries = folder->entries;
    folder->changes.clear();
    return Status::Ok();
  }
  Status Remove(const std::string& path) override { return RemoveEntry(path, false); }
  Status RemoveFolder(const std::string& path,
                      bool (*may_remove)(const std::string& name)) override {
    MV_ASSIGN_OR_RETURN(const EntryKind kind, KindOf(path));
    if (kind == EntryKind::kNone) return Status::Ok();
    MV_ASSIGN_OR_RETURN(const auto names, List(path));
    Status status;
    for (const std::string& name : names) {
      const Status removed = may_remove(name) ? RemoveEntry(path + "/" + name, true)
                                              : multiverso::ForeignEntryFailure(path, name);
      if (status.ok()) status = removed;
    }
    return status.ok() ? RemoveEntry(path, true) : status;
  }

 private:
  Status Add(const std::string& path, const Disk::Entry& entry, DiskCall kind, const char* action) {
    const int error_number = disk_->Begin(kind, path);
    if (error_number != 0) return IoFailure(path, action, error_number);
    const Quiet is_quiet;
    std::string name;
    const Disk::Entry folder = disk_->FolderOf(path, &name);
    if (folder == nullptr) return IoFailure(path, action, ENOENT);
    if (folder->entries.count(name) != 0) return IoFailure(path, action, EEXIST);
    Disk::MakeChange(folder.get(), {"", name, entry});
    return Status::Ok();
  }
  Status RemoveEntry(const std::string& path, bool may_be_gone) {
    const int error_number = disk_->Begin(DiskCall::kRemove, path);
    if (error_number != 0) return IoFailure(path, "remove", error_number);
    const Quiet is_quiet;
    std::string name;
    const Disk::Entry folder = disk_->FolderOf(path, &name);
    const auto found = folder == nullptr ? std::map<std::string, Disk::Entry>::iterator()
                                         : folder->entries.find(name);
    if (folder == nullptr || found == folder->entries.end()) {
      return may_be_gone ? Status::Ok() : IoFailure(path, "remove", ENOENT);
    }
    if (!found->second->entries.empty()) return IoFailure(path, "remove", ENOTEMPTY);
    Disk::MakeChange(folder.get(), {name, "", nullptr});
    return Status::Ok();
  }

  Disk* disk_;
  int node_;
};

multiverso::FileSystem* Disk::OnNode(int node) {
  auto& view = views_[node];
  if (view == nullptr) view = std::make_unique<DiskView>(this, node);
  return view.get();
}

}  // namespace sim
