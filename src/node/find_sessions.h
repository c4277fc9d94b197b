// Finds the sessions of this machine from outside: for readers, for processes that join a session,
// and for observers such as `multiverso top`.
//
// Shared segments (Segment) have no names. They are among the open files of the processes of this
// user, which only Linux lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/segment.h"
#include "node/control_segment.h"
#include "node/node_snapshot.h"

namespace multiverso {

// The ranks that a session has on one node, by their control segment.
class FoundSession {
 public:
  // Maps a control segment (Segment::OpenFound). Returns UnsupportedError if the file is not a
  // control segment of this version.
  static Result<FoundSession> Open(const std::string& path, bool is_writable = false);

  Segment* segment() { return &segment_; }
  NodeControl* control() const { return reinterpret_cast<NodeControl*>(segment_.data()); }
  bool is_elastic() const { return control()->initial_size > 0; }
  std::string name() const;
  NodeSnapshot snapshot() const {
    return NodeSnapshot::Of(segment_.data(), segment_.bytes()).value();
  }
  // Return how many ranks have joined on this node, and the rank of one of them.
  int RanksHere() const;
  int RankOf(int local_rank) const;
  // Returns whether that rank takes part in the session now.
  bool IsAlive(int local_rank) const;
  int CountAlive() const;

 private:
  explicit FoundSession(Segment segment);

  Segment segment_;
  std::vector<int> ranks_;  // of this node, by local rank, unless the session is elastic
};

// Returns the sessions of the other processes of this user, or those of process `pid` alone unless
// it is 0: each node of a session once, also if none of its ranks is alive.
std::vector<FoundSession> FindSessions(int64_t pid = 0, bool is_writable = false);

// Tells the sessions of a process which rank was lost first, for their readers.
void NoteLossIn(int64_t pid, int rank);

// Returns the sessions as a JSON list of objects: "alive", a list of ranks, and "node", the
// NodeSnapshot. Returns UnsupportedError where no session can be found.
Result<std::string> DescribeSessions(int64_t pid);

// Returns the other processes of this user, or none where sessions cannot be found.
std::vector<int64_t> OtherProcesses();

// Returns paths of the segments that a process has open and whose first bytes are the number
// `magic`, or the bytes from `offset` on. Segments of tables are only opened at another offset than
// 0, where they have their number: a process may have thousands.
std::vector<std::string> SegmentsOf(int64_t pid, uint64_t magic, int64_t offset = 0);

}  // namespace multiverso
