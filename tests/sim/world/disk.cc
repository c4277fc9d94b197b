#include "world/disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/scheduler.h"

namespace sim {

namespace {

bool Chance(uint64_t of) { return Random() % of == 0; }

}  // namespace

std::vector<std::string> Disk::NamesOf(const std::string& path) {
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) names.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

Disk::Disk() : root_(std::make_shared<Node>()) { root_->is_folder = true; }
Disk::~Disk() = default;

Disk::Entry Disk::CopyOf(const Entry& entry, std::map<const Node*, Entry>* copies) {
  if (entry == nullptr) return nullptr;
  Entry& copy = (*copies)[entry.get()];
  if (copy != nullptr) return copy;
  copy = std::make_shared<Node>(*entry);
  const Entry made = copy;
  for (auto& [name, child] : made->entries) child = CopyOf(child, copies);
  for (auto& [name, child] : made->safe_entries) child = CopyOf(child, copies);
  for (Change& change : made->changes) change.entry = CopyOf(change.entry, copies);
  return made;
}

void Disk::CopyFrom(const Disk& other) {
  std::map<const Node*, Entry> copies;
  root_ = CopyOf(other.root_, &copies);
}

void Disk::SetFaults(const DiskFaults& faults) {
  faults_ = faults;
  calls_.clear();
  failed_.clear();
  failures_ = failed_removals_ = failed_reads_ = 0;
}

void Disk::TakeTime() const {
  Cost(20);
  if (faults_.slow_ns == 0) return;
  // Mostly short, sometimes long.
  const auto span = static_cast<uint64_t>(Chance(16) ? faults_.slow_ns : faults_.slow_ns / 64 + 1);
  SleepUntil(Now() + static_cast<int64_t>(Random() % span));
}

bool Disk::MustFail(DiskCall kind) const {
  const auto& [fails, first] = faults_.fail_at;
  if (fails != kind && (fails != DiskCall::kChange || kind == DiskCall::kRead)) return false;
  const int64_t since = calls_.at(fails) - 1 - first;
  if (first < 0 || since < 0) return false;
  return (faults_.every > 0 ? since % faults_.every : since) < faults_.count;
}

void Disk::NoteFailure(const std::string& path, int error_number) {
  const Quiet is_quiet;
  ++failures_;
  failed_.insert({path, error_number});
}

int Disk::Begin(DiskCall kind, const std::string& path) {
  TakeTime();
  std::vector<std::function<void()>> events;
  bool fails = false;
  {
    const Quiet is_quiet;
    if (kind != DiskCall::kRead && before_changes_) before_changes_();
    std::vector<DiskFaults::At> numbers = {{kind, calls_[kind]++}};
    if (kind != DiskCall::kRead)
      numbers.emplace_back(DiskCall::kChange, calls_[DiskCall::kChange]++);
    fails = MustFail(kind);
    for (const DiskFaults::At& number : numbers) {
      const auto event = faults_.at.find(number);
      if (event != faults_.at.end()) events.push_back(event->second);
    }
  }
  for (const auto& event : events) event();
  if (cut_off_.count(CurrentRank()) != 0) return EIO;
  if (!fails) return 0;
  // A process may read the folders in which it makes something.
  const bool may_read = kind == DiskCall::kSyncFolder && faults_.error_number == EACCES;
  const int error_number = may_read ? EIO : faults_.error_number;
  NoteFailure(path, error_number);
  if (kind == DiskCall::kRead) ++failed_reads_;
  // What is not safe is not removed.
  if (kind == DiskCall::kRemove || kind == DiskCall::kSyncFolder) ++failed_removals_;
  return error_number;
}

Disk::Entry Disk::Find(const std::string& path) const {
  Entry entry = root_;
  for (const std::string& name : Disk::NamesOf(path)) {
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
    std::string part =
        file->bytes.substr(static_cast<size_t>(write.offset), static_cast<size_t>(write.bytes));
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
