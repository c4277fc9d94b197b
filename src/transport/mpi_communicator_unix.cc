#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <thread>
#include <utility>

#include "base/exit_deadline.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "transport/exit_meeting.h"
#include "transport/mpi_communicator.h"
#include "transport/mpi_files.h"
#include "transport/mpi_functions.h"
#include "transport/mpi_messenger.h"

namespace multiverso {
namespace {

// Returns whether this process made the first call of this function, and not its parent before a
// fork. The process that initializes MPI makes that call.
bool IsInitializer() {
  static const int64_t initializer = ProcessId();
  return ProcessId() == initializer;
}

std::atomic<bool>& SkipsFinalize() {
  static std::atomic<bool> skips{false};
  return skips;
}

// The launcher discards output that it has not read when the job ends.
constexpr std::chrono::milliseconds kAbortGrace{500};

struct Exit {
  std::unique_ptr<ExitMeeting> meeting;  // null before, and after it has taken place
  void (*abort_with)(int code) = nullptr;
  std::chrono::milliseconds timeout{0};  // of the last session
};

// Never destroyed, because exit handlers use it.
Exit& AtExit() {
  static auto* const at_exit = new Exit;
  return *at_exit;
}

// Ends the job with the exit code of this process, unless that is 0. A launcher that sees a process
// fail without MPI_Finalize ends the others, but may then report the code with which they ended.
template <class Handle>
void AbortWith(int code) {
  const Result<MpiLibrary> library = MpiLibrary::Find("");
  MpiFunctions<Handle> mpi{};
  if (code == 0 || !library.ok() || !mpi.Load(library.value()).ok()) return;
  std::fflush(nullptr);
  std::this_thread::sleep_for(kAbortGrace);
  mpi.Abort(ConstantsOf(library.value(), Handle{}).world, code);
}

// Finalizes MPI at process exit, unless an earlier exit handler, such as mpi4py's, has done so.
template <class Handle>
void FinalizeAtExit() {
  // A forked child that finalized MPI would finalize the parent's MPI too.
  if (!IsInitializer() || SkipsFinalize().load()) return;
  const Result<MpiLibrary> library = MpiLibrary::Find("");
  MpiFunctions<Handle> mpi{};
  int finalized = 1;
  if (library.ok() && mpi.Load(library.value()).ok() && mpi.Finalized(&finalized) == kMpiSuccess &&
      finalized == 0) {
    const Status met = MpiCommunicator::MeetAtExit(AtExit().timeout);
    if (!met.ok()) {
      LogWarning(met.text());
      return;
    }
    const ExitDeadline deadline("MPI_Finalize", AtExit().timeout);
    mpi.Finalize();
  }
}

template <class Handle>
class CommunicatorOf final : public MpiCommunicator {
 public:
  Status Load(const MpiLibrary& library, const void* handle, std::chrono::milliseconds timeout) {
    MV_RETURN_IF_NOT_OK(mpi_.Load(library));
    constants_ = ConstantsOf(library, Handle{});
    comm_ = handle == nullptr ? constants_.world : *static_cast<const Handle*>(handle);
    AtExit().timeout = timeout;
    int is_finalized = 0;
    MV_RETURN_IF_NOT_OK(Check(mpi_.Finalized(&is_finalized), "MPI_Finalized"));
    if (is_finalized != 0) return Status(Code::kState, "MPI has been finalized in this process");
    int is_initialized = 0;
    MV_RETURN_IF_NOT_OK(Check(mpi_.Initialized(&is_initialized), "MPI_Initialized"));
    if (is_initialized == 0) {
      (void)IsInitializer();
      int provided = 0;
      const ExitDeadline deadline("MPI_Init_thread", timeout);
      MV_RETURN_IF_NOT_OK(
          Check(mpi_.Init_thread(nullptr, nullptr, kThreadMultiple, &provided), "MPI_Init_thread"));
      std::atexit(FinalizeAtExit<Handle>);
    }
    char text[8192] = {};  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH, which is the larger one
    int length = 0;
    if (mpi_.Get_library_version(text, &length) == kMpiSuccess) {
      description_ = std::string(text).substr(0, std::string(text).find_first_of("\r\n"));
    }
    description_ += " (" + library.path() + ")";
    MV_RETURN_IF_NOT_OK(Check(mpi_.Comm_size(constants_.world, &job_size_), "MPI_Comm_size"));
    MV_RETURN_IF_NOT_OK(Check(mpi_.Comm_rank(comm_, &rank_), "MPI_Comm_rank"));
    return Check(mpi_.Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string Describe() const override { return description_; }

  Status CountUse(int64_t* count) override {
    // The count is an attribute, since MPI may reuse the handle of a freed communicator. Duplicates
    // are other communicators with their own counts, so the attribute is not copied.
    static const int key = [this] {
      const auto delete_nothing = [](Handle, int, void*, void*) { return kMpiSuccess; };
      int new_key = -1;
      const int code =
          mpi_.Comm_create_keyval(CopyNoAttribute<Handle>, delete_nothing, &new_key, nullptr);
      return code == kMpiSuccess ? new_key : -1;
    }();
    if (key == -1) return Status(Code::kTransport, "MPI_Comm_create_keyval failed");
    void* value = nullptr;
    int has_count = 0;
    MV_RETURN_IF_NOT_OK(
        Check(mpi_.Comm_get_attr(comm_, key, &value, &has_count), "MPI_Comm_get_attr"));
    // The attribute's value is the count itself, not a pointer to it.
    *count = (has_count != 0 ? reinterpret_cast<intptr_t>(value) : 0) + 1;
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

  Status TryReceive(int tag, Instant deadline, std::string* bytes, bool* got) override {
    *got = false;
    int flag = 0;
    Handle message{};
    OpaqueStatus status{};
    MV_RETURN_IF_NOT_OK(Check(
        mpi_.Improbe(constants_.any_source, tag, comm_, &flag, &message, &status), "MPI_Improbe"));
    if (flag == 0) return Status::Ok();
    int count = 0;
    MV_RETURN_IF_NOT_OK(Check(mpi_.Get_count(&status, constants_.byte, &count), "MPI_Get_count"));
    const Status received = mpi_.ReceiveMatched(&message, count, constants_.byte, deadline, bytes);
    *got = received.ok();
    if (!received.pending()) return received;
    return Status(Code::kTimeout, "a message from another rank began to arrive and stopped");
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

  Status CheckCanDuplicate() const override {
    int level = 0;
    MV_RETURN_IF_NOT_OK(Check(mpi_.Query_thread(&level), "MPI_Query_thread"));
    if (level == kThreadMultiple) return Status::Ok();
    static constexpr const char* kNames[] = {"SINGLE", "FUNNELED", "SERIALIZED"};
    return Status(
        Code::kUnsupported,
        StrCat("a job that spans nodes needs MPI_THREAD_MULTIPLE, and MPI was initialized "
               "with MPI_THREAD_",
               level >= 0 && level < 3 ? kNames[level] : "?",
               ": initialize it with MPI_Init_thread(..., MPI_THREAD_MULTIPLE), which is "
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
    auto opened =
        std::make_unique<MpiMessenger<Handle>>(mpi_, constants_, duplicate_, rank_, size_);
    MV_RETURN_IF_NOT_OK(opened->WatchForFinalize());
    *messenger = std::move(opened);
    return Status::Ok();
  }

  bool EndsTogether() const override { return size_ == job_size_; }

  void KeepForExit(std::unique_ptr<Messenger> messenger) override {
    AtExit().meeting = std::make_unique<ExitMeeting>(std::move(messenger));
    AtExit().abort_with = &AbortWith<Handle>;
  }

 private:
  struct Outgoing {
    std::string bytes;
    Handle request;
  };

  Status Check(int code, const char* function) const { return mpi_.Check(code, function); }

  MpiFunctions<Handle> mpi_{};
  MpiConstants<Handle> constants_{};
  Handle comm_{};
  Handle duplicate_{};
  Handle duplication_{};  // the request of MPI_Comm_idup
  int rank_ = 0;
  int size_ = 1;
  int job_size_ = 1;
  std::string description_;
  std::list<Outgoing> outgoing_;  // a list, since MPI holds pointers to its elements
};

template <class Handle>
Result<std::unique_ptr<Communicator>> OpenAs(const MpiLibrary& library, const void* handle,
                                             std::chrono::milliseconds timeout) {
  auto communicator = std::make_unique<CommunicatorOf<Handle>>();
  MV_RETURN_IF_NOT_OK(communicator->Load(library, handle, timeout));
  return std::unique_ptr<Communicator>(std::move(communicator));
}

// Returns the number of ranks that the launcher's environment variable gives, and sets *variable to
// its name. Returns 1 if no variable gives more.
int RanksLaunched(const char** variable) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && std::atoi(value) > 1) {
      *variable = name;
      return std::atoi(value);
    }
  }
  return 1;
}

}  // namespace

void MpiCommunicator::SkipFinalizeAtExit(bool skips) { SkipsFinalize().store(skips); }

Status MpiCommunicator::MeetAtExit(std::chrono::milliseconds timeout) {
  const std::unique_ptr<ExitMeeting> meeting = std::move(AtExit().meeting);
  if (meeting == nullptr) return Status::Ok();
  const Status met = meeting->Run(timeout);
  if (met.ok()) return met;
  SkipFinalizeAtExit(true);
  RemoveFilesOfMpi();
  (void)CallWithExitCode(AtExit().abort_with);
  return met;
}

Result<std::unique_ptr<Communicator>> MpiCommunicator::Open(const std::string& path,
                                                            const void* handle,
                                                            std::chrono::milliseconds timeout) {
  const Result<MpiLibrary> library = MpiLibrary::Find(path);
  if (!library.ok()) return library.status();
  auto communicator = library.value().family() == MpiFamily::kOpenMpi
                          ? OpenAs<void*>(library.value(), handle, timeout)
                          : OpenAs<int>(library.value(), handle, timeout);
  if (!communicator.ok() || handle != nullptr || communicator.value()->size() > 1) {
    return communicator;
  }
  const char* variable = "";
  const int launched = RanksLaunched(&variable);
  if (launched == 1) return communicator;
  return Status(Code::kLauncher, StrCat("the launcher started ", launched, " ranks (", variable,
                                        ") but ", communicator.value()->Describe(),
                                        " sees one: use the mpirun that belongs to this MPI"));
}

}  // namespace multiverso
