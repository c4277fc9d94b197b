// WithoutSignals: blocks all signals in the current thread while the object lives. Threads that are
// started meanwhile never receive signals, which are left to the threads of the program.
#pragma once

#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#endif

namespace multiverso {

#if defined(_WIN32)
class WithoutSignals {
 public:
  WithoutSignals() {}  // Windows handles signals in a separate thread
};
#else
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};
#endif

}  // namespace multiverso
