// MpiMessenger: a Messenger over an MPI communicator of its own, for one type of MPI handles.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/backoff.h"
#include "base/clock.h"
#include "transport/messenger.h"
#include "transport/mpi_functions.h"

namespace multiverso {

// Keeps threads from calling MPI after MPI_Finalize. MPI_Finalize first deletes the attributes of
// MPI_COMM_SELF, so the deletion of an attribute closes the gate.
struct MpiGate {
  std::shared_timed_mutex mutex;  // held shared during a call
  // Set before Close waits for the calls in flight, so that a polling thread cannot keep Close
  // waiting with new calls.
  std::atomic<bool> is_closed{false};

  // A call of MPI in flight. Converts to false if the gate is closed: MPI must not be called.
  class Call {
   public:
    explicit Call(MpiGate* gate) : lock_(gate->mutex, std::defer_lock) {
      if (gate->is_closed.load()) return;
      lock_.lock();
      if (gate->is_closed.load()) lock_.unlock();
    }
    explicit operator bool() const { return lock_.owns_lock(); }

   private:
    std::shared_lock<std::shared_timed_mutex> lock_;
  };

  static Status ClosedError() {
    return Status(Code::kState, "MPI was finalized while a session that spans nodes was open");
  }

  // Called when the attribute is deleted. Deletes `value`, a std::shared_ptr<MpiGate>* that the
  // attribute owns.
  template <class Handle>
  static int Close(Handle, int, void* value, void*) {
    const std::unique_ptr<std::shared_ptr<MpiGate>> gate(
        static_cast<std::shared_ptr<MpiGate>*>(value));
    (*gate)->is_closed.store(true);
    // A call of MPI that takes longer hangs, and MPI_Finalize must not wait for a hanging call.
    if ((*gate)->mutex.try_lock_for(std::chrono::seconds(10))) (*gate)->mutex.unlock();
    return kMpiSuccess;
  }
};

// MPI_THREAD_MULTIPLE makes MPI's own functions thread-safe, so no lock serializes the calls.
template <class Handle>
class MpiMessenger final : public Messenger {
 public:
  // Takes ownership of `comm`.
  MpiMessenger(const MpiFunctions<Handle>& mpi, const MpiConstants<Handle>& constants, Handle comm,
               int rank, int size)
      : mpi_(mpi),
        constants_(constants),
        comm_(comm),
        rank_(rank),
        size_(size),
        sent_(static_cast<size_t>(size)) {}

