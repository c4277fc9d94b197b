// TableHeader: describes a table in its own segment, for readers, which find segments among the
// open files of the ranks. Only the tables of sessions that have a name have a header.
//
// Behind the shard and the memory of the consistency mode lie the buffers for publications. Each is
// laid out as the segment of a shard without state, which a reader can read like the table itself.
// Two of them are in use, and more of a dense table while readers pin what is in these
// (BufferPins).
#pragma once

#include <atomic>
#include <cstdint>

#include "node/control_segment.h"
#include "shard/storage.h"
#include "table/table_spec.h"

namespace multiverso {

struct TableHeader {
  static constexpr uint64_t kMagic = 0x334c4241542d564d;  // "MV-TABL3"
  std::atomic<uint64_t> magic;                            // set last
  uint64_t session;                                       // NodeControl::session
  int64_t id;
  TableSpec spec;
  RowRange rows;  // of this node
  int32_t num_workers;
  // Whether a rank of this node has released the table before the end of the session.
  std::atomic<uint32_t> is_released;

  struct Buffer {
    int64_t offset;                   // in the segment
    std::atomic<uint64_t> published;  // the publication that is in the buffer, or 0
    // The version of the table (Shard::version) from which on changes are not in the buffer.
    std::atomic<int64_t> changed_since;
  };
  TableSpec published_spec;
  RowRange published_rows;  // in the buffers: all rows, or those of this node if rows are lazy
  Buffer buffers[NodeControl::kBuffers];

  // Returns how many buffers such a table has. Pages that are never touched take no memory.
  static int BuffersOf(const TableSpec& spec) { return spec.is_lazy() ? 2 : NodeControl::kBuffers; }
};

static_assert(sizeof(TableHeader) <= ShardStorage::kHeaderRoomBytes);

}  // namespace multiverso
