// Presence: which ranks of a node are alive, according to the kernel.
//
// Each rank locks one byte of the node's control segment when it joins. The lock belongs to the
// open file (open file description locks, which Linux, macOS and POSIX 2024 have): the kernel drops
// it when the process ends for any reason, so the holder of a lock is alive. Opening and closing
// the same file elsewhere in the process, as readers do, does not drop it. A POSIX record lock
// would be lost then. Presence needs no heartbeat, no signal and no process ids, which differ
// between containers. Windows uses LockFileEx.
#ifndef MULTIVERSO_MEMORY_PRESENCE_H_
#define MULTIVERSO_MEMORY_PRESENCE_H_

#include "base/status.h"

namespace multiverso {

// Marks this process present as number `index` on the file behind `fd`. The mark lasts until the
// process ends or closes `fd`. A forked child must close its copy of `fd`, or the mark lasts until
// the child ends, too.
Status MarkPresent(int fd, int index);

// Ends this process's mark as number `index`.
void ClearPresent(int fd, int index);

// Returns whether another process is marked present as number `index`, or true if the system cannot
// tell. Do not ask for this process's own index: Linux reports it absent, Windows present.
bool IsPresent(int fd, int index);

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_PRESENCE_H_
