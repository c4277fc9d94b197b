#include "engine/scheduler.h"

#include <arpa/inet.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <queue>
#include <random>
#include <unordered_map>
#include <vector>

extern "C" void sim_switch(void** save, void* next);
asm(R"(
.text
.globl sim_switch
.type sim_switch,@function
sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.globl sim_begin
.type sim_begin,@function
sim_begin:
  xorl %ebp,%ebp
  call sim_fiber_main
  ud2
)");
extern "C" void sim_begin();

namespace sim {

Stats stats;
int quiet = 0;

namespace {

constexpr size_t kStackBytes = 256 * 1024;
using Key = std::pair<uint64_t, uint64_t>;
struct KeyHash {
  size_t operator()(const Key& k) const { return k.first * 0x9e3779b97f4a7c15u ^ k.second; }
};

enum class State { kReady, kBlocked, kDone, kDead };
struct Fiber {
  int id = 0;
  int rank = -1;
  State state = State::kReady;
  void* sp = nullptr;
  char* stack = nullptr;
  std::function<void()> body;
  void* (*start)(void*) = nullptr;
  void* arg = nullptr;
  void* result = nullptr;
  Key key{0, 0};
  int64_t wake_at = INT64_MAX;
  uint64_t ticket = 0;  // of the current block, to drop stale entries of the heap
  bool timed_out = false;
  int saved_errno = 0;
  void* eh[2] = {nullptr, nullptr};
  const char* what = "";
  bool joined = false;
};
struct RankInfo {
  bool dead = false;
  int64_t died_at = -1;
  int64_t suspended_until = 0;
  uint64_t points = 0;
  uint64_t kill_at = UINT64_MAX, suspend_at = UINT64_MAX;
  int64_t suspend_ns = 0;
  int in_world = 0;
  bool kill_pending = false;
  std::vector<Fiber*> fibers;
};
struct Sleeper {
  int64_t when;
  uint64_t order;
  Fiber* fiber;
  uint64_t ticket;
  bool operator<(const Sleeper& other) const {
    return when != other.when ? when > other.when : order > other.order;
  }
};
struct Mapping {
  uintptr_t end;
  uint64_t ino, offset;
  int rank;
};
struct Socket {
  int rank = -1;
  bool open = false, listening = false, is_pipe = false, connecting = false, refused = false;
  int peer = -1;
  uint16_t port = 0;
  int64_t usable_at = 0;                        // when connect completes
  std::deque<std::pair<int64_t, int>> backlog;  // when, socket
  std::deque<std::pair<int64_t, std::string>> data;
  int64_t last_arrival = 0;
  int64_t end_at = INT64_MAX;
  Fiber* poller = nullptr;
};
constexpr int kFirstSocket = 1 << 20;

struct Simulator {
  Options options;
  std::mt19937_64 random;
  std::vector<Fiber*> fibers;
  std::vector<Fiber*> ready;
  std::priority_queue<Sleeper> sleepers;
  std::unordered_map<Key, std::vector<Fiber*>, KeyHash> waiters;
  std::vector<RankInfo> ranks;
  std::map<uintptr_t, Mapping> mappings;
  std::map<int, int> owner_of_fd;
  std::vector<Socket> sockets;
  std::map<uint16_t, int> listeners;
  uint16_t next_port = 20000;
  int64_t now = int64_t{1000} * 1000000000;
  int64_t start = now;
  int64_t fraction = 0;
  uint64_t points = 0, switches = 0, order = 0, tickets = 0, hash = 1469598103934665603u;
  int64_t countdown = 1;
  int alive = 0;
  void* main_sp = nullptr;
  void* main_eh[2] = {};
  std::string why;
  bool failed = false;
  std::function<void(int)> on_death;
  std::function<void(int, int64_t)> on_suspend;
  FILE* trace = nullptr;
};
Simulator* S = nullptr;
Fiber* current = nullptr;

void** Eh() { return reinterpret_cast<void**>(__cxxabiv1::__cxa_get_globals()); }

void Mix(uint64_t value) { S->hash = (S->hash ^ value) * 1099511628211u; }

void NewCountdown() {
  const auto mean = static_cast<uint64_t>(S->options.mean_run);
  S->countdown = mean <= 1 ? 1 : 1 + static_cast<int64_t>(S->random() % (2 * mean - 1));
}

void MakeReady(Fiber* fiber) {
  if (fiber->state != State::kBlocked) return;
  fiber->state = State::kReady;
  fiber->ticket = 0;
  S->ready.push_back(fiber);
}
void RemoveWaiter(Fiber* fiber) {
  if (fiber->key == Key{0, 0}) return;
  const auto found = S->waiters.find(fiber->key);
  if (found != S->waiters.end()) {
    auto& list = found->second;
    list.erase(std::remove(list.begin(), list.end(), fiber), list.end());
    if (list.empty()) S->waiters.erase(found);
  }
  fiber->key = Key{0, 0};
}
void PushSleeper(Fiber* fiber, int64_t when) {
  fiber->ticket = ++S->tickets;
  S->sleepers.push(Sleeper{when, ++S->order, fiber, fiber->ticket});
}

void DumpStacks() {
  char line[256];
  for (Fiber* fiber : S->fibers) {
    if (fiber->state == State::kDone || fiber->state == State::kDead) continue;
    snprintf(
        line, sizeof(line), "fiber %d rank %d %s %s wake in %.6f s\n  ", fiber->id, fiber->rank,
        fiber->state == State::kReady ? "ready" : "blocked", fiber->what,
        fiber->wake_at == INT64_MAX ? -1.0 : static_cast<double>(fiber->wake_at - S->now) * 1e-9);
    S->why += line;
    if (fiber == current) continue;
    auto* frame = static_cast<void**>(fiber->sp);
    auto* bp = static_cast<void**>(frame[5]);  // saved rbp
    snprintf(line, sizeof(line), "%p ", frame[6]);
    S->why += line;
    for (int i = 0; i < 24 && reinterpret_cast<char*>(bp) >= fiber->stack &&
                    reinterpret_cast<char*>(bp) < fiber->stack + kStackBytes - 16;
         ++i) {
      snprintf(line, sizeof(line), "%p ", bp[1]);
      S->why += line;
      bp = static_cast<void**>(bp[0]);
    }
    S->why += "\n";
  }
}

void SwitchToMain() {
  Fiber* const from = current;
  from->saved_errno = errno;
  memcpy(from->eh, Eh(), sizeof(from->eh));
  memcpy(Eh(), S->main_eh, sizeof(S->main_eh));
  current = nullptr;
  sim_switch(&from->sp, S->main_sp);
}

// Chooses the next fiber; null if there is none.
Fiber* Pick() {
  for (;;) {
    while (!S->sleepers.empty() && S->sleepers.top().when <= S->now) {
      const Sleeper top = S->sleepers.top();
      S->sleepers.pop();
      if (top.fiber->ticket != top.ticket) continue;
      RemoveWaiter(top.fiber);
      top.fiber->timed_out = true;
      MakeReady(top.fiber);
    }
    if (S->ready.empty()) {
      if (S->sleepers.empty()) return nullptr;
      S->now = std::max(S->now, S->sleepers.top().when);
      if (S->now - S->start > S->options.deadline_ns) return nullptr;
      continue;
    }
    const size_t chosen = S->random() % S->ready.size();
    Fiber* const fiber = S->ready[chosen];
    S->ready[chosen] = S->ready.back();
    S->ready.pop_back();
    if (fiber->state == State::kDead) continue;
    if (fiber->rank >= 0) {
      RankInfo& rank = S->ranks[static_cast<size_t>(fiber->rank)];
      if (rank.suspended_until > S->now && rank.in_world == 0) {
        fiber->state = State::kBlocked;
        const bool timed_out = fiber->timed_out;
        PushSleeper(fiber, rank.suspended_until);
        fiber->timed_out = timed_out;
        continue;
      }
    }
    return fiber;
  }
}

void SwitchTo(Fiber* next) {
  ++S->switches;
  Mix(static_cast<uint64_t>(next->id));
  Mix(static_cast<uint64_t>(S->now));
  if (S->trace != nullptr) {
    fprintf(S->trace, "%llu %lld %d %d %s\n", (unsigned long long)S->points,
            (long long)(S->now - S->start), next->id, next->rank, next->what);
  }
  NewCountdown();
  Fiber* const from = current;
  if (next == from) return;
  void** save = &S->main_sp;
  if (from != nullptr) {
    from->saved_errno = errno;
    memcpy(from->eh, Eh(), sizeof(from->eh));
    save = &from->sp;
  } else {
    memcpy(S->main_eh, Eh(), sizeof(S->main_eh));
  }
  memcpy(Eh(), next->eh, sizeof(next->eh));
  current = next;
  sim_switch(save, next->sp);
  // Here `from` runs again.
  if (from != nullptr) errno = from->saved_errno;
}

void Fail(const std::string& why) {
  if (!S->failed) {
    S->failed = true;
    S->why = why + "\n";
    DumpStacks();
  }
}

// Gives the baton away; the current fiber is in `ready`, in a queue, done or dead.
void Dispatch() {
  Fiber* const next = S->alive == 0 ? nullptr : Pick();
  if (next != nullptr && S->now - S->start <= S->options.deadline_ns &&
      S->points < S->options.max_points) {
    SwitchTo(next);
    return;
  }
  if (S->alive > 0) {
    Fail(next == nullptr && S->now - S->start <= S->options.deadline_ns ? "deadlock"
                                                                        : "deadline exceeded");
  }
  SwitchToMain();
}

bool Block(Key key, int64_t until, const char* what) {
  Fiber* const me = current;
  me->state = State::kBlocked;
  me->key = key;
  me->timed_out = false;
  me->what = what;
  me->wake_at = until;
  if (key != Key{0, 0}) S->waiters[key].push_back(me);
  if (until != INT64_MAX) {
    PushSleeper(me, until);
  } else {
    me->ticket = 0;
  }
  Dispatch();
  me->what = "";
  return me->timed_out;
}

int WakeKey(Key key, int count) {
  const auto found = S->waiters.find(key);
  if (found == S->waiters.end()) return 0;
  auto& list = found->second;
  int woken = 0;
  while (woken < count && !list.empty()) {
    const size_t chosen = list.size() == 1 ? 0 : S->random() % list.size();
    Fiber* const fiber = list[chosen];
    list.erase(list.begin() + static_cast<ptrdiff_t>(chosen));
    fiber->key = Key{0, 0};
    MakeReady(fiber);
    ++woken;
  }
  if (list.empty()) S->waiters.erase(found);
  return woken;
}

void SwitchAway() {
  Fiber* const me = current;
  me->state = State::kReady;
  S->ready.push_back(me);
  Dispatch();
}

void CloseSocket(Socket* socket) {
  if (!socket->open) return;
  socket->open = false;
  if (socket->listening) S->listeners.erase(socket->port);
  if (socket->peer >= 0) {
    Socket& peer = S->sockets[static_cast<size_t>(socket->peer)];
    peer.end_at = std::max(peer.last_arrival, S->now + (socket->is_pipe ? 0 : Latency()));
    if (peer.poller != nullptr) MakeReady(peer.poller);
  }
  for (auto& [when, index] : socket->backlog) CloseSocket(&S->sockets[static_cast<size_t>(index)]);
  socket->backlog.clear();
}

void Die(int rank) {
  RankInfo& info = S->ranks[static_cast<size_t>(rank)];
  if (info.dead) return;
  info.dead = true;
  info.died_at = S->now;
  info.kill_pending = false;
  Mix(0xdead0000u + static_cast<uint64_t>(rank));
  for (Fiber* fiber : info.fibers) {
    if (fiber->state == State::kDone) continue;
    if (fiber->state == State::kBlocked) RemoveWaiter(fiber);
    fiber->state = State::kDead;
    fiber->ticket = 0;
    --S->alive;
  }
  for (auto& [fd, owner] : S->owner_of_fd) {
    if (owner != rank) continue;
    struct flock lock{};
    lock.l_type = F_UNLCK;
    lock.l_whence = SEEK_SET;
    (void)::syscall(SYS_fcntl, fd, F_OFD_SETLK, &lock);
  }
  for (auto it = S->owner_of_fd.begin(); it != S->owner_of_fd.end();) {
    if (it->second != rank) {
      ++it;
      continue;
    }
    (void)::syscall(SYS_close, it->first);
    it = S->owner_of_fd.erase(it);
  }
  for (Socket& socket : S->sockets) {
    if (socket.rank == rank) CloseSocket(&socket);
  }
  if (S->on_death) S->on_death(rank);
}

void Point(int64_t cost = 1) {
  if (current == nullptr || quiet > 0) return;
  ++S->points;
  const auto running = static_cast<int64_t>(S->ready.size()) + 1;
  S->fraction += cost * S->options.point_ns * 64 / running;
  S->now += S->fraction / 64;
  S->fraction %= 64;
  const int rank = current->rank;
  if (rank >= 0) {
    RankInfo& info = S->ranks[static_cast<size_t>(rank)];
    ++info.points;
    if (info.points >= info.kill_at) info.kill_pending = true;
    if (info.points >= info.suspend_at && info.in_world == 0) {
      info.suspend_at = UINT64_MAX;
      info.suspended_until = S->now + info.suspend_ns;
      if (S->on_suspend) S->on_suspend(current->rank, info.suspend_ns);
      SwitchAway();
      return;
    }
    if (info.kill_pending && info.in_world == 0) {
      Die(rank);
      Dispatch();
      abort();
    }
  }
  if (--S->countdown > 0) return;
  SwitchAway();
}

Key KeyOf(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  auto found = S->mappings.upper_bound(value);
  if (found != S->mappings.begin()) {
    --found;
    if (value < found->second.end) {
      return Key{found->second.ino + 1, value - found->first + found->second.offset};
    }
  }
  return Key{1, value};
}

bool IsStatic(const void* address) {
  extern char data_start_symbol __asm__("__data_start"), end_symbol __asm__("_end");
  return address >= &data_start_symbol && address < &end_symbol;
}

}  // namespace

extern "C" void sim_fiber_main() {
  Fiber* const me = current;
  try {
    if (me->start != nullptr) {
      me->result = me->start(me->arg);
    } else {
      me->body();
    }
  } catch (const std::exception& error) {
    fprintf(stderr, "sim: exception in fiber %d: %s\n", me->id, error.what());
    abort();
  }
  me->state = State::kDone;
  --S->alive;
  WakeKey(Key{2, reinterpret_cast<uintptr_t>(me)}, 1 << 30);
  Dispatch();
  abort();
}

namespace {
Fiber* NewFiber(int rank) {
  auto* const fiber = new Fiber;
  fiber->id = static_cast<int>(S->fibers.size());
  fiber->rank = rank;
  fiber->stack = static_cast<char*>(
      reinterpret_cast<void*>(::syscall(SYS_mmap, nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L)));
  auto* top = reinterpret_cast<void**>(fiber->stack + kStackBytes - 64);
  *--top = nullptr;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(sim_begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber->sp = top;
  S->fibers.push_back(fiber);
  S->ready.push_back(fiber);
  ++S->alive;
  if (rank >= 0) S->ranks[static_cast<size_t>(rank)].fibers.push_back(fiber);
  return fiber;
}
}  // namespace

void Start(const Options& options) {
  S = new Simulator;
  __libc_single_threaded = 0;  // so that initializations of static variables wait for each other
  S->options = options;
  S->random.seed(options.seed);
  if (options.trace != nullptr) S->trace = fopen(options.trace, "w");
  stats = Stats();
}
bool Run() {
  Fiber* const first = Pick();
  if (first != nullptr) SwitchTo(first);
  return !S->failed;
}
void Finish() {
  if (S->trace != nullptr) fclose(S->trace);
  for (Fiber* fiber : S->fibers) {
    ::syscall(SYS_munmap, fiber->stack, kStackBytes);
    delete fiber;
  }
  delete S;
  S = nullptr;
}
void AddRank(int rank) {
  if (S->ranks.size() <= static_cast<size_t>(rank)) S->ranks.resize(static_cast<size_t>(rank) + 1);
}
int Spawn(int rank, std::function<void()> body) {
  if (rank >= 0) AddRank(rank);
  Fiber* const fiber = NewFiber(rank);
  fiber->body = std::move(body);
  return fiber->id;
}
int64_t Now() { return S->now; }
uint64_t Random() { return S->random(); }
uint64_t Points() { return S->points; }
uint64_t Switches() { return S->switches; }
uint64_t Hash() { return S->hash; }
uint64_t PointsOf(int rank) { return S->ranks[static_cast<size_t>(rank)].points; }
std::string Why() { return S->why; }
int CurrentRank() { return current == nullptr ? -1 : current->rank; }
int64_t Latency() {
  const Options& o = S->options;
  // Mostly short, sometimes long.
  const auto span = static_cast<uint64_t>(o.net_max_ns - o.net_min_ns + 1);
  const uint64_t part = S->random() % 8 == 0 ? span : span / 8 + 1;
  return o.net_min_ns + static_cast<int64_t>(S->random() % part);
}
void KillAt(int rank, uint64_t point) { S->ranks[static_cast<size_t>(rank)].kill_at = point; }
void SuspendAt(int rank, uint64_t point, int64_t ns) {
  S->ranks[static_cast<size_t>(rank)].suspend_at = point;
  S->ranks[static_cast<size_t>(rank)].suspend_ns = ns;
}
void KillNow(int rank) {
  RankInfo& info = S->ranks[static_cast<size_t>(rank)];
  if (info.in_world > 0) {
    info.kill_pending = true;
  } else {
    Die(rank);
  }
}
bool IsDead(int rank) { return S->ranks[static_cast<size_t>(rank)].dead; }
int64_t DiedAt(int rank) { return S->ranks[static_cast<size_t>(rank)].died_at; }
void OnDeath(std::function<void(int)> call) { S->on_death = std::move(call); }
void OnSuspend(std::function<void(int, int64_t)> call) { S->on_suspend = std::move(call); }
int64_t StartOfTime() { return S->start; }
void EnterWorld() {
  if (current != nullptr && current->rank >= 0)
    ++S->ranks[static_cast<size_t>(current->rank)].in_world;
}
void LeaveWorld() {
  if (current != nullptr && current->rank >= 0)
    --S->ranks[static_cast<size_t>(current->rank)].in_world;
}
void Cost(int64_t points) { Point(points); }
void Yield() {
  if (current != nullptr) SwitchAway();
}
void SleepUntil(int64_t when) {
  if (current != nullptr && when > S->now) Block(Key{0, 0}, when, "sleep");
}

}  // namespace sim

using namespace sim;

// ---- What replaces the C library
// -------------------------------------------------------------------
extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t*, void* (*start)(void*),
                   void* arg) noexcept {
  Point();
  ++stats.threads;
  Fiber* const fiber = NewFiber(current == nullptr ? -1 : current->rank);
  fiber->start = start;
  fiber->arg = arg;
  *thread = reinterpret_cast<pthread_t>(fiber);
  return 0;
}
int pthread_join(pthread_t thread, void** result) {
  auto* const fiber = reinterpret_cast<Fiber*>(thread);
  while (fiber->state != State::kDone) {
    Block(Key{2, reinterpret_cast<uintptr_t>(fiber)}, INT64_MAX, "join");
  }
  if (result != nullptr) *result = fiber->result;
  return 0;
}
int pthread_detach(pthread_t) noexcept { return 0; }

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (current == nullptr) {
    mutex->__data.__lock = 1;
    return 0;
  }
  ++stats.locks;
  if (IsStatic(mutex)) EnterWorld();
  Point();
  while (mutex->__data.__lock != 0) {
    ++stats.blocked_locks;
    Block(Key{3, reinterpret_cast<uintptr_t>(mutex)}, INT64_MAX, "mutex");
  }
  mutex->__data.__lock = 1;
  return 0;
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  Point();
  if (mutex->__data.__lock != 0) return EBUSY;
  mutex->__data.__lock = 1;
  if (IsStatic(mutex)) EnterWorld();
  return 0;
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  mutex->__data.__lock = 0;
  if (current == nullptr) return 0;
  WakeKey(Key{3, reinterpret_cast<uintptr_t>(mutex)}, 1);
  if (IsStatic(mutex)) LeaveWorld();
  Point();
  return 0;
}
static int WaitOn(pthread_cond_t* cond, pthread_mutex_t* mutex, int64_t until) {
  mutex->__data.__lock = 0;
  WakeKey(Key{3, reinterpret_cast<uintptr_t>(mutex)}, 1);
  const bool timed_out = Block(Key{4, reinterpret_cast<uintptr_t>(cond)}, until, "condition");
  pthread_mutex_lock(mutex);
  return timed_out ? ETIMEDOUT : 0;
}
int pthread_cond_wait(pthread_cond_t* cond, pthread_mutex_t* mutex) {
  return WaitOn(cond, mutex, INT64_MAX);
}
static int64_t Ns(const timespec* t) { return int64_t{t->tv_sec} * 1000000000 + t->tv_nsec; }
int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex, const timespec* until) {
  return WaitOn(cond, mutex, Ns(until));
}
int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t,
                           const timespec* until) {
  return WaitOn(cond, mutex, Ns(until));
}
int pthread_cond_signal(pthread_cond_t* cond) noexcept {
  if (current == nullptr) return 0;
  WakeKey(Key{4, reinterpret_cast<uintptr_t>(cond)}, 1);
  Point();
  return 0;
}
int pthread_cond_broadcast(pthread_cond_t* cond) noexcept {
  if (current == nullptr) return 0;
  WakeKey(Key{4, reinterpret_cast<uintptr_t>(cond)}, 1 << 30);
  Point();
  return 0;
}

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  if (S == nullptr) return static_cast<int>(::syscall(SYS_clock_gettime, clock, out));
  Point();
  const int64_t value = S->now + (clock == CLOCK_REALTIME ? int64_t{1700000000} * 1000000000 : 0);
  out->tv_sec = value / 1000000000;
  out->tv_nsec = value % 1000000000;
  return 0;
}
int nanosleep(const timespec* time, timespec*) {
  if (current == nullptr) return 0;
  ++stats.sleeps;
  Block(Key{0, 0}, S->now + Ns(time) + static_cast<int64_t>(S->random() % 60000), "sleep");
  return 0;
}
int clock_nanosleep(clockid_t, int flags, const timespec* time, timespec*) {
  if (current == nullptr) return 0;
  ++stats.sleeps;
  const int64_t until = (flags & TIMER_ABSTIME) != 0 ? Ns(time) : S->now + Ns(time);
  Block(Key{0, 0}, until + static_cast<int64_t>(S->random() % 60000), "sleep");
  return 0;
}
int sched_yield() noexcept {
  if (current == nullptr) return 0;
  ++stats.yields;
  Point(8);
  SwitchAway();
  return 0;
}

