// ChunkSource: cuts the part of a request that one server answers into chunks.
#ifndef MULTIVERSO_TABLE_CHUNK_SOURCE_H_
#define MULTIVERSO_TABLE_CHUNK_SOURCE_H_

#include <cstdint>
#include <vector>

#include "shard/request.h"
#include "table/partition.h"
#include "table/request_message.h"
#include "table/table_spec.h"

namespace multiverso {

// A Chunk can be reused for the next chunk, which saves the allocation of ids and scratch.
struct Chunk {
  // The request refers to the caller's memory, or to the scratch if the rows are not adjacent.
  Request request;
  int64_t count = 0;  // elements, or rows
  int64_t bytes = 0;  // bytes of the values
  std::vector<int64_t> ids;
  const int64_t* positions = nullptr;  // places of the scratch's rows in the caller's memory
  std::vector<char> scratch;
};

class ChunkSource {
 public:
  // Cuts `rows`, for a request for the whole table.
  ChunkSource(const TableSpec& spec, const Request& request, RowRange rows);
  // Cuts the rows at `positions` of request.row_ids, in ascending order, for a request for rows.
  ChunkSource(const TableSpec& spec, const Request& request, std::vector<int64_t> positions);
  // Makes one chunk without rows, for a request without values.
  static ChunkSource OfOne(const TableSpec& spec, const Request& request);

  // Returns false if there are no more chunks.
  bool Next(Chunk* chunk);
  // Copies received values from the scratch to the caller's memory.
  void Finish(const Chunk& chunk) const;
  // Makes Next return no more chunks.
  void Stop() { stopped_ = true; }

 private:
  bool NextOfRange(Chunk* chunk);
  bool NextRows(Chunk* chunk);
  // Cuts a row that is longer than a chunk into ranges of elements.
  bool NextOfLongRow(Chunk* chunk);
  // Makes the chunk `count` elements from `first` on, at element `at` of the caller's memory.
  void TakeRange(int64_t first, int64_t count, int64_t at, Chunk* chunk) const;

  Request request_;
  int64_t columns_;
  int64_t element_bytes_;
  bool of_rows_;
  bool is_single_ = false;
  bool stopped_ = false;
  int64_t next_ = 0;  // next element of the range, or of the long row if of_rows_
  int64_t end_ = 0;   // end of the range
  std::vector<int64_t> positions_;
  size_t next_position_ = 0;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_CHUNK_SOURCE_H_
