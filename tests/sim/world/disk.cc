#include "world/disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/scheduler.h"

namespace sim {

using multiverso::EntryKind;
using multiverso::IoFailure;
using multiverso::ReadableFile;
using multiverso::Result;
using multiverso::Status;
using multiverso::WritableFile;

struct Disk::Node {
  bool is_folder = false;
  std::string bytes;
  std::string safe_bytes;                // what a power failure leaves for certain
  std::vector<UnsyncedWrite> unsynced;   // after safe_bytes, in order
  std::map<std::string, Entry> entries;  // of a folder
  std::map<std::string, Entry> safe_entries;
  std::vector<Change> changes;  // after safe_entries, in order
};

namespace {

// A write becomes visible in pieces of this size, between which its process may be killed.
constexpr int64_t kPieceBytes = 1 << 16;

bool Chance(uint64_t of) { return Random() % of == 0; }

std::vector<std::string> NamesOf(const std::string& path) {
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) names.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace

class DiskFile final : public WritableFile {
 public:
  DiskFile(Disk* disk, int node, std::string path, Disk::Entry file)
      : disk_(disk), node_(node), path_(std::move(path)), file_(std::move(file)) {}

  Status Write(const void* data, int64_t bytes) override {
    int error_number = disk_->BeginChange();
    const char* next = static_cast<const char*>(data);
    // A call that fails may have written a part.
    int64_t left =
        error_number == 0 ? bytes : static_cast<int64_t>(Random() % static_cast<uint64_t>(bytes));
    const int64_t room = disk_->faults_.capacity - disk_->UsedBytes();
    if (left > room) {
      left = std::max<int64_t>(room, 0);
      error_number = ENOSPC;
      ++disk_->failures_;
    }
    while (left > 0 && disk_->cut_off_.count(CurrentRank()) == 0) {
      const int64_t piece = std::min(left, kPieceBytes);
      {
        const Quiet quiet;
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
    const int error_number = disk_->BeginChange();
    if (error_number != 0) return IoFailure(path_, "sync", error_number, written_);
    const Quiet quiet;
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

namespace {

class OpenDiskFile final : public ReadableFile {
 public:
  OpenDiskFile(std::string path, const std::string* bytes, std::shared_ptr<void> keeps)
      : path_(std::move(path)),
        bytes_(bytes),
        size_(static_cast<int64_t>(bytes->size())),
        keeps_(std::move(keeps)) {}
  const std::string& path() const override { return path_; }
  int64_t bytes() const override { return size_; }
  Status Read(int64_t offset, void* out, int64_t bytes) override {
    Cost(20);
    if (offset + bytes > static_cast<int64_t>(bytes_->size())) {
      return multiverso::CorruptionFailure(path_, static_cast<int64_t>(bytes_->size()),
                                           "the file ends here");
    }
    std::memcpy(out, bytes_->data() + offset, static_cast<size_t>(bytes));
    return Status::Ok();
  }

 private:
  std::string path_;
  const std::string* bytes_;
  int64_t size_;
  std::shared_ptr<void> keeps_;
};

}  // namespace

class DiskView final : public multiverso::FileSystem {
 public:
  DiskView(Disk* disk, int node) : disk_(disk), node_(node) {}

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    auto file = std::make_shared<Disk::Node>();
    MV_RETURN_IF_NOT_OK(Add(path, file, "create"));
    return std::unique_ptr<WritableFile>(std::make_unique<DiskFile>(disk_, node_, path, file));
  }
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    disk_->TakeTime();
    const Quiet quiet;
    const Disk::Entry found = disk_->Find(path);
    if (found == nullptr) return IoFailure(path, "open", ENOENT);
    if (found->is_folder) return IoFailure(path, "read", EISDIR);
    return std::unique_ptr<ReadableFile>(
        std::make_unique<OpenDiskFile>(path, &found->bytes, found));
  }
  Result<EntryKind> KindOf(const std::string& path) override {
    disk_->TakeTime();
    const Quiet quiet;
    const Disk::Entry found = disk_->Find(path);
    if (found == nullptr) return EntryKind::kNone;
    return found->is_folder ? EntryKind::kFolder : EntryKind::kFile;
  }
  Result<std::vector<std::string>> List(const std::string& path) override {
    disk_->TakeTime();
    const Quiet quiet;
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
    for (const std::string& name : NamesOf(path)) {
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
    return Add(path, folder, "make folder");
  }
  Status Rename(const std::string& from, const std::string& to) override {
    const int error_number = disk_->BeginChange();
    if (error_number != 0) return IoFailure(to, "rename to", error_number);
    const Quiet quiet;
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
      const Quiet quiet;
      file = disk_->Find(from);
    }
    if (file == nullptr) return IoFailure(to, "link", ENOENT);
    return Add(to, file, "link");
  }
  Status SyncFolder(const std::string& path) override {
    const int error_number = disk_->BeginChange();
    if (error_number != 0) {
      // What is not safe is not removed.
      ++disk_->failed_removals_;
      return IoFailure(path, "sync", error_number);
    }
    const Quiet quiet;
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
  Status Add(const std::string& path, const Disk::Entry& entry, const char* action) {
    const int error_number = disk_->BeginChange();
    if (error_number != 0) return IoFailure(path, action, error_number);
    const Quiet quiet;
    std::string name;
    const Disk::Entry folder = disk_->FolderOf(path, &name);
    if (folder == nullptr) return IoFailure(path, action, ENOENT);
    if (folder->entries.count(name) != 0) return IoFailure(path, action, EEXIST);
    Disk::MakeChange(folder.get(), {"", name, entry});
    return Status::Ok();
  }
  Status RemoveEntry(const std::string& path, bool may_be_gone) {
    const int error_number = disk_->BeginChange();
    if (error_number != 0) {
      ++disk_->failed_removals_;
      return IoFailure(path, "remove", error_number);
    }
    const Quiet quiet;
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

Disk::Disk() : root_(std::make_shared<Node>()) { root_->is_folder = true; }
Disk::~Disk() = default;

multiverso::FileSystem* Disk::OnNode(int node) {
  auto& view = views_[node];
  if (view == nullptr) view = std::make_unique<DiskView>(this, node);
  return view.get();
}

void Disk::SetFaults(const DiskFaults& faults) {
  faults_ = faults;
  changes_ = failures_ = failed_removals_ = 0;
}

void Disk::TakeTime() const {
  Cost(20);
  if (faults_.slow_ns == 0) return;
  // Mostly short, sometimes long.
  const auto span = static_cast<uint64_t>(Chance(16) ? faults_.slow_ns : faults_.slow_ns / 64 + 1);
  SleepUntil(Now() + static_cast<int64_t>(Random() % span));
}

int Disk::BeginChange() {
  TakeTime();
  const int64_t number = changes_++;
  const auto event = faults_.at.find(number);
  if (event != faults_.at.end()) event->second();
  if (cut_off_.count(CurrentRank()) != 0) return EIO;
  if (faults_.fail_at < 0 || number < faults_.fail_at || number >= faults_.fail_at + faults_.count) {
    return 0;
  }
  ++failures_;
  return faults_.error_number;
}

Disk::Entry Disk::Find(const std::string& path) const {
  Entry entry = root_;
  for (const std::string& name : NamesOf(path)) {
    const auto found = entry->entries.find(name);
    if (found == entry->entries.end()) return nullptr;
    entry = found->second;
  }
  return entry;
}

Disk::Entry Disk::FolderOf(const std::string& path, std::string* name) const {
  const size_t slash = path.rfind('/');
  *name = path.substr(slash + 1);
  const Entry folder = Find(path.substr(0, slash));
  return folder != nullptr && folder->is_folder ? folder : nullptr;
}

void Disk::Apply(std::map<std::string, Entry>* entries, const Change& change) {
  if (!change.removed.empty()) entries->erase(change.removed);
  if (!change.added.empty()) (*entries)[change.added] = change.entry;
}

void Disk::MakeChange(Node* folder, Change change) {
  Apply(&folder->entries, change);
  folder->changes.push_back(std::move(change));
}

void Disk::LoseBytes(Node* file, int node) {
  if (file->unsynced.empty()) return;
  std::string kept = file->safe_bytes;
  const size_t survivors = Random() % (file->unsynced.size() + 1);
  for (size_t i = 0; i < file->unsynced.size(); ++i) {
    const UnsyncedWrite& write = file->unsynced[i];
    const bool is_lost = (node < 0 || write.node == node) && i >= survivors;
    std::string part = file->bytes.substr(static_cast<size_t>(write.offset),
                                          static_cast<size_t>(write.bytes));
    if (is_lost) {
      // The write in the middle of which the power failed is torn, and so is what followed: the
      // file has its size, and zeros in the place of its bytes.
      const size_t torn = Random() % (part.size() + 1);
      if (Chance(2)) {
        kept += part.substr(0, torn);
        break;
      }
      std::fill(part.begin() + static_cast<ptrdiff_t>(torn), part.end(), '\0');
    }
    kept += part;
  }
  file->bytes = kept;
  file->safe_bytes = kept;
  file->unsynced.clear();
}

void Disk::LoseNames(Node* folder) {
  std::map<std::string, Entry> kept = folder->safe_entries;
  const bool in_order = Chance(2);
  const size_t survivors = Random() % (folder->changes.size() + 1);
  for (size_t i = 0; i < folder->changes.size(); ++i) {
    if (in_order ? i < survivors : Chance(2)) Apply(&kept, folder->changes[i]);
  }
  folder->entries = kept;
  folder->safe_entries = kept;
  folder->changes.clear();
  for (auto& [name, entry] : folder->entries) {
    if (entry->is_folder) LoseNames(entry.get());
  }
}

void Disk::ForEachFile(const Entry& entry, const std::string& path,
                       std::vector<std::pair<std::string, Entry>>* files) const {
  for (const auto& [name, child] : entry->entries) {
    files->emplace_back(path + "/" + name, child);
    if (child->is_folder) ForEachFile(child, path + "/" + name, files);
  }
}

void Disk::LosePowerOf(int node) {
  std::vector<std::pair<std::string, Entry>> files;
  ForEachFile(root_, "", &files);
  for (auto& [path, file] : files) LoseBytes(file.get(), node);
}

void Disk::LosePower() {
  // Names that were removed may come back, so their files lose their bytes too.
  LoseNames(root_.get());
  LosePowerOf(-1);
}

std::string Disk::FlipABit(const std::string& folder) {
  std::vector<std::pair<std::string, Entry>> files;
  const Entry start = Find(folder);
  if (start != nullptr) ForEachFile(start, folder, &files);
  files.erase(std::remove_if(files.begin(), files.end(),
                             [](const auto& file) { return file.second->bytes.empty(); }),
              files.end());
  if (files.empty()) return "";
  const auto& [path, file] = files[Random() % files.size()];
  flipped_ = file;
  flipped_at_ = Random() % file->bytes.size();
  flipped_byte_ = file->bytes[flipped_at_];
  file->bytes[flipped_at_] = static_cast<char>(flipped_byte_ ^ (1 << (Random() % 8)));
  return path;
}

void Disk::UndoFlip() {
  if (flipped_ != nullptr) flipped_->bytes[flipped_at_] = flipped_byte_;
  flipped_ = nullptr;
}

std::vector<std::string> Disk::PathsBelow(const std::string& folder) const {
  std::vector<std::pair<std::string, Entry>> files;
  const Entry start = Find(folder);
  if (start != nullptr) ForEachFile(start, folder, &files);
  std::vector<std::string> paths;
  for (const auto& [path, file] : files) paths.push_back(path);
  return paths;
}

int64_t Disk::UsedBytes() const {
  std::vector<std::pair<std::string, Entry>> files;
  ForEachFile(root_, "", &files);
  std::set<const Node*> counted;
  int64_t bytes = 0;
  for (const auto& [path, file] : files) {
    if (counted.insert(file.get()).second) bytes += static_cast<int64_t>(file->bytes.size());
  }
  return bytes;
}

}  // namespace sim
