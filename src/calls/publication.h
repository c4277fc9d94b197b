// Publication: copies a table to a buffer of its segment, in which readers find the table as it was
// at one moment (TableHeader). No worker changes the table meanwhile.
//
// Only what has changed since the buffer was last written is copied. A dense table is copied whole
// on every node, with the rows of other nodes. Of a table with lazy rows, each node copies its own
// touched rows.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "calls/table.h"
#include "table/table_header.h"

namespace multiverso {

class Publication {
 public:
  // Makes publication `number` of a table, of a session that has a name. `buffer` is what
  // TakeBuffer (node/buffer_pins.h) has returned on this node.
  Publication(Table* table, uint64_t number, int buffer);

  // Copies one of `shares` equal shares of the changes.
  Status Copy(int share, int shares, const WaitLimit& limit);
  // Makes the copy visible to readers, after all shares have been copied.
  void Complete();

 private:
  Table* table_;
  uint64_t number_;
  TableHeader* header_;
  TableHeader::Buffer* buffer_;
  int64_t version_ = 0;
};

// Returns the buffer in which a table has a publication, or -1. What has been read from the buffer
// is complete if a second call returns the same.
int BufferWith(uint64_t publication, NodeControl* control, const TableHeader& header);

// Returns the parameters in a buffer, row after row, in the segment that begins at `base`. Returns
// ValueError for a table of which only some rows exist.
Result<const char*> PublishedParameters(const TableHeader& header, char* base, int buffer);

}  // namespace multiverso
