// TableFile: one node's part of a table in a folder, from session to session.
//
//   FOLDER/node-0/header   what the table is, and whether its rows can be trusted
//   FOLDER/node-0/rows     the segment of the table
//
// The header is `in use` on the disk before a session changes the first row. It is clean again when
// the session has ended without an error and all rows are on the disk. After any other end, rows
// may be half changed, or some may be older than others, so the next session refuses the files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "memory/segment.h"
#include "shard/row_range.h"
#include "table/table_spec.h"

namespace multiverso {

// What must be the same for the rows of an earlier session to be those of a table. What is not
// compared may be different in each session, such as the learning rate.
struct TablePlace {
  TableSpec spec;
  int32_t node = 0;
  int32_t num_nodes = 1;
  RowRange rows;      // of this node
  int64_t bytes = 0;  // of the shard, without what the mode of the session adds
};

// One rank of a node has the file of a table, and other ranks map its segment.
class TableFile {
 public:
  // Opens the files of this node in a folder, or creates them. Returns StateError if the last
  // session that used them did not end well, or if another one uses them, MismatchError if they are
  // those of another table, and CheckpointCorruptError for other files. Changes no row.
  // The segment gets `segment_bytes` bytes. With `any_seed`, the seed of the initializer is that of
  // the files.
  static Result<std::unique_ptr<TableFile>> Open(const std::string& folder, const TablePlace& place,
                                                 int64_t segment_bytes, bool any_seed);
  // Opens the files that this session uses, after the rank has died that had opened them.
  static Result<std::unique_ptr<TableFile>> TakeOver(const std::string& folder,
                                                     const TablePlace& place, uint64_t session);
  // Returns the number of a session in the files, which is not 0.
  static uint64_t NumberOf(uint64_t session) { return session | 1U; }
  ~TableFile();
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  // Returns the session that used the rows last, or 0 if the table is new. All nodes of a table
  // must have been used by the same one.
  uint64_t last_session() const { return last_session_; }
  // Returns whether the disk has less room for the files than at that session's end, because they
  // were copied without their zeros.
  bool has_holes() const { return has_holes_; }
  uint64_t seed() const { return place_.spec.initializer.seed; }
  // Returns the segment, once.
  Segment TakeRows() { return std::move(rows_); }

  void ForgetInChild() { header_.ForgetInChild(); }

  // Notes on the disk that a session changes the rows from now on.
  Status BeginUse(uint64_t session);
  // Notes that no row has been changed after all. A new table is removed.
  void CancelUse();
  // Returns an error if the path of the files no longer leads to them.
  Status CheckInPlace(const Segment& rows) const;
  // Writes all rows to the disk, and then notes that they can be trusted. Returns an error also if
  // the next session would not find them.
  Status EndUse(const Segment& rows, uint64_t version);

 private:
  struct Header;

  TableFile(const std::string& folder, const TablePlace& place);
  Status ReadHeader(bool any_seed);
  Status WriteHeader(uint32_t state, uint64_t session, uint64_t version);
  std::string Advice() const;

  std::string folder_;  // of this node
  TablePlace place_;
  Segment header_;
  Segment rows_;
  bool may_remove_ = false;  // whether the files are new, and are removed if they are not used
  bool is_in_use_ = false;
  uint64_t session_ = 0;  // that uses the rows now
  uint64_t last_session_ = 0;
  uint64_t last_version_ = 0;
  int64_t bytes_on_disk_ = 0;  // at the end of the last session
  bool has_holes_ = false;
};

}  // namespace multiverso
