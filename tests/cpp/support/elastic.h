// Elastic sessions whose ranks are threads of this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/process.h"
#include "session/joining.h"
#include "support/jobs.h"

namespace multiverso::testing {

inline SessionOptions ElasticOptions(const ModeOptions& mode = {}) {
  SessionOptions options = OptionsOf(Role::kAll);
  options.is_elastic = true;
  options.mode = mode;
  return options;
}

using Sessions = std::vector<std::unique_ptr<Session>>;

// Opens an elastic session of that many ranks.
inline Sessions OpenElastic(int ranks, const SessionOptions& options = ElasticOptions()) {
  const auto hub = std::make_shared<ThreadHub>(ranks);
  Sessions sessions(static_cast<size_t>(ranks));
  OnThreads(ranks, [&](int rank) {
    sessions[static_cast<size_t>(rank)] = ValueOf(OpenSession(hub, rank, options));
  });
  return sessions;
}

// Joins the elastic session of this process.
inline Result<std::unique_ptr<Session>> Join(const SessionOptions& options = ElasticOptions()) {
  return JoinSession(options, std::to_string(ProcessId()));
}

// Calls body(session) for all sessions at the same time.
template <class Body>
void OnAll(const Sessions& sessions, const Body& body) {
  OnThreads(static_cast<int>(sessions.size()),
            [&](int i) { body(sessions[static_cast<size_t>(i)].get()); });
}

}  // namespace multiverso::testing
