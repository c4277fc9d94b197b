// Jobs of several ranks in one process: each rank is a thread with its own session.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "session/session.h"
#include "session/session_opening.h"
#include "support/calls.h"
#include "support/rank_contexts.h"
#include "support/status.h"
#include "support/thread_transport.h"
#include "support/threads.h"

namespace multiverso::testing {

inline SessionOptions OptionsOf(Role role, std::chrono::milliseconds timeout = kPatience) {
  SessionOptions options;
  options.role = role;
  options.timeout = timeout;
  options.start_timeout = timeout;
  return options;
}

inline Result<std::unique_ptr<Session>> OpenSession(const std::shared_ptr<ThreadHub>& hub, int rank,
                                                    const SessionOptions& options) {
  return multiverso::OpenSession(options, std::make_unique<ThreadTransport>(hub, rank));
}

// Runs body(session, rank) for each rank of a job with these roles and options.
template <class Body>
void RunOn(const std::shared_ptr<ThreadHub>& hub, const Roles& roles, const SessionOptions& options,
           const Body& body) {
  OnThreads(static_cast<int>(roles.size()), [&](int rank) {
    SessionOptions rank_options = options;
    rank_options.role = roles[static_cast<size_t>(rank)];
    const auto session = ValueOf(OpenSession(hub, rank, rank_options));
    body(session.get(), rank);
  });
}

// Runs body(session, rank) for each rank, without a shutdown, since the body breaks the session.
template <class Body>
void RunJobWithoutShutdown(const Roles& roles, std::chrono::milliseconds timeout,
                           const Body& body) {
  const auto hub = std::make_shared<ThreadHub>(static_cast<int>(roles.size()));
  RunOn(hub, roles, OptionsOf(Role::kAll, timeout), body);
}

// Returns a function that calls body(session, rank) and then shuts down.
template <class Body>
auto ThenClosing(const Body& body) {
  return [&body](Session* session, int rank) {
    body(session, rank);
    EXPECT_TRUE(IsOk(session->Close()));
  };
}

// Runs body(session, rank) for each rank, which then shuts down.
template <class Body>
void RunJob(const Roles& roles, const Body& body, const ModeOptions& mode = {}) {
  SessionOptions options = OptionsOf(Role::kAll);
  options.mode = mode;
  const auto hub = std::make_shared<ThreadHub>(static_cast<int>(roles.size()));
  RunOn(hub, roles, options, ThenClosing(body));
}

// Returns the sessions of all ranks, for a test that calls them in a fixed order.
inline std::vector<std::unique_ptr<Session>> OpenAll(
    int ranks, std::chrono::milliseconds timeout = kPatience) {
  const auto hub = std::make_shared<ThreadHub>(ranks);
  std::vector<std::unique_ptr<Session>> sessions(static_cast<size_t>(ranks));
  OnThreads(ranks, [&](int rank) {
    sessions[static_cast<size_t>(rank)] =
        ValueOf(OpenSession(hub, rank, OptionsOf(Role::kAll, timeout)));
  });
  return sessions;
}

// Makes every `ranks` consecutive ranks a node, until the end of the scope.
class VirtualNodes {
 public:
  explicit VirtualNodes(int ranks) {
    setenv("MULTIVERSO_RANKS_PER_NODE", std::to_string(ranks).c_str(), 1);
  }
  ~VirtualNodes() { unsetenv("MULTIVERSO_RANKS_PER_NODE"); }
  VirtualNodes(const VirtualNodes&) = delete;
  VirtualNodes& operator=(const VirtualNodes&) = delete;
};

// Runs body(session, rank) for each rank of a job on several nodes. Messages between nodes are
// delayed by up to `delay` polls, and some overtake others.
template <class Body>
void RunSpanningJob(const Roles& roles, int ranks_per_node, int delay, uint64_t seed,
                    const Body& body, const ModeOptions& mode = {}) {
  const VirtualNodes nodes(ranks_per_node);
  SessionOptions options = OptionsOf(Role::kAll);
  options.mode = mode;
  const auto hub = std::make_shared<ThreadHub>(static_cast<int>(roles.size()), delay, seed);
  RunOn(hub, roles, options, ThenClosing(body));
}

inline void AwaitAbort(Session* session) {
  EXPECT_TRUE(Eventually([&] { return session->context()->state()->IsAborted(); }));
}

inline Status Barrier(Session* session) { return session->Barrier(); }

inline TableSpec ArrayOf(int64_t size, DType dtype = DType::kFloat32) {
  TableSpec spec;
  spec.dtype = static_cast<int32_t>(dtype);
  spec.num_row = size;
  return spec;
}

inline TableSpec MatrixOf(int64_t rows, int64_t columns, DType dtype = DType::kFloat32) {
  TableSpec spec = ArrayOf(rows, dtype);
  spec.kind = static_cast<int32_t>(TableKind::kMatrix);
  spec.num_col = columns;
  return spec;
}

inline Result<Table*> Create(Session* session, const TableSpec& spec,
                             const void* init_value = nullptr) {
  auto table = session->CreateTable(spec, init_value);
  if (!table.ok()) return table.status();
  return session->KeepTable(std::move(table.value()));
}

template <class T>
std::vector<T> Values(Table* table) {
  std::vector<T> out(static_cast<size_t>(table->spec().count()));
  EXPECT_TRUE(IsOk(Call(table, Request::Get(out.data()))));
  return out;
}

template <class T>
void Add(Table* table, const std::vector<T>& delta) {
  EXPECT_TRUE(IsOk(Call(table, Request::Add(delta.data()))));
}

}  // namespace multiverso::testing