static long RawSyscall(long n, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}
long syscall(long number, ...) noexcept {
  va_list args;
  va_start(args, number);
  long a[6];
  for (long& value : a) value = va_arg(args, long);
  va_end(args);
  if (S != nullptr && current != nullptr && number == SYS_futex) {
    auto* const word = reinterpret_cast<uint32_t*>(a[0]);
    const auto op = static_cast<int>(a[1]) & FUTEX_CMD_MASK;
    if (op == FUTEX_WAIT) {
      Point();
      if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != static_cast<uint32_t>(a[2])) {
        errno = EAGAIN;
        return -1;
      }
      ++stats.futex_waits;
      const auto* const timeout = reinterpret_cast<const timespec*>(a[3]);
      const int64_t until = timeout == nullptr
                                ? INT64_MAX
                                : S->now + Ns(timeout) + static_cast<int64_t>(S->random() % 60000);
      if (Block(KeyOf(word), until, "futex")) {
        ++stats.futex_timeouts;
        errno = ETIMEDOUT;
        return -1;
      }
      return 0;
    }
    if (op == FUTEX_WAKE) {
      ++stats.futex_wakes;
      const int woken = WakeKey(KeyOf(word), static_cast<int>(a[2]));
      Point(4);
      return woken;
    }
  }
  if (S != nullptr && number == SYS_pidfd_open) {
    errno = ENOSYS;
    return -1;
  }
  return RawSyscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int getentropy(void* out, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    static_cast<char*>(out)[i] = static_cast<char>(S == nullptr ? 7 : S->random());
  }
  return 0;
}
ssize_t getrandom(void* out, size_t bytes, unsigned) {
  getentropy(out, bytes);
  return static_cast<ssize_t>(bytes);
}

