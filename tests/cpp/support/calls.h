// Single calls on tables, shards and consistency modes.
#pragma once

#include <vector>

#include "shard/shard.h"
#include "support/limits.h"

namespace multiverso::testing {

// Makes a call on a Table, Shard or Consistency.
template <class Callee>
Status Call(Callee* callee, const Request& request, const WaitLimit& limit = Patiently()) {
  return callee->Run(request, limit);
}

template <class T>
Request AddRowsOf(const std::vector<int64_t>& ids, const std::vector<T>& delta) {
  return Request::AddRows(ids.data(), static_cast<int64_t>(ids.size()), delta.data());
}
template <class T>
Request GetRowsOf(const std::vector<int64_t>& ids, std::vector<T>* out) {
  return Request::GetRows(ids.data(), static_cast<int64_t>(ids.size()), out->data());
}

}  // namespace multiverso::testing
