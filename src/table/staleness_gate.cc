#include "table/staleness_gate.h"

namespace multiverso {
namespace {

bool IsAdd(RequestKind kind) {
  return kind == RequestKind::kAdd || kind == RequestKind::kAddGet || kind == RequestKind::kAddRows;
}

const char* NameOf(RequestKind kind) {
  if (kind == RequestKind::kAddGet) return "add_get";
  return IsAdd(kind) ? "add" : "get";
}

}  // namespace

Status StalenessGate::Step(const WaitLimit& limit) {
  const bool add = IsAdd(request_.kind);
  if (call_ == nullptr) {
    MV_RETURN_IF_NOT_OK(rounds_->Enter(add, NameOf(request_.kind), &progress_, limit));
    call_ = table_->StartAtServers(request_, deadline());
  }
  MV_RETURN_IF_NOT_OK(call_->Step(limit));
  // All servers have answered: whoever hears of the add can read it.
  if (add) rounds_->CountAdd();
  return Status::Ok();
}

void StalenessGate::Cancel(const std::string& reason) {
  if (call_ != nullptr) call_->Cancel(reason);
  // The round that this call is part of cannot be completed without it.
  table_->group()->state()->Abort(Status(Code::kAborted, reason));
}

}  // namespace multiverso