// ---- Descriptors and mappings belong to ranks
// ------------------------------------------------------ Each rank has a process id, so that others
// take it for a process.
constexpr int kFirstProcess = 10000000;
pid_t getpid() noexcept {
  if (current != nullptr && current->rank >= 0) return kFirstProcess + current->rank;
  return static_cast<pid_t>(RawSyscall(SYS_getpid, 0, 0, 0, 0, 0, 0));
}
static int Own(int fd) {
  if (fd >= 0 && current != nullptr && current->rank >= 0) S->owner_of_fd[fd] = current->rank;
  return fd;
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return Own(static_cast<int>(
      RawSyscall(SYS_memfd_create, reinterpret_cast<long>(name), flags, 0, 0, 0, 0)));
}
int open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const int mode = va_arg(args, int);
  va_end(args);
  std::string real = path;
  int process = 0;
  if (sscanf(path, "/proc/%d/", &process) == 1 && process >= kFirstProcess) {
    real = "/proc/self" + real.substr(real.find('/', 6));
    path = real.c_str();
  }
  return Own(static_cast<int>(
      RawSyscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), flags, mode, 0, 0)));
}
void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  const long result = RawSyscall(SYS_mmap, reinterpret_cast<long>(address),
                                 static_cast<long>(bytes), protection, flags, fd, offset);
  if (result == -1) return MAP_FAILED;
  if (S != nullptr && current != nullptr && (flags & MAP_SHARED) != 0 && fd >= 0) {
    struct stat info{};
    if (fstat(fd, &info) == 0) {
      S->mappings[static_cast<uintptr_t>(result)] =
          Mapping{static_cast<uintptr_t>(result) + bytes, info.st_ino,
                  static_cast<uint64_t>(offset), current->rank};
    }
  }
  return reinterpret_cast<void*>(result);
}
int munmap(void* address, size_t bytes) noexcept {
  if (S != nullptr) S->mappings.erase(reinterpret_cast<uintptr_t>(address));
  return static_cast<int>(RawSyscall(SYS_munmap, reinterpret_cast<long>(address),
                                     static_cast<long>(bytes), 0, 0, 0, 0));
}

