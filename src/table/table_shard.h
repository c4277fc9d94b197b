// TableShard: this node's part of a table: the segment that the node's ranks share, with the shard
// and the memory of the consistency mode in it.
//
// The rows of this node's servers lie in one shard. Ranks of this node use it through their Table,
// and ranks of other nodes through ShardService.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "consistency/consistency.h"
#include "consistency/node_rounds.h"
#include "group/rank_context.h"
#include "memory/segment.h"
#include "shard/shard.h"
#include "table/partition.h"
#include "table/request_message.h"
#include "table/table_file.h"
#include "table/table_header.h"
#include "table/table_spec.h"

namespace multiverso {

// The size of a table's segment on a node. The node must have `needed` bytes of memory. Of the
// `spare` bytes, only those of rows that are used are ever touched, and what only sessions need
// that save or publish (ChangedRows).
struct TableBytes {
  int64_t needed = 0;
  int64_t spare = 0;
  PageSize pages = PageSize::kHuge;
};

class TableShard {
 public:
  // A dense table of at most so many bytes is on one node, since its calls take the time of their
  // messages. In sync mode SumPlan decides.
  static constexpr int64_t kSmallBytes = int64_t{16} << 10;

  // Returns the size of this node's part of table number `id`: the shard, and after it the memory
  // of the consistency mode, of which little is touched.
  static Result<TableBytes> BytesOf(const TableSpec& spec, int64_t id, const Membership& members,
                                    const ModeOptions& mode);
  // Returns how `rows` rows of a node are divided into stripes.
  static StripeLayout LayoutOf(const TableSpec& spec, int64_t rows);
  // Returns where the parts of a shard are in its segment. `workers` decides how many state slots
  // some updaters have.
  static Result<ShardStorage> StorageOf(const TableSpec& spec, const StripeLayout& layout,
                                        int workers);
  // Returns a shard with `rows` of a table, in memory at `base` that StorageOf describes.
  static Result<std::unique_ptr<Shard>> MakeShard(const TableSpec& spec, RowRange rows, int workers,
                                                  char* base, const ShardUser& user,
                                                  std::atomic<int64_t>* key_counts = nullptr);
  // Sets the number of rows of a hash table, and its capacity if only max_bytes limits it.
  static void SizeForKeys(const Membership& members, TableSpec* spec);
  // Opens the shard in a segment of the size that BytesOf returns. `rank_context` outlives the
  // TableShard. `is_new` is false if other ranks use the table already.
  static Result<std::shared_ptr<TableShard>> Open(const TableSpec& spec, int64_t id,
                                                  Segment segment, RankContext* rank_context,
                                                  const ModeOptions& mode, bool is_new = true);

  // Opens the files of this node for a table that lies in a folder. `session` is not 0 if it uses
  // them already.
  static Result<std::unique_ptr<TableFile>> OpenFile(const std::string& folder,
                                                     const TableSpec& spec, bool any_seed,
                                                     const Membership& members,
                                                     const ModeOptions& mode, uint64_t session = 0);
  // Reserves room in the segment of new files, and resets what an earlier session has left in the
  // others besides rows.
  static Status PrepareFile(const TableSpec& spec, const Membership& members,
                            const ModeOptions& mode, const Segment& segment, const TableFile& file);
  // Keeps the files, which one rank has opened, until the end of the session. The rows may be those
  // of an earlier session.
  void KeepFile(std::unique_ptr<TableFile> file, const std::string& folder, bool is_reopened) {
    file_ = std::move(file);
    folder_ = folder;
    is_reopened_ = is_reopened;
  }
  // In a forked child: Segment::ForgetInChild, also of the lock of the files.
  void ForgetInChild() const {
    segment_->ForgetInChild();
    if (file_ != nullptr) file_->ForgetInChild();
  }
  bool is_reopened() const { return is_reopened_; }
  // Returns an error if this rank has opened the files, and their path no longer leads to them.
  Status CheckFile() const {
    return file_ == nullptr ? Status::Ok() : file_->CheckInPlace(*segment_);
  }
  // Ends the use of the files, on one rank of the node, when no rank changes rows any more. If the
  // rank that had opened them has died, this one opens them.
  Status EndUseOfFile(const Membership& members, const ModeOptions& mode, const WaitLimit& limit);

  // Notes that no row has been changed. New files are removed with this object.
  void CancelUseOfFile() {
    if (file_ != nullptr) file_->CancelUse();
  }

  const TableSpec& spec() const { return spec_; }
  int64_t id() const { return id_; }
  const Partition& partition() const { return partition_; }
  // Returns the memory of this part, which stays mapped until no one shares it any more.
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  Shard* shard() const { return shard_.get(); }
  // Returns null if the session has no name.
  TableHeader* header() const { return header_; }
  Consistency* consistency() const { return consistency_.get(); }
  // Returns the table's rounds with other nodes on the leader of this node, and null elsewhere.
  NodeRounds* node_rounds() const { return node_rounds_.get(); }

  // Return an error if this node cannot serve the header, or the row ids or keys that follow the
  // header.
  Status CheckRequest(const RequestHeader& header) const;
  Status CheckRows(RequestKind kind, const int64_t* row_ids, int64_t num_ids) const;

 private:
  TableShard(const TableSpec& spec, int64_t id, Segment segment, const Partition& partition)
      : spec_(spec),
        id_(id),
        segment_(std::make_shared<Segment>(std::move(segment))),
        partition_(partition) {}

  // Describes the shard for readers.
  Status WriteHeader(const Membership& members);

  TableSpec spec_;
  int64_t id_;
  std::shared_ptr<Segment> segment_;
  Partition partition_;
  std::string folder_;               // of a table that lies on a disk
  std::unique_ptr<TableFile> file_;  // null on the ranks that have not opened the files
  bool is_reopened_ = false;
  std::unique_ptr<const DiskRows> disk_;  // null unless the rows lie on a disk
  std::unique_ptr<Shard> shard_;
  TableHeader* header_ = nullptr;
  std::unique_ptr<Consistency> consistency_;
  std::unique_ptr<NodeRounds> node_rounds_;
};

}  // namespace multiverso
