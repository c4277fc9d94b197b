// The part of the C API that reads the tables of a session from other processes.
#include <chrono>
#include <memory>
#include <utility>

#include "c_api/guard.h"
#include "c_api/registry.h"
#include "c_api/table_call.h"
#include "multiverso/c_api.h"
#include "numbers/half.h"
#include "reader/job_reader.h"

namespace multiverso::c_api {
namespace {

// How long a read may be disturbed by writers.
constexpr auto kReadTimeout = std::chrono::seconds(30);

using ReaderHandles = HandleTable<MV_Reader, JobReader>;

ReaderHandles& Readers() {
  return HandlesOf<ReaderHandles>("reader", [](JobReader* reader) { reader->ForgetInChild(); });
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_ReaderOpen(const char* name, int64_t pid, MV_Reader* reader) {
  return Guard([&]() -> Status {
    if (reader == nullptr || (name == nullptr) == (pid <= 0)) {
      return Status(Code::kValue, "MV_ReaderOpen: expected a name, or null and a process id");
    }
    MV_RETURN_IF_NOT_OK(WatchForks());
    MV_ASSIGN_OR_RETURN(auto attached,
                        JobReader::Attach(name == nullptr ? "" : name, name == nullptr ? pid : 0));
    return Readers().Open(std::move(attached), reader);
  });
}

int32_t MV_ReaderDescribe(MV_Reader reader, char* json, int64_t room, int64_t* length) {
  return Readers().With(
      reader, [&](JobReader* used) { return WriteText(used->Json(), json, room, length); });
}

int32_t MV_ReaderRun(MV_Reader reader, int64_t table, int64_t version, const char* operation,
                     const int64_t* row_ids, int64_t num_ids, void* out, int64_t count) {
  return Readers().With(reader, [&](JobReader* used, Interrupt* interrupt) -> Status {
    MV_ASSIGN_OR_RETURN(const RequestKind kind, KindOf(operation));
    if (version < 0 || num_ids < 0 || (out == nullptr && count > 0) ||
        (row_ids == nullptr && num_ids > 0)) {
      return Status(Code::kValue, "MV_ReaderRun: expected a version, row ids and a buffer");
    }
    return used->Run(table, static_cast<uint64_t>(version),
                     Request::Of(kind, row_ids, num_ids, nullptr, out), count,
                     WaitLimit::Until(Clock::now() + kReadTimeout, interrupt));
  });
}

int32_t MV_ReaderWait(MV_Reader reader, int64_t version, int64_t timeout_ms, int64_t* published,
                      int64_t* step) {
  return Readers().With(reader, [&](JobReader* used, Interrupt* interrupt) -> Status {
    if (published == nullptr || step == nullptr || version < 0 ||
        (timeout_ms < 0 && timeout_ms != MV_NO_LIMIT)) {
      return Status(Code::kValue, "MV_ReaderWait: expected a version, a timeout and results");
    }
    const Instant deadline = Clock::now() + LimitOf(timeout_ms);
    uint64_t last = 0;
    const Status status = used->Wait(static_cast<uint64_t>(version), &last, step,
                                     WaitLimit::Until(deadline, interrupt));
    *published = static_cast<int64_t>(last);
    return status;
  });
}

int32_t MV_ReaderClose(MV_Reader reader) {
  {
    const ReaderHandles::Use use = Readers().Using(reader);
    if (use) use->EndWaits();
  }
  return Readers().Release(reader);
}

int32_t MV_ReaderCompare(MV_Reader reader, int64_t table, int64_t version, int32_t dtype,
                         int64_t first, int64_t count, void* before, uint32_t* counts,
                         uint16_t* places, void* values, int64_t* changed) {
  return Readers().With(reader, [&](JobReader* used) -> Status {
    const bool has_room = counts == nullptr || (places != nullptr && values != nullptr);
    if (version < 1 || changed == nullptr || (count > 0 && (before == nullptr || !has_room))) {
      return Status(Code::kValue, "MV_ReaderCompare: expected a version, and room for the results");
    }
    MV_ASSIGN_OR_RETURN(
        *changed, used->Compare(table, static_cast<uint64_t>(version), static_cast<DType>(dtype),
                                first, count, before, counts, places, values));
    return Status::Ok();
  });
}

int32_t MV_ReaderPin(MV_Reader reader, int64_t version) {
  return Readers().With(reader, [&](JobReader* used, Interrupt* interrupt) {
    if (version < 1) return Status(Code::kValue, "MV_ReaderPin: expected a version");
    return used->pins()->Pin(static_cast<uint64_t>(version),
                             WaitLimit::Until(Clock::now() + kReadTimeout, interrupt));
  });
}

int32_t MV_ReaderUnpin(MV_Reader reader, int64_t version) {
  return Readers().With(
      reader, [&](JobReader* used) { return used->pins()->Unpin(static_cast<uint64_t>(version)); });
}

int32_t MV_ReaderMemory(MV_Reader reader, int64_t table, int64_t version, const void** values,
                        MV_Memory* memory) {
  return Readers().With(reader, [&](JobReader* used) -> Status {
    if (version < 1 || values == nullptr || memory == nullptr) {
      return Status(Code::kValue, "MV_ReaderMemory: expected a version, and places for results");
    }
    MV_ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment,
                        used->Memory(table, static_cast<uint64_t>(version), values));
    return KeepMemory(std::move(segment), memory);
  });
}

int32_t MV_RoundToBfloat16(const float* values, uint16_t* rounded, int64_t count) {
  return Guard([&]() -> Status {
    if (count < 0 || (count > 0 && (values == nullptr || rounded == nullptr))) {
      return Status(Code::kValue, "MV_RoundToBfloat16: expected two arrays");
    }
    half::RoundToNearest(DType::kBFloat16, values, count, rounded);
    return Status::Ok();
  });
}