// ---- Sockets and pipes
// -----------------------------------------------------------------------------
static Socket* SocketOf(int fd) {
  const size_t index = static_cast<size_t>(fd - kFirstSocket);
  return S != nullptr && fd >= kFirstSocket && index < S->sockets.size() ? &S->sockets[index]
                                                                         : nullptr;
}
static int NewSocketIndex() {
  S->sockets.emplace_back();
  S->sockets.back().open = true;
  S->sockets.back().rank = current == nullptr ? -1 : current->rank;
  return static_cast<int>(S->sockets.size()) - 1;
}
int close(int fd) {
  if (Socket* const socket = SocketOf(fd)) {
    CloseSocket(socket);
    return 0;
  }
  if (S != nullptr) S->owner_of_fd.erase(fd);
  return static_cast<int>(RawSyscall(SYS_close, fd, 0, 0, 0, 0, 0));
}
int socket(int, int, int) noexcept { return kFirstSocket + NewSocketIndex(); }
int setsockopt(int, int, int, const void*, socklen_t) noexcept { return 0; }
int bind(int, const sockaddr*, socklen_t) noexcept { return 0; }
int listen(int fd, int) noexcept {
  Socket* const socket = SocketOf(fd);
  socket->listening = true;
  socket->port = S->next_port++;
  S->listeners[socket->port] = fd - kFirstSocket;
  return 0;
}
int getsockname(int fd, sockaddr* address, socklen_t*) noexcept {
  // Both kinds of address have the port in the same place.
  reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(SocketOf(fd)->port);
  return 0;
}
int connect(int fd, const sockaddr* address, socklen_t) {
  Point();
  ++stats.connects;
  const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
  const auto found = S->listeners.find(port);
  const int64_t there = S->now + Latency();
  const int64_t back = there + Latency();
  if (found == S->listeners.end()) {
    Socket* const mine = SocketOf(fd);
    mine->connecting = mine->refused = true;
    mine->usable_at = back;
  } else {
    const int server_index = NewSocketIndex();
    Socket* const mine = SocketOf(fd);
    mine->connecting = true;
    mine->usable_at = back;
    mine->peer = server_index;
    Socket& server = S->sockets[static_cast<size_t>(server_index)];
    Socket& listener = S->sockets[static_cast<size_t>(found->second)];
    server.rank = listener.rank;
    server.peer = fd - kFirstSocket;
    listener.backlog.emplace_back(there, server_index);
    if (listener.poller != nullptr) MakeReady(listener.poller);
  }
  errno = EINPROGRESS;
  return -1;
}
int accept4(int fd, sockaddr*, socklen_t*, int) {
  Point();
  Socket* const listener = SocketOf(fd);
  if (listener->backlog.empty() || listener->backlog.front().first > S->now) {
    errno = EAGAIN;
    return -1;
  }
  const int index = listener->backlog.front().second;
  listener->backlog.pop_front();
  return kFirstSocket + index;
}
int getsockopt(int fd, int, int, void* value, socklen_t*) noexcept {
  *static_cast<int*>(value) = SocketOf(fd)->refused ? ECONNREFUSED : 0;
  SocketOf(fd)->connecting = false;
  return 0;
}
static bool IsReadable(const Socket& s) {
  if (s.listening) return !s.backlog.empty() && s.backlog.front().first <= S->now;
  return (!s.data.empty() && s.data.front().first <= S->now) || s.end_at <= S->now;
}
static int64_t NextEventOf(const Socket& s) {
  int64_t next = s.end_at;
  if (s.listening && !s.backlog.empty()) next = std::min(next, s.backlog.front().first);
  if (!s.data.empty()) next = std::min(next, s.data.front().first);
  if (s.connecting) next = std::min(next, s.usable_at);
  return next;
}
static ssize_t Transmit(Socket* from, const void* data, size_t bytes) {
  if (!from->open || from->peer < 0) {
    errno = EPIPE;
    return -1;
  }
  Socket& to = S->sockets[static_cast<size_t>(from->peer)];
  if (!to.open) {
    errno = EPIPE;
    return -1;
  }
  ++stats.socket_sends;
  const int64_t arrival =
      from->is_pipe ? S->now : std::max({to.last_arrival + 1, S->now + Latency(), from->usable_at});
  to.last_arrival = arrival;
  to.data.emplace_back(arrival, std::string(static_cast<const char*>(data), bytes));
  if (to.poller != nullptr) MakeReady(to.poller);
  return static_cast<ssize_t>(bytes);
}
ssize_t send(int fd, const void* data, size_t bytes, int) {
  Point();
  return Transmit(SocketOf(fd), data, bytes);
}
ssize_t recv(int fd, void* out, size_t bytes, int flags) {
  Point();
  Socket* const s = SocketOf(fd);
  if (!s->data.empty() && s->data.front().first <= S->now) {
    std::string& front = s->data.front().second;
    const size_t count = std::min(bytes, front.size());
    memcpy(out, front.data(), count);
    if ((flags & MSG_PEEK) == 0) {
      front.erase(0, count);
      if (front.empty()) s->data.pop_front();
    }
    return static_cast<ssize_t>(count);
  }
  if (s->end_at <= S->now && s->data.empty()) return 0;
  errno = EAGAIN;
  return -1;
}
int pipe2(int ends[2], int) noexcept {
  const int a = NewSocketIndex();
  const int b = NewSocketIndex();
  for (const int i : {a, b}) {
    S->sockets[static_cast<size_t>(i)].is_pipe = true;
    S->sockets[static_cast<size_t>(i)].peer = i == a ? b : a;
  }
  ends[0] = kFirstSocket + a;
  ends[1] = kFirstSocket + b;
  return 0;
}
ssize_t write(int fd, const void* data, size_t bytes) {
  if (Socket* const socket = SocketOf(fd)) return Transmit(socket, data, bytes);
  return RawSyscall(SYS_write, fd, reinterpret_cast<long>(data), static_cast<long>(bytes), 0, 0, 0);
}
ssize_t read(int fd, void* out, size_t bytes) {
  if (Socket* const socket = SocketOf(fd)) {
    socket->data.clear();
    return 1;
  }
  return RawSyscall(SYS_read, fd, reinterpret_cast<long>(out), static_cast<long>(bytes), 0, 0, 0);
}
int poll(pollfd* fds, nfds_t count, int timeout) {
  if (current == nullptr || (count > 0 && fds[0].fd < kFirstSocket)) {
    return static_cast<int>(
        RawSyscall(SYS_poll, reinterpret_cast<long>(fds), static_cast<long>(count), 0, 0, 0, 0));
  }
  ++stats.polls;
  Point(4);
  const int64_t until = S->now + int64_t{timeout} * 1000000;
  for (;;) {
    int ready = 0;
    int64_t next = until;
    for (nfds_t i = 0; i < count; ++i) {
      const Socket& s = *SocketOf(fds[i].fd);
      fds[i].revents = 0;
      const bool is_done = s.connecting && s.usable_at <= S->now;
      if ((fds[i].events & POLLOUT) != 0 && (is_done || !s.connecting)) fds[i].revents |= POLLOUT;
      if ((fds[i].events & POLLIN) != 0 && IsReadable(s)) fds[i].revents |= POLLIN;
      if (fds[i].revents != 0) ++ready;
      if (fds[i].revents == 0) next = std::min(next, std::max(NextEventOf(s), S->now + 1));
    }
    if (ready > 0 || S->now >= until) return ready;
    for (nfds_t i = 0; i < count; ++i) SocketOf(fds[i].fd)->poller = current;
    Block(Key{0, 0}, next, "poll");
    for (nfds_t i = 0; i < count; ++i) SocketOf(fds[i].fd)->poller = nullptr;
  }
}

