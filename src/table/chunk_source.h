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

// Can be reused for the next chunk, with the memory it has.
struct Chunk {
  // Refers to the caller's memory, or to the scratch if the rows are not adjacent there.
  Request request;
  int64_t count = 0;  // elements, or rows
  int64_t bytes = 0;  // of the values
  std::vector<int64_t> ids;
  const int64_t* positions = nullptr;  // of the rows in the caller's memory, if in the scratch
  std::vector<char> scratch;
};

class ChunkSource {
 public:
  // These rows, for a request for the whole table.
  ChunkSource(const TableSpec& spec, const Request& request, RowRange rows);
  // The rows at these positions of the list, ascending, for a request for rows.
  ChunkSource(const TableSpec& spec, const Request& request, std::vector<int64_t> positions);
  // No rows, for a request without values.
  static ChunkSource OfOne(const TableSpec& spec, const Request& request);

  // Returns false if there are no more chunks.
  bool Next(Chunk* chunk);
  // The values have arrived: copies those in the scratch to the caller.
  void Finish(const Chunk& chunk) const;
  // No more chunks.
  void Stop() { stopped_ = true; }

 private:
  bool NextOfRange(Chunk* chunk);
  bool NextRows(Chunk* chunk);
  // A row that is longer than a chunk is cut into ranges of elements.
  bool NextOfLongRow(Chunk* chunk);
  // The `count` elements from `first` on, which are at element `at` of the caller's memory.
  void TakeRange(int64_t first, int64_t count, int64_t at, Chunk* chunk) const;

  Request request_;
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
