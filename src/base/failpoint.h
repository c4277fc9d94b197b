// Failpoints: places at which a test can inject a failure, more precisely than with a signal.
//
// They exist only in the library that the tests build for themselves, with MULTIVERSO_FAILPOINTS
// defined; elsewhere a failpoint is the constant false. The environment variable
// MULTIVERSO_FAILPOINTS defines what happens: with "file.write@3=kill,shard.write@1=sleep" the
// process is killed when it reaches "file.write" for the third time, and sleeps for a second when
// it first reaches "shard.write". Hits are counted from when the variable gets its value.
//
//   kill    SIGKILL to this process
//   stop    SIGSTOP to this process
//   error   the failpoint is true: the operation fails
//   sleep   for one second
#pragma once

#if defined(MULTIVERSO_FAILPOINTS)

namespace multiverso {

// Counts a hit of failpoint `name` and carries out the action that is set for this hit. Returns
// true if the action is `error`. Thread-safe.
bool HitFailpoint(const char* name);

}  // namespace multiverso

#define MV_FAILPOINT(name) (::multiverso::HitFailpoint(name))

#else

#define MV_FAILPOINT(name) (false)

#endif