// ---- What -fsanitize=thread calls: each atomic operation is a point
// --------------------------------
#define SIM_ATOMIC(bits, T)                                                               \
  T __tsan_atomic##bits##_load(const volatile T* a, int) {                                \
    Point();                                                                              \
    return __atomic_load_n(a, 5);                                                         \
  }                                                                                       \
  void __tsan_atomic##bits##_store(volatile T* a, T v, int) {                             \
    Point();                                                                              \
    __atomic_store_n(a, v, 5);                                                            \
  }                                                                                       \
  T __tsan_atomic##bits##_exchange(volatile T* a, T v, int) {                             \
    Point();                                                                              \
    return __atomic_exchange_n(a, v, 5);                                                  \
  }                                                                                       \
  T __tsan_atomic##bits##_fetch_add(volatile T* a, T v, int) {                            \
    Point();                                                                              \
    return __atomic_fetch_add(a, v, 5);                                                   \
  }                                                                                       \
  T __tsan_atomic##bits##_fetch_sub(volatile T* a, T v, int) {                            \
    Point();                                                                              \
    return __atomic_fetch_sub(a, v, 5);                                                   \
  }                                                                                       \
  T __tsan_atomic##bits##_fetch_and(volatile T* a, T v, int) {                            \
    Point();                                                                              \
    return __atomic_fetch_and(a, v, 5);                                                   \
  }                                                                                       \
  T __tsan_atomic##bits##_fetch_or(volatile T* a, T v, int) {                             \
    Point();                                                                              \
    return __atomic_fetch_or(a, v, 5);                                                    \
  }                                                                                       \
  T __tsan_atomic##bits##_fetch_xor(volatile T* a, T v, int) {                            \
    Point();                                                                              \
    return __atomic_fetch_xor(a, v, 5);                                                   \
  }                                                                                       \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* e, T v, int, int) { \
    Point();                                                                              \
    return __atomic_compare_exchange_n(a, e, v, 0, 5, 5);                                 \
  }                                                                                       \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* e, T v, int, int) {   \
    Point();                                                                              \
    if (current != nullptr && S->random() % 64 == 0) {                                    \
      *e = __atomic_load_n(a, 5);                                                         \
      return 0;                                                                           \
    }                                                                                     \
    return __atomic_compare_exchange_n(a, e, v, 0, 5, 5);                                 \
  }                                                                                       \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* a, T e, T v, int, int) {       \
    Point();                                                                              \
    __atomic_compare_exchange_n(a, &e, v, 0, 5, 5);                                       \
    return e;                                                                             \
  }
