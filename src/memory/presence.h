// Presence: which ranks of a node are alive, according to the kernel.
//
// Each rank locks one byte of the node's control segment when it joins. The lock belongs to the
// open file (open file description locks, which Linux, macOS and POSIX 2024 have): the kernel drops
// it when the process ends for any reason, so the holder of a lock is alive. Opening and closing
// the same file elsewhere in the process, as readers do, does not drop it. A POSIX record lock
// would be lost then. Presence needs no heartbeat, no signal and no process ids, which differ
// between containers.
//
// A child that was forked past the C library (clone) keeps the open file, and with it the lock.
// Linux can tell then whether the process itself has ended, if both are in one namespace of process
// ids (ProcessWatch).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "base/status.h"

namespace multiverso {

// A process, as others on the machine know it. It lies in shared memory. All numbers are 0 on
// systems other than Linux.
struct ProcessMark {
  int64_t id;
  int64_t start;       // when the process started, which tells it from others with its id
  int64_t name_space;  // in which the id is valid
};

// Returns the mark of this process.
ProcessMark OwnProcess();

// Tells whether processes have ended, and ends them, for any thread. It keeps descriptors of
// running processes, with which the next question takes a tenth of the time.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // Returns true if that process, which the caller numbers, has ended for certain, and false if it
  // runs or the system cannot tell.
  bool HasEnded(int number, const ProcessMark& process);
  // Kills that process. Returns false if it is this process, or if the system cannot tell which
  // process it is, or refuses. Otherwise the process may exist a little longer, but its program
  // makes no further step.
  bool End(int number, const ProcessMark& process);

 private:
  struct Watched {
    ProcessMark process;
    int descriptor;
  };

  std::mutex mutex_;
  std::map<int, Watched> watched_;  // by the caller's numbers
};

// Marks this process present as number `index` on the file behind `fd`. The mark lasts until the
// process ends or closes `fd`. A forked child must close its copy of `fd`, or the mark lasts until
// the child ends, too.
Status MarkPresent(int fd, int index);

// Ends this process's mark as number `index`.
void ClearPresent(int fd, int index);

// Returns whether another process is marked present as number `index`, or true if the system cannot
// tell. Do not ask for this process's own index, which the system reports absent.
bool IsPresent(int fd, int index);

// Returns a descriptor of another open file, whose marks are apart from those of `fd`, or -1 with
// errno. It is open for writing, without which the system gives out no mark of one process alone.
int OpenForMarks(int fd);

// Marks this process present as number `index`, as any number of processes may at the same time.
Status MarkShared(int fd, int index);

// Closes a descriptor, and with the last copy of it the marks. May be called in a forked child.
void CloseMarks(int fd);

}  // namespace multiverso
