// The MPI functions and constants that Multiverso uses, declared here because there is no mpi.h at
// build time. Handles are pointers in Open MPI, and ints in MPICH and every MPI that shares the
// binary interface of MPICH.
#pragma once

#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "transport/mpi_library.h"

namespace multiverso {

constexpr int kThreadMultiple = 3;  // MPI_THREAD_MULTIPLE in both families
constexpr int kMpiSuccess = 0;
constexpr int kAnyTag = -1;  // MPI_ANY_TAG in both families

// Room for an MPI_Status, which has at most 64 bytes in both families. Only MPI uses the bytes.
struct alignas(16) OpaqueStatus {
  char bytes[64];
};

// The constants that differ between the families. The numbers are part of MPICH's binary interface.
template <class Handle>
struct MpiConstants {
  Handle world;
  Handle self;
  Handle byte;
  Handle errors_return;
  int any_source;
};

inline MpiConstants<void*> ConstantsOf(const MpiLibrary& library, void* /*chooses the overload*/) {
  return {library.Symbol("ompi_mpi_comm_world"), library.Symbol("ompi_mpi_comm_self"),
          library.Symbol("ompi_mpi_byte"), library.Symbol("ompi_mpi_errors_return"), -1};
}

inline MpiConstants<int> ConstantsOf(const MpiLibrary& /*library*/, int /*chooses the overload*/) {
  return {0x44000000, 0x44000001, 0x4c00010d, 0x54000001, -2};
}

// For MPI_Comm_create_keyval: keeps the attribute out of duplicates of the communicator.
template <class Handle>
int CopyNoAttribute(Handle, int, void*, void*, void*, int* is_copied) {
  *is_copied = 0;
  return kMpiSuccess;
}

// The functions; their names lack the prefix MPI_.
template <class Handle>
struct MpiFunctions {
  int (*Initialized)(int*);
  int (*Finalized)(int*);
  int (*Init_thread)(int*, char***, int, int*);
  int (*Finalize)();
  int (*Abort)(Handle, int);
  int (*Get_library_version)(char*, int*);
  int (*Error_string)(int, char*, int*);
  int (*Query_thread)(int*);
  int (*Comm_rank)(Handle, int*);
  int (*Comm_size)(Handle, int*);
  int (*Comm_idup)(Handle, Handle*, Handle*);
  int (*Comm_free)(Handle*);
  int (*Comm_set_errhandler)(Handle, Handle);
  int (*Comm_create_keyval)(int (*)(Handle, int, void*, void*, void*, int*),
                            int (*)(Handle, int, void*, void*), int*, void*);
  int (*Comm_free_keyval)(int*);
  int (*Comm_get_attr)(Handle, int, void*, int*);
  int (*Comm_set_attr)(Handle, int, void*);
  int (*Comm_delete_attr)(Handle, int);
  int (*Isend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*Irecv)(void*, int, Handle, int, int, Handle, Handle*);
  int (*Improbe)(int, int, Handle, int*, Handle*, OpaqueStatus*);
  int (*Imrecv)(void*, int, Handle, Handle*, Handle*);
  int (*Ialltoall)(const void*, int, Handle, void*, int, Handle, Handle, Handle*);
  int (*Get_count)(const OpaqueStatus*, Handle, int*);
  int (*Test)(Handle*, int*, OpaqueStatus*);
  int (*Cancel)(Handle*);
  int (*Test_cancelled)(const OpaqueStatus*, int*);

  Status Load(const MpiLibrary& library) {
    Status status;
    const auto load = [&](auto* function, const char* name) {
      *function =
          reinterpret_cast<std::remove_reference_t<decltype(*function)>>(library.Symbol(name));
      if (*function == nullptr && status.ok()) {
        status = Status(Code::kLauncher,
                        StrCat(library.path(), " has no ", name, ": MPI 3.0 or later is needed"));
      }
    };
    load(&Initialized, "MPI_Initialized");
    load(&Finalized, "MPI_Finalized");
    load(&Init_thread, "MPI_Init_thread");
    load(&Finalize, "MPI_Finalize");
    load(&Abort, "MPI_Abort");
    load(&Get_library_version, "MPI_Get_library_version");
    load(&Error_string, "MPI_Error_string");
    load(&Query_thread, "MPI_Query_thread");
    load(&Comm_rank, "MPI_Comm_rank");
    load(&Comm_size, "MPI_Comm_size");
    load(&Comm_idup, "MPI_Comm_idup");
    load(&Comm_free, "MPI_Comm_free");
    load(&Comm_set_errhandler, "MPI_Comm_set_errhandler");
    load(&Comm_create_keyval, "MPI_Comm_create_keyval");
    load(&Comm_free_keyval, "MPI_Comm_free_keyval");
    load(&Comm_get_attr, "MPI_Comm_get_attr");
    load(&Comm_set_attr, "MPI_Comm_set_attr");
    load(&Comm_delete_attr, "MPI_Comm_delete_attr");
    load(&Isend, "MPI_Isend");
    load(&Irecv, "MPI_Irecv");
    load(&Improbe, "MPI_Improbe");
    load(&Imrecv, "MPI_Imrecv");
    load(&Ialltoall, "MPI_Ialltoall");
    load(&Get_count, "MPI_Get_count");
    load(&Test, "MPI_Test");
    load(&Cancel, "MPI_Cancel");
    load(&Test_cancelled, "MPI_Test_cancelled");
    return status;
  }

  // Receives a message of `count` bytes that Improbe has matched. It arrives soon, unless its
  // sender is suspended or dies. Returns pending at the deadline; then the buffer is leaked, since
  // MPI may still write to it.
  Status ReceiveMatched(Handle* message, int count, Handle byte, Instant deadline,
                        std::string* bytes) const {
    bytes->reserve(64);  // on the heap, where the buffer keeps its address when it is leaked
    bytes->resize(static_cast<size_t>(count));
    Handle request{};
    MV_RETURN_IF_NOT_OK(Check(Imrecv(bytes->data(), count, byte, message, &request), "MPI_Imrecv"));
    OpaqueStatus status{};
    for (int flag = 0;;) {
      MV_RETURN_IF_NOT_OK(Check(Test(&request, &flag, &status), "MPI_Test"));
      if (flag != 0) return Status::Ok();
      if (Clock::now() >= deadline) {
        (void)new std::string(std::move(*bytes));  // NOLINT: see above
        return Status::Pending();
      }
      std::this_thread::yield();
    }
  }

  // Returns the error that `code`, the result of `function`, means.
  Status Check(int code, const char* function) const {
    if (code == kMpiSuccess) return Status::Ok();
    char text[1024] = {};
    int length = 0;
    Error_string(code, text, &length);
    return Status(Code::kTransport, StrCat(function, ": ", text));
  }
};

}  // namespace multiverso