SIM_ATOMIC(8, unsigned char)
SIM_ATOMIC(16, unsigned short)
SIM_ATOMIC(32, unsigned)
SIM_ATOMIC(64, unsigned long)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(5); }
void __tsan_atomic_signal_fence(int) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
static inline void WritePoint() {
  if (current != nullptr && S->options.writes_are_points) Point();
}
#define SIM_ACCESS(n)                                     \
  void __tsan_read##n(void*) {}                           \
  void __tsan_write##n(void*) { WritePoint(); }           \
  void __tsan_unaligned_read##n(void*) {}                 \
  void __tsan_unaligned_write##n(void*) { WritePoint(); } \
  void __tsan_volatile_read##n(void*) {}                  \
  void __tsan_volatile_write##n(void*) {}                 \
  void __tsan_unaligned_volatile_read##n(void*) {}        \
  void __tsan_unaligned_volatile_write##n(void*) {}
SIM_ACCESS(1)
SIM_ACCESS(2) SIM_ACCESS(4) SIM_ACCESS(8) SIM_ACCESS(16) void __tsan_read_range(void*, long) {}
void __tsan_write_range(void*, long) { WritePoint(); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

}  // extern "C"

// std::random_device, whose numbers name sessions.
namespace std {
random_device::result_type random_device::_M_getval() {
  return static_cast<result_type>(S == nullptr ? 4 : S->random());
}
}  // namespace std
