// The simulated disk: a FileSystem in memory that keeps its promises to the letter and no more.
//
// A disk outlives the jobs that use it, and all nodes see the same files, as on a file system that
// a cluster shares. What a process has written is seen by all at once, but is safe only after a
// sync: the bytes of a file after WritableFile::Sync, the names in a folder after SyncFolder. A
// killed process loses nothing that it has written. A node that loses its power loses the bytes
// that it has not synced, and a power failure of everything also loses names. What is lost is drawn
// from the seed: any part of the unsynced bytes, with zeros or half a write at their end, and any
// of the unsynced changes of a folder. A rename is one change.
//
// A call can fail, the disk can be full and slow, and a bit of a file can change while it lies
// there. All of this is drawn by the story that a seed tells (stories/).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_system.h"

namespace sim {

// The kinds of calls, of which kChange is any that changes the disk.
enum class DiskCall {
  kChange,
  kCreate,
  kWrite,
  kSync,
  kRename,
  kLink,
  kRemove,
  kSyncFolder,
  kRead
};
constexpr int64_t kDiskCalls = 9;

struct DiskFaults {
  // A call of a kind, by its number counted from now on.
  using At = std::pair<DiskCall, int64_t>;
  // The call that fails with error_number; a number of -1 is none. The `count` calls from there on
  // fail, and then so many of each `every` calls, if that is not 0.
  At fail_at{DiskCall::kChange, -1};
  int64_t count = 1;
  int64_t every = 0;
  int error_number = 0;
  int64_t capacity = INT64_MAX;  // bytes of all files; more are ENOSPC
  int64_t slow_ns = 0;           // the longest time of a call
  // What happens instead of the call, such as the end of its process.
  std::map<At, std::function<void()>> at;
};

class Disk {
 public:
  Disk();
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  // Makes the files, and what is safe of them, those of another disk.
  void CopyFrom(const Disk& other);

  // Returns the file system as a process of that node sees it. It lives as long as the disk.
  multiverso::FileSystem* OnNode(int node);

  void SetFaults(const DiskFaults& faults);
  // Is called before each change, in a section in which nothing is a point.
  void BeforeChanges(std::function<void()> call) { before_changes_ = std::move(call); }
  // Returns how many calls have failed since SetFaults because of it.
  int64_t failures() const { return failures_; }
  // Returns how many of these can leave a file behind: removals, and syncs of folders before them.
  int64_t failed_removals() const { return failed_removals_; }
  // Returns how many of these read a file.
  int64_t failed_reads() const { return failed_reads_; }
  // Returns whether a call has failed so since SetFaults.
  bool HasFailed(const multiverso::FileFault& fault) const {
    return failed_.count({fault.path, fault.error_number}) != 0;
  }

  // The node loses its power: bytes that it wrote and did not sync.
  void LosePowerOf(int node);
  // Everything loses its power: unsynced bytes and unsynced names.
  void LosePower();
  // The process changes nothing any more, since it is about to die: it may be inside of a section
  // of the engine that must end first.
  void CutOff(int process) { cut_off_.insert(process); }
  // Changes one bit of an ordinary file below the folder, chosen by the seed, and returns its path,
  // or "" if there is no byte there.
  std::string FlipABit(const std::string& folder);
  // Restores the bytes that FlipABit changed last.
  void UndoFlip();

  // Returns the paths of all files and folders below a folder, in order.
  std::vector<std::string> PathsBelow(const std::string& folder) const;
  // Returns the bytes of all files, each file counted once.
  int64_t UsedBytes() const;

 private:
  friend class DiskView;
  friend class DiskFile;
  friend class OpenDiskFile;
  struct Node;
  using Entry = std::shared_ptr<Node>;
  struct Change {  // of a folder
    std::string removed;
    std::string added;
    Entry entry;
  };
  struct UnsyncedWrite {
    int64_t offset;
    int64_t bytes;
    int node;
  };
  struct Node {  // a file or a folder
    bool is_folder = false;
    std::string bytes;
    std::string safe_bytes;                // what a power failure leaves for certain
    std::vector<UnsyncedWrite> unsynced;   // after safe_bytes, in order
    std::map<std::string, Entry> entries;  // of a folder
    std::map<std::string, Entry> safe_entries;
    std::vector<Change> changes;  // after safe_entries, in order
  };

  static Entry CopyOf(const Entry& entry, std::map<const Node*, Entry>* copies);
  // Returns the names in a path, from the root on.
  static std::vector<std::string> NamesOf(const std::string& path);
  // Lets a call take its time, at whose end the rank may have been killed.
  void TakeTime() const;
  // Begins a call that may fail. Returns the number of the error with which it does, or 0.
  int Begin(DiskCall kind, const std::string& path);
  bool MustFail(DiskCall kind) const;
  void NoteFailure(const std::string& path, int error_number);
  Entry Find(const std::string& path) const;
  // Returns the folder that has the last name of the path, which *name becomes.
  Entry FolderOf(const std::string& path, std::string* name) const;
  static void Apply(std::map<std::string, Entry>* entries, const Change& change);
  static void MakeChange(Node* folder, Change change);
  static void LoseBytes(Node* file, int node);
  void LoseNames(Node* folder);
  void ForEachFile(const Entry& entry, const std::string& path,
                   std::vector<std::pair<std::string, Entry>>* files) const;

  Entry root_;
  std::map<int, std::unique_ptr<multiverso::FileSystem>> views_;
  DiskFaults faults_;
  std::function<void()> before_changes_;
  std::set<int> cut_off_;
  std::map<DiskCall, int64_t> calls_;             // since SetFaults
  std::set<std::pair<std::string, int>> failed_;  // by the path and the number of the error
  int64_t failures_ = 0;
  int64_t failed_removals_ = 0;
  int64_t failed_reads_ = 0;
  Entry flipped_;
  size_t flipped_at_ = 0;
  char flipped_byte_ = 0;
};

}  // namespace sim
