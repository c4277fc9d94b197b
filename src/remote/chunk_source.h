// ChunkSource: cuts a request into chunks: the part for one server, or the rows of this node.
#pragma once

#include <cstdint>
#include <vector>

#include "shard/request.h"
#include "shard/row_range.h"
#include "table/table_spec.h"

namespace multiverso {

// A part of a request. A Chunk can be passed to Next again, which saves allocations.
struct Chunk {
  // Refers to the caller's memory, or to the scratch if the rows are not adjacent in that memory.
  Request request;
  int64_t count = 0;  // elements, or rows if the request names rows
  int64_t bytes = 0;  // bytes of the values
  std::vector<int64_t> ids;
  const int64_t* positions = nullptr;  // of the scratch's rows in the caller's memory, or null
  std::vector<char> scratch;
};

class ChunkSource {
 public:
  // Cuts ranges of rows, for a request for the whole table or for a part with these rows.
  ChunkSource(const TableSpec& spec, const Request& request, std::vector<RowRange> ranges);
  // Cuts the rows at `positions` of request.row_ids, in ascending order, for a request for rows.
  ChunkSource(const TableSpec& spec, const Request& request, std::vector<int64_t> positions);
  // Makes a single chunk, for a request that has neither rows nor values, such as kSetHyper.
  static ChunkSource WithoutValues(const TableSpec& spec, const Request& request);

  // Returns false if there are no more chunks.
  bool Next(Chunk* chunk);
  // Copies received values from the scratch, if they are there, to the caller's memory.
  void Finish(const Chunk& chunk) const;
  // Makes Next return no more chunks.
  void Stop() { stopped_ = true; }

 private:
  bool NextRange(Chunk* chunk);
  bool NextRows(Chunk* chunk);
  // Cuts a row that is longer than a chunk into ranges of elements.
  bool NextOfLongRow(Chunk* chunk);
  // Returns the element of the table that is at `index` in the caller's memory.
  int64_t ElementAt(int64_t index) const {
    return (first_row_ + index / width_) * columns_ + first_column_ + index % width_;
  }
  // Sets the chunk to `count` elements of the table from `first` on, which begin at element
  // `buffer_first` of the caller's memory.
  void SetRange(int64_t first, int64_t count, int64_t buffer_first, Chunk* chunk) const;

  Request request_;
  int64_t columns_;
  int64_t element_bytes_;
  int64_t id_bytes_ = 0;  // of the values for each row id
  bool names_rows_;
  bool is_without_values_ = false;
  bool stopped_ = false;
  // The place in the table of the first element in the caller's memory, which has `width_` elements
  // of each row. Not for requests that name rows.
  int64_t first_row_ = 0;
  int64_t first_column_ = 0;
  int64_t width_ = 0;
  // In the caller's memory, or in the current row if it is longer than a chunk.
  int64_t next_element_ = 0;
  std::vector<RowRange> ranges_;
  size_t next_range_ = 0;
  std::vector<int64_t> positions_;
  size_t next_position_ = 0;
};

}  // namespace multiverso