  // Makes MPI_Finalize close the gate. Call this before any other function.
  Status WatchForFinalize() {
    MV_RETURN_IF_NOT_OK(
        mpi_.Check(mpi_.Comm_create_keyval(&CopyNoAttribute<Handle>, &MpiGate::Close<Handle>,
                                           &keyval_, nullptr),
                   "MPI_Comm_create_keyval"));
    auto value = std::make_unique<std::shared_ptr<MpiGate>>(gate_);
    MV_RETURN_IF_NOT_OK(
        mpi_.Check(mpi_.Comm_set_attr(constants_.self, keyval_, value.get()), "MPI_Comm_set_attr"));
    (void)value.release();  // NOLINT: MpiGate::Close deletes it
    return Status::Ok();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status Send(int to, int tag, const void* data, int64_t bytes, Ticket* ticket) override {
    const MpiGate::Call calling(gate_.get());
    if (!calling) return MpiGate::ClosedError();
    MV_RETURN_IF_NOT_OK(CheckAlive(to, tag));
    Handle request{};
    MV_RETURN_IF_NOT_OK(mpi_.Check(
        mpi_.Isend(data, static_cast<int>(bytes), constants_.byte, to, tag, comm_, &request),
        "MPI_Isend"));
    sent_[static_cast<size_t>(to)].fetch_add(1, std::memory_order_relaxed);
    return Open(request, ticket);
  }

  Status Receive(int from, int tag, void* buffer, int64_t bytes, Ticket* ticket) override {
    const MpiGate::Call calling(gate_.get());
    if (!calling) return MpiGate::ClosedError();
    Handle request{};
    MV_RETURN_IF_NOT_OK(mpi_.Check(
        mpi_.Irecv(buffer, static_cast<int>(bytes), constants_.byte, from, tag, comm_, &request),
        "MPI_Irecv"));
    received_.fetch_add(1, std::memory_order_relaxed);
    return Open(request, ticket);
  }

  Status Test(Ticket* ticket, bool* done, int64_t* received) override {
    const MpiGate::Call calling(gate_.get());
    if (!calling) {
      // MPI no longer uses the bytes after MPI_Finalize, so the message is over.
      *done = true;
      ticket->is_open = false;
      return MpiGate::ClosedError();
    }
    Handle request = RequestOf(*ticket);
    OpaqueStatus status{};
    int flag = 0;
    const int code = mpi_.Test(&request, &flag, &status);
    *done = code != kMpiSuccess || flag != 0;
    if (*done) {
      ticket->is_open = false;
      int count = 0;
      if (code == kMpiSuccess && mpi_.Get_count(&status, constants_.byte, &count) == kMpiSuccess) {
        *received = count;
      }
    } else {
      (void)Open(request, ticket);
    }
    return mpi_.Check(code, "MPI_Test");
  }

  Withdrawn Withdraw(Ticket* ticket) override {
    if (!ticket->is_open) return Withdrawn::kReceived;
    const MpiGate::Call calling(gate_.get());
    if (!calling) {
      ticket->is_open = false;
      return Withdrawn::kReceived;
    }
    Handle request = RequestOf(*ticket);
    mpi_.Cancel(&request);
    // MPI cancels a receive locally, so a few tests show its end unless a message has matched.
    OpaqueStatus status{};
    int flag = 0;
    for (int tests = 0; tests < 100 && flag == 0; ++tests) {
      if (mpi_.Test(&request, &flag, &status) != kMpiSuccess) flag = 1;
    }
    if (flag == 0) {
      (void)Open(request, ticket);
      return Withdrawn::kArriving;
    }
    ticket->is_open = false;
    int cancelled = 0;
    mpi_.Test_cancelled(&status, &cancelled);
    if (cancelled == 0) return Withdrawn::kReceived;
    received_.fetch_sub(1, std::memory_order_relaxed);
    return Withdrawn::kCancelled;
  }

  Status Take(int from, int tag, int64_t max_bytes, std::string* bytes, bool* got) override {
    const MpiGate::Call calling(gate_.get());
    if (!calling) return MpiGate::ClosedError();
    Handle message{};
    int count = 0;
    MV_RETURN_IF_NOT_OK(Probe(from, tag, &message, &count, got));
    if (!*got) return Status::Ok();
    // A message that is too long is received into an empty buffer, and MPI's error is ignored.
    const bool fits = count >= 0 && count <= max_bytes;
    const Status received = mpi_.ReceiveMatched(&message, fits ? count : 0, constants_.byte,
                                                Clock::now() + std::chrono::seconds(5), bytes);
    if (received.pending()) {
      return Status(Code::kTransport, "a message from another rank began to arrive and stopped");
    }
    *got = !fits || received.ok();
    return fits ? received : Status::Ok();
  }

  Status Accept(int from, int tag, int64_t max_bytes, std::string* bytes, Ticket* ticket,
                bool* got) override {
    const MpiGate::Call calling(gate_.get());
    if (!calling) return MpiGate::ClosedError();
    Handle message{};
    int count = 0;
    MV_RETURN_IF_NOT_OK(Probe(from, tag, &message, &count, got));
    if (!*got) return Status::Ok();
    bytes->resize(static_cast<size_t>(count >= 0 && count <= max_bytes ? count : 0));
    Handle request{};
    MV_RETURN_IF_NOT_OK(mpi_.Check(mpi_.Imrecv(bytes->data(), static_cast<int>(bytes->size()),
                                               constants_.byte, &message, &request),
                                   "MPI_Imrecv"));
    return Open(request, ticket);
  }

  void Close() override {
    {
      const MpiGate::Call calling(gate_.get());
      if (!calling || !ReceiveRest(Clock::now() + kMaxRest)) return;
      mpi_.Comm_free(&comm_);
    }
    // Deleting the attribute closes the gate, which waits for all calls, so the Call above is over.
    mpi_.Comm_delete_attr(constants_.self, keyval_);
    mpi_.Comm_free_keyval(&keyval_);
  }

 private:
  static_assert(sizeof(Handle) <= sizeof(Ticket::handle));

  // How long Close waits for the messages that are still on their way.
  static constexpr std::chrono::seconds kMaxRest{2};
  static constexpr std::chrono::milliseconds kRestNap{1};  // the longest sleep meanwhile

  // Numbers of messages modulo 2^32: those that this rank sent to each rank, and those that each
  // rank sent to this one.
  struct Counts {
    std::vector<uint32_t> sent;
    std::vector<uint32_t> expected;
  };

  // Completes the posted messages, and receives and drops the messages of other ranks for which
  // nobody here waits, such as the last heartbeats. Returns false if some have not arrived by the
  // deadline. Then the communicator must be kept: MPI gives the number of a freed communicator to a
  // later one, which would take these messages for its own and lose as many others.
  bool ReceiveRest(Instant deadline) {
    auto counts = std::make_unique<Counts>();
    for (const auto& sent : sent_) counts->sent.push_back(sent.load());
    counts->expected.resize(counts->sent.size());
    Handle request{};
    if (mpi_.Ialltoall(counts->sent.data(), sizeof(uint32_t), constants_.byte,
                       counts->expected.data(), sizeof(uint32_t), constants_.byte, comm_,
                       &request) != kMpiSuccess) {
      return false;
    }
    int knows_counts = 0;
    const Status received = PollUntil(deadline, Backoff(kRestNap), [&]() -> Status {
      OpaqueStatus status{};
      if (knows_counts == 0) {
        MV_RETURN_IF_NOT_OK(mpi_.Check(mpi_.Test(&request, &knows_counts, &status), "MPI_Test"));
      }
      MV_RETURN_IF_NOT_OK(DropArrived(deadline));
      if (!Advance() || knows_counts == 0) return Status::Pending();
      uint32_t expected = 0;
      for (const uint32_t count : counts->expected) expected += count;
      return expected == received_.load() ? Status::Ok() : Status::Pending();
    });
    if (knows_counts == 0) (void)counts.release();  // NOLINT: MPI may still use the memory
    return received.ok();
  }

  Status DropArrived(Instant deadline) {
    for (;;) {
      Handle message{};
      int count = 0;
      bool got = false;
      std::string dropped;
      MV_RETURN_IF_NOT_OK(Probe(kAnyRank, kAnyTag, &message, &count, &got));
      if (!got) return Status::Ok();
      MV_RETURN_IF_NOT_OK(
          mpi_.ReceiveMatched(&message, count, constants_.byte, deadline, &dropped));
    }
  }

  // Matches the next message, if there is one, and finds its size.
  Status Probe(int from, int tag, Handle* message, int* count, bool* got) {
    int flag = 0;
    OpaqueStatus status{};
    *got = false;
    MV_RETURN_IF_NOT_OK(mpi_.Check(mpi_.Improbe(from == kAnyRank ? constants_.any_source : from,
                                                tag, comm_, &flag, message, &status),
                                   "MPI_Improbe"));
    if (flag == 0) return Status::Ok();
    *got = true;
    received_.fetch_add(1, std::memory_order_relaxed);
    return mpi_.Check(mpi_.Get_count(&status, constants_.byte, count), "MPI_Get_count");
  }

  static Handle RequestOf(const Ticket& ticket) {
    Handle request{};
    std::memcpy(&request, &ticket.handle, sizeof(request));
    return request;
  }
  static Status Open(Handle request, Ticket* ticket) {
    ticket->handle = 0;
    std::memcpy(&ticket->handle, &request, sizeof(request));
    ticket->is_open = true;
    return Status::Ok();
  }

  MpiFunctions<Handle> mpi_;
  MpiConstants<Handle> constants_;
  Handle comm_;
  int rank_;
  int size_;
  int keyval_ = 0;
  std::vector<std::atomic<uint32_t>> sent_;  // by rank; see Counts
  std::atomic<uint32_t> received_{0};        // includes the receives in flight
  std::shared_ptr<MpiGate> gate_ = std::make_shared<MpiGate>();
};

}  // namespace multiverso
