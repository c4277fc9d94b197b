// JobReader: reads the tables of a session from a process that takes no part in it.
//
// The reader maps the segments of the session's ranks on its machine read-only, so it changes
// nothing, and no rank ever waits for it. It reads a table as it is at that moment, stripe by
// stripe, or as it was when the session published it (session/publishing.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "memory/robust_lock.h"
#include "memory/segment.h"
#include "node/buffer_pins.h"
#include "node/find_sessions.h"
#include "shard/shard.h"
#include "table/table_header.h"

namespace multiverso {

// Thread-safe.
class JobReader final : private OwnerProbe {
 public:
  // Finds the session with that name, or that of a process if `pid` is not 0. Returns StateError if
  // there is none, or more than one.
  static Result<std::unique_ptr<JobReader>> Attach(const std::string& name, int64_t pid);

  // Returns StateError, with the reason, if the session has ended. What it has published can still
  // be read, as far as its tables have been found (FindTables) before.
  Status CheckRunning();
  // Releases the memory of the session in a forked child (Segment::ForgetInChild), which makes no
  // other call, not even of the destructor.
  void ForgetInChild();
  // Returns the tables and the last publication as a JSON object.
  Result<std::string> Json();
  // Runs a request that gets values or cells, of the table as of the publication with that number,
  // or as it is now if it is 0. Returns outdated if the session has published so much since then
  // that no buffer has this publication any more.
  Status Run(int64_t table, uint64_t publication, const Request& request, int64_t count,
             const WaitLimit& limit);
  // Compares `count` elements, from element `first` on, of a table as of a publication with
  // `before` (FindChanges in reader/value_changes.h). `dtype` is how the table stores them, or
  // bfloat16, to which float32 are rounded. If `counts` is null, only copies them to `before`. Not
  // for tables of which only some rows exist. Returns outdated as Run does.
  Result<int64_t> Compare(int64_t table, uint64_t publication, DType dtype, int64_t first,
                          int64_t count, void* before, uint32_t* counts, uint16_t* places,
                          void* values);
  BufferPins* pins() { return &pins_; }
  // Sets *values to the parameters of a table as of a publication, row after row, in
  // read-only memory, which is mapped as long as the result is kept. They change when a later
  // publication takes the buffer, unless it is pinned. Returns ValueError for a table of which only
  // some rows exist, and outdated as Run does.
  Result<std::shared_ptr<Segment>> Memory(int64_t table, uint64_t publication, const void** values);
  // Waits for a publication. Sets *published to the number of the last one, and *step to its step.
  // Returns OperationTimeout after the deadline, and StateError if the session ends before.
  Status Wait(uint64_t publication, uint64_t* published, int64_t* step, const WaitLimit& limit);
  // Ends the waits of other threads soon, with StateError.
  void EndWaits() { is_closing_.store(true, std::memory_order_relaxed); }

 private:
  struct TableView {
    Segment segment;
    TableHeader* header = nullptr;
    std::unique_ptr<Shard> live;  // null if a get cannot read the table itself
    std::unique_ptr<Shard> copies[NodeControl::kBuffers];  // the buffers of publications
  };

  explicit JobReader(FoundSession session)
      : session_(std::move(session)),
        control_(session_.control()),
        pins_(control_, session_.segment()->fd()) {}

  bool IsAlive(int owner) const override { return session_.IsAlive(owner); }
  // Looks for tables that have been created since the last call.
  void FindTables();
  std::shared_ptr<TableView> Open(const std::string& path) const;
  std::shared_ptr<TableView> Find(int64_t table);
  std::string EndReason() const;
  // Returns what a call about a table returns that is not among the tables.
  Status NotThere(int64_t table, uint64_t publication) const;

  FoundSession session_;
  NodeControl* control_;
  BufferPins pins_;
  std::mutex mutex_;
  bool has_ended_ = false;
  std::atomic<bool> is_closing_{false};
  Instant last_check_{};
  uint32_t tables_seen_ = 0;
  std::vector<std::shared_ptr<TableView>> tables_;
};

}  // namespace multiverso
