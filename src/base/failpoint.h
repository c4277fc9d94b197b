// Failpoints: places that a test can let fail, for moments that no signal from outside can aim at.
//
// They exist only in the library that the tests build for themselves, with MULTIVERSO_FAILPOINTS
// defined; elsewhere a failpoint is the constant false. There the environment variable
// MULTIVERSO_FAILPOINTS says what happens when: "file.write@3=kill,shard.write@1=sleep" lets the
// process be killed when it comes to "file.write" for the third time, and sleep for a second when
// it first comes to "shard.write".
//
//   kill    SIGKILL to this process
//   error   the failpoint is true: the operation shall fail
//   sleep   for a second
#ifndef MULTIVERSO_BASE_FAILPOINT_H_
#define MULTIVERSO_BASE_FAILPOINT_H_

#if defined(MULTIVERSO_FAILPOINTS)

namespace multiverso {

// Thread-safe.
bool HitFailpoint(const char* name);

}  // namespace multiverso

#define MV_FAILPOINT(name) (::multiverso::HitFailpoint(name))

#else

#define MV_FAILPOINT(name) (false)

#endif

#endif  // MULTIVERSO_BASE_FAILPOINT_H_
