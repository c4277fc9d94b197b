#include "session/find_table.h"

#include <string>

#include "base/text.h"
#include "reader/find_segments.h"
#include "shard/storage.h"
#include "table/table_header.h"

namespace multiverso {

Result<Segment> FindTable(const RankContext& context, int64_t id) {
  const NodeMemory& memory = *context.memory();
  const NodeControl& session = *memory.control();
  for (int rank = 0; rank < context.members().size(); ++rank) {
    if (rank == context.members().rank() || !context.peers()->ExitReason(rank).empty()) continue;
    const int64_t pid = memory.slot(rank).pid;
    for (const std::string& path :
         SegmentsOf(pid, TableHeader::kMagic, ShardStorage::kLabelOffset)) {
      Result<Segment> segment = Segment::OpenFound(path, /*is_writable=*/true);
      if (!segment.ok()) continue;
      const auto* const header =
          reinterpret_cast<const TableHeader*>(segment->data() + ShardStorage::kLabelOffset);
      if (header->session == session.session && header->id == id) return segment;
    }
  }
  return Status(Code::kState, StrCat("the table number ", id,
                                     " of the session is not there any more: the ranks "
                                     "that created it have released it or ended"));
}

}  // namespace multiverso
