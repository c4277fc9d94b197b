// Presence: which ranks of a node are alive, according to the kernel.
//
// Each rank locks one byte of the node's control segment (a POSIX record lock) when it joins. The
// kernel drops the lock when the process ends for any reason, so the holder of a lock is alive.
// Presence needs no heartbeat, no signal and no process ids, which differ between containers.
// Windows uses LockFileEx.
#ifndef MULTIVERSO_MEMORY_PRESENCE_H_
#define MULTIVERSO_MEMORY_PRESENCE_H_

#include "base/status.h"

namespace multiverso {

// Marks this process present as number `index` on the file behind `fd`. The mark lasts until the
// process ends or closes any descriptor of that file. A forked child does not inherit the mark.
Status MarkPresent(int fd, int index);

// Ends this process's mark as number `index`.
void ClearPresent(int fd, int index);

// Returns whether another process is marked present as number `index`, or true if the system cannot
// tell. Do not ask for this process's own index: Linux reports it absent, Windows present.
bool IsPresent(int fd, int index);

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_PRESENCE_H_
