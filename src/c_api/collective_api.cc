// The part of the C API for collective calls of a session that move or combine arrays.
#include <vector>

#include "base/text.h"
#include "c_api/call_recording.h"
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {
namespace {

Status CheckTypeAndOp(const char* name, int32_t dtype, int32_t op) {
  if (!IsDType(dtype)) {
    return Status(Code::kType, StrCat(name, ": expected a dtype from 0 to 9, received ", dtype));
  }
  if (!IsReduceOp(op)) {
    return Status(Code::kValue, StrCat(name, ": expected an op from 0 to 7, received ", op));
  }
  const auto wanted = static_cast<ReduceOp>(op);
  const auto type = static_cast<DType>(dtype);
  if (IsDefined(wanted, type)) return Status::Ok();
  return Status(Code::kType, StrCat(name, ": op ", NameOf(wanted), " needs ",
                                    wanted == ReduceOp::kMean ? "floats" : "integers or bools",
                                    ", received ", NameOf(type)));
}

Status CheckArray(const char* name, const void* data, int64_t count) {
  if (count >= 0 && (count == 0 || data != nullptr)) return Status::Ok();
  return Status(Code::kValue, StrCat(name, ": expected 0 elements or more, received ", count,
                                     data == nullptr ? " and no buffer" : ""));
}

// Reads `number` arrays. Memory that a call only reads is not written through its Part.
template <class Pointer>
Status ReadParts(const char* name, Pointer const* arrays, const int64_t* counts, int64_t number,
                 std::vector<Transfer::Part>* parts) {
  if (arrays == nullptr || counts == nullptr) {
    return Status(Code::kValue, StrCat(name, ": expected ", number, " arrays, received null"));
  }
  for (int64_t i = 0; i < number; ++i) {
    MV_RETURN_IF_NOT_OK(CheckArray(name, arrays[i], counts[i]));
    parts->push_back({const_cast<char*>(static_cast<const char*>(arrays[i])), counts[i]});
  }
  return Status::Ok();
}

Status Aggregate(MV_Session session, const MV_CollectiveCall& call) {
  MV_RETURN_IF_NOT_OK(CheckTypeAndOp("aggregate", call.dtype, call.op));
  std::vector<Transfer::Part> parts;
  MV_RETURN_IF_NOT_OK(ReadParts("aggregate", call.received, call.received_counts, 1, &parts));
  const Aggregation::Array array{static_cast<ReduceOp>(call.op), static_cast<DType>(call.dtype),
                                 parts[0].data, parts[0].count};
  return RunCollective(session, CallKind::kAggregate, array.count * SizeOf(array.dtype),
                       [&](SessionEntry* entry, Interrupt* interrupt) {
                         return entry->session->Aggregate(array, interrupt);
                       });
}

Status Move(MV_Session session, const MV_CollectiveCall& call, CollectiveKind kind,
            const Membership& members) {
  const char* const name = NameOf(kind);
  const int64_t workers = members.num_workers();
  const bool combines = kind == CollectiveKind::kReduceScatter;
  const bool is_broadcast = kind == CollectiveKind::kBroadcast;
  MV_RETURN_IF_NOT_OK(CheckTypeAndOp(name, call.dtype, combines ? call.op : MV_OP_SUM));
  Transfer::Call wanted;
  wanted.kind = kind;
  wanted.op = static_cast<ReduceOp>(call.op);
  wanted.dtype = static_cast<DType>(call.dtype);
  wanted.root = is_broadcast ? call.root : 0;
  if (wanted.root < 0 || wanted.root >= workers) {
    return Status(Code::kValue, StrCat(name, ": expected a root from 0 to ", workers - 1,
                                       ", received ", call.root));
  }
  const bool receives_one = combines || is_broadcast;
  MV_RETURN_IF_NOT_OK(ReadParts(name, call.received, call.received_counts,
                                receives_one ? 1 : workers, &wanted.received));
  if (is_broadcast) {
    const Transfer::Part array = wanted.received[0];
    wanted.received.assign(static_cast<size_t>(workers), Transfer::Part{});
    wanted.received[static_cast<size_t>(wanted.root)] = array;
    wanted.sent = {members.worker_id() == wanted.root ? array : Transfer::Part{}};
  } else {
    const bool sends_one = kind == CollectiveKind::kAllGather;
    MV_RETURN_IF_NOT_OK(
        ReadParts(name, call.sent, call.sent_counts, sends_one ? 1 : workers, &wanted.sent));
  }
  int64_t bytes = 0;
  for (const Transfer::Part& part : wanted.received) bytes += part.count * SizeOf(wanted.dtype);
  return RunCollective(session, static_cast<CallKind>(NumberOf(kind)), bytes,
                       [&](SessionEntry* entry, Interrupt* interrupt) {
                         return entry->session->Move(wanted, interrupt);
                       });
}

Status Run(MV_Session session, const MV_CollectiveCall* call, const Membership& members) {
  MV_RETURN_IF_NOT_OK(CheckStruct(call, "MV_CollectiveCall"));
  switch (call->kind) {
    case MV_CALL_BARRIER:
      return RunCollective(session, CallKind::kBarrier, 0,
                           [](SessionEntry* entry, Interrupt* interrupt) {
                             return entry->session->Barrier(interrupt);
                           });
    case MV_CALL_AGGREGATE:
      return Aggregate(session, *call);
    case MV_CALL_BROADCAST:
      return Move(session, *call, CollectiveKind::kBroadcast, members);
    case MV_CALL_ALL_GATHER:
      return Move(session, *call, CollectiveKind::kAllGather, members);
    case MV_CALL_ALL_TO_ALL:
      return Move(session, *call, CollectiveKind::kAllToAll, members);
    case MV_CALL_REDUCE_SCATTER:
      return Move(session, *call, CollectiveKind::kReduceScatter, members);
    default:
      return Status(Code::kValue,
                    StrCat("MV_CollectiveCall.kind: expected 0 to 5, received ", call->kind));
  }
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_SessionBarrier(MV_Session session) {
  const MV_CollectiveCall call{sizeof(call), MV_CALL_BARRIER, 0,       0,      0,
                               nullptr,      nullptr,         nullptr, nullptr};
  return MV_SessionRun(session, &call);
}

int32_t MV_SessionAggregate(MV_Session session, int32_t op, int32_t dtype, void* data,
                            int64_t count) {
  const MV_CollectiveCall call{sizeof(call), MV_CALL_AGGREGATE, op,    dtype, 0,
                               nullptr,      nullptr,           &data, &count};
  return MV_SessionRun(session, &call);
}

int32_t MV_SessionRun(MV_Session session, const MV_CollectiveCall* call) {
  return OpenSessions().With(
      session, [&](SessionEntry* entry) { return Run(session, call, entry->session->members()); });
}
