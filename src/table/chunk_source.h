// ChunkSource: cuts the part of a call that one server answers into chunks.
#ifndef MULTIVERSO_TABLE_CHUNK_SOURCE_H_
#define MULTIVERSO_TABLE_CHUNK_SOURCE_H_

#include <cstdint>
#include <vector>

#include "shard/shard.h"
#include "table/partition.h"
#include "table/request.h"
#include "table/table_spec.h"

namespace multiverso {

// What was asked of a table. The memory is the caller's and stays as it is until the call ends.
struct TableRequest {
  RequestKind kind = RequestKind::kGet;
  const int64_t* row_ids = nullptr;  // of row requests, checked
  int64_t num_ids = 0;
  const void* delta = nullptr;
  void* out = nullptr;
  int32_t hyper = 0;  // of kSetHyper
  double value = 0;
  uint64_t rounds = 0;  // that have been applied before it is set
};

// Can be used again for the next chunk, with the memory it has.
struct Chunk {
  RequestKind kind = RequestKind::kGet;
  int64_t first = 0;  // the table's element that a range begins with
  int64_t count = 0;  // elements, or rows
  int64_t bytes = 0;  // of the values
  std::vector<int64_t> ids;
  // Where the values are or go: the caller's memory, or the scratch if the rows are not neighbours
  // there.
  const char* delta = nullptr;
  char* out = nullptr;
  const int64_t* positions = nullptr;  // of the rows in the caller's memory, if in the scratch
  int worker = Shard::kOwn;            // whose call it is
  std::vector<char> scratch;
};

class ChunkSource {
 public:
  // Of a request for the whole table: these rows of it.
  ChunkSource(const TableSpec& spec, const TableRequest& request, RowRange rows);
  // Of a request for rows: those at these places of its list, ascending.
  ChunkSource(const TableSpec& spec, const TableRequest& request, std::vector<int64_t> positions);
  // Of a request without values.
  static ChunkSource OfOne(const TableSpec& spec, const TableRequest& request);

  // False if there are no more.
  bool Next(Chunk* chunk);
  // The values have come: puts those in the scratch where they belong.
  void Finish(const Chunk& chunk) const;
  // No more chunks.
  void Stop() { stopped_ = true; }

 private:
  bool NextOfRange(Chunk* chunk);
  bool NextRows(Chunk* chunk);
  // A row that is longer than a chunk goes as ranges of elements.
  bool NextOfLongRow(Chunk* chunk);

  TableRequest request_;
  int64_t columns_;
  int64_t element_bytes_;
  bool of_rows_;
  bool is_single_ = false;
  bool stopped_ = false;
  int64_t next_ = 0;  // element of the range or of the long row, if of rows
  int64_t end_ = 0;   // of the range
  std::vector<int64_t> positions_;
  size_t next_position_ = 0;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_CHUNK_SOURCE_H_
