#include "session/find_tables.h"

#include <string>
#include <utility>

#include "node/find_sessions.h"
#include "shard/storage.h"
#include "table/table_header.h"

namespace multiverso {

std::map<int64_t, Segment> FindTables(const RankContext& context) {
  const NodeMemory& memory = *context.memory();
  std::map<int64_t, Segment> tables;
  for (int rank = 0; rank < context.members().size(); ++rank) {
    if (rank == context.members().rank() || context.peers()->IsLost(rank)) continue;
    const int64_t pid = memory.slot(rank).pid;
    for (const std::string& path :
         SegmentsOf(pid, TableHeader::kMagic, ShardStorage::kHeaderRoomOffset)) {
      Result<Segment> segment = Segment::OpenFound(path, /*is_writable=*/true);
      if (!segment.ok()) continue;
      const auto* const header = reinterpret_cast<const TableHeader*>(
          segment.value().data() + ShardStorage::kHeaderRoomOffset);
      if (header->session != memory.control()->session) continue;
      const int64_t id = header->id;
      tables.emplace(id, std::move(segment.value()));
    }
  }
  return tables;
}

}  // namespace multiverso
