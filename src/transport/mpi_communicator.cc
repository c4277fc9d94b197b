#include "transport/mpi_communicator.h"

#include <atomic>
#include <cstdlib>
#include <list>
#include <thread>
#include <utility>

#include "base/process.h"
#include "base/text.h"
#include "transport/mpi_functions.h"
#include "transport/mpi_messenger.h"

namespace multiverso {
namespace {

// Returns whether this process made the first call, and not its parent before a fork.
bool IsInitialiser() {
  static const int64_t initialiser = ProcessId();
  return ProcessId() == initialiser;
}

std::atomic<bool>& NoEndIsExpected() {
  static std::atomic<bool> is_expected{false};
  return is_expected;
}

// Finalises MPI at process exit, unless an earlier exit handler, such as mpi4py's, has done so.
template <class Handle>
void FinalizeAtExit() {
  // Finalising MPI in a forked child would finalise the parent's MPI too.
  if (!IsInitialiser() || NoEndIsExpected().load()) return;
  const Result<MpiLibrary> library = MpiLibrary::Find("");
  Functions<Handle> mpi{};
  int finalized = 1;
  if (library.ok() && mpi.Load(library.value()).ok() && mpi.Finalized(&finalized) == kMpiSuccess &&
      finalized == 0) {
    mpi.Finalize();
  }
}

// Keeps the count out of duplicates, since a duplicate is another communicator with its own count.
template <class Handle>
int IsNotCopied(Handle /*old*/, int /*key*/, void* /*state*/, void* /*value*/, void* /*copy*/,
                int* is_copied) {
  *is_copied = 0;
  return kMpiSuccess;
}

template <class Handle>
int NeedsNoEnd(Handle /*comm*/, int /*key*/, void* /*value*/, void* /*state*/) {
  return kMpiSuccess;
}

template <class Handle>
class CommunicatorOf final : public MpiCommunicator {
 public:
  Status Load(const MpiLibrary& library, const void* handle) {
    MV_RETURN_IF_NOT_OK(mpi_.Load(library));
    constants_ = ConstantsOf(library, Handle{});
    comm_ = handle == nullptr ? constants_.world : *static_cast<const Handle*>(handle);
    int yes = 0;
    MV_RETURN_IF_NOT_OK(Check(mpi_.Finalized(&yes), "MPI_Finalized"));
    if (yes != 0) return Status(Code::kState, "MPI has been finalised in this process");
    MV_RETURN_IF_NOT_OK(Check(mpi_.Initialized(&yes), "MPI_Initialized"));
    if (yes == 0) {
      (void)IsInitialiser();
      int provided = 0;
      MV_RETURN_IF_NOT_OK(
          Check(mpi_.Init_thread(nullptr, nullptr, kThreadMultiple, &provided), "MPI_Init_thread"));
      std::atexit(FinalizeAtExit<Handle>);
    }
    char text[8192] = {};
    int length = 0;
    if (mpi_.Get_library_version(text, &length) == kMpiSuccess) {
      description_ = std::string(text).substr(0, std::string(text).find_first_of("\r\n"));
    }
    description_ += " (" + library.path() + ")";
    MV_RETURN_IF_NOT_OK(Check(mpi_.Comm_rank(comm_, &rank_), "MPI_Comm_rank"));
    return Check(mpi_.Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string Describe() const override { return description_; }

  Status CountUse(int64_t* count) override {
    // The count is an attribute, since MPI may reuse the handle of a freed communicator.
    static const int key = [this] {
      int made = -1;
      const int code =
          mpi_.Comm_create_keyval(IsNotCopied<Handle>, NeedsNoEnd<Handle>, &made, nullptr);
      return code == kMpiSuccess ? made : -1;
    }();
    if (key == -1) return Status(Code::kTransport, "MPI_Comm_create_keyval failed");
    void* value = nullptr;
    int is_there = 0;
    MV_RETURN_IF_NOT_OK(
        Check(mpi_.Comm_get_attr(comm_, key, &value, &is_there), "MPI_Comm_get_attr"));
    // The attribute is the number itself and not a pointer.
    *count = (is_there != 0 ? reinterpret_cast<intptr_t>(value) : 0) + 1;
    return Check(
        mpi_.Comm_set_attr(comm_, key, reinterpret_cast<void*>(static_cast<intptr_t>(*count))),
        "MPI_Comm_set_attr");
  }

  Status Send(int to, int tag, std::string bytes) override {
    outgoing_.push_back(Outgoing{std::move(bytes), Handle{}});
    Outgoing& message = outgoing_.back();
    return Check(mpi_.Isend(message.bytes.data(), static_cast<int>(message.bytes.size()),
                            constants_.byte, to, tag, comm_, &message.request),
                 "MPI_Isend");
  }

  Status TryReceive(int tag, const WaitLimit& limit, std::string* bytes, bool* got) override {
    *got = false;
    int flag = 0;
    Handle message{};
    OpaqueStatus status{};
    MV_RETURN_IF_NOT_OK(Check(
        mpi_.Improbe(constants_.any_source, tag, comm_, &flag, &message, &status), "MPI_Improbe"));
    if (flag == 0) return Status::Ok();
    int count = 0;
    MV_RETURN_IF_NOT_OK(Check(mpi_.Get_count(&status, constants_.byte, &count), "MPI_Get_count"));
    bytes->resize(static_cast<size_t>(count));
    Handle request{};
    MV_RETURN_IF_NOT_OK(Check(
        mpi_.Imrecv(bytes->data(), count, constants_.byte, &message, &request), "MPI_Imrecv"));
    // The message is matched, so MPI already transfers it and this wait depends on no program.
    for (flag = 0; flag == 0;) {
      MV_RETURN_IF_NOT_OK(Check(mpi_.Test(&request, &flag, &status), "MPI_Test"));
      if (flag == 0 && Clock::now() >= limit.deadline) {
        return Status(Code::kTimeout, "a message from another rank began to arrive and stopped");
      }
      if (flag == 0) std::this_thread::yield();
    }
    *got = true;
    return Status::Ok();
  }

  Status Advance() override {
    for (auto message = outgoing_.begin(); message != outgoing_.end();) {
      int flag = 0;
      OpaqueStatus status{};
      MV_RETURN_IF_NOT_OK(Check(mpi_.Test(&message->request, &flag, &status), "MPI_Test"));
      message = flag != 0 ? outgoing_.erase(message) : std::next(message);
    }
    return Status::Ok();
  }

  bool AllSent() const override { return outgoing_.empty(); }

  Status CheckThreadLevel() const override {
    int level = 0;
    MV_RETURN_IF_NOT_OK(Check(mpi_.Query_thread(&level), "MPI_Query_thread"));
    if (level == kThreadMultiple) return Status::Ok();
    static constexpr const char* kNames[] = {"SINGLE", "FUNNELED", "SERIALIZED"};
    return Status(
        Code::kUnsupported,
        StrCat("a job that spans nodes needs MPI_THREAD_MULTIPLE, and MPI was initialised "
               "with MPI_THREAD_",
               level >= 0 && level < 3 ? kNames[level] : "?",
               ": initialise it with MPI_Init_thread(..., MPI_THREAD_MULTIPLE), which is "
               "mpi4py's default"));
  }

  Status BeginDuplicate() override {
    return Check(mpi_.Comm_idup(comm_, &duplicate_, &duplication_), "MPI_Comm_idup");
  }

  Status PollDuplicate(std::unique_ptr<Messenger>* messenger) override {
    int flag = 0;
    OpaqueStatus status{};
    MV_RETURN_IF_NOT_OK(Check(mpi_.Test(&duplication_, &flag, &status), "MPI_Test"));
    if (flag == 0) return Status::Pending();
    MV_RETURN_IF_NOT_OK(Check(mpi_.Comm_set_errhandler(duplicate_, constants_.errors_return),
                              "MPI_Comm_set_errhandler"));
    auto made = std::make_unique<MpiMessenger<Handle>>(mpi_, constants_, duplicate_, rank_, size_);
    MV_RETURN_IF_NOT_OK(made->WatchForFinalize());
    *messenger = std::move(made);
    return Status::Ok();
  }

 private:
  struct Outgoing {
    std::string bytes;
    Handle request;
  };

  Status Check(int code, const char* function) const { return mpi_.Check(code, function); }

  Functions<Handle> mpi_{};
  Constants<Handle> constants_{};
  Handle comm_{};
  Handle duplicate_{};
  Handle duplication_{};  // the request of MPI_Comm_idup
  int rank_ = 0;
  int size_ = 1;
  std::string description_;
  std::list<Outgoing> outgoing_;  // a list, since MPI holds pointers to its elements
};

template <class Handle>
Result<std::unique_ptr<MpiCommunicator>> OpenAs(const MpiLibrary& library, const void* handle) {
  auto communicator = std::make_unique<CommunicatorOf<Handle>>();
  MV_RETURN_IF_NOT_OK(communicator->Load(library, handle));
  return std::unique_ptr<MpiCommunicator>(std::move(communicator));
}

}  // namespace

void MpiCommunicator::ExpectNoEnd() { NoEndIsExpected().store(true); }

Result<std::unique_ptr<MpiCommunicator>> MpiCommunicator::Open(const MpiLibrary& library,
                                                               const void* handle) {
  return library.family() == MpiFamily::kOpenMpi ? OpenAs<void*>(library, handle)
                                                 : OpenAs<int>(library, handle);
}

}  // namespace multiverso
