#include "table/table_shard.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "consistency/make_consistency.h"
#include "memory/file_segment.h"
#include "memory/limits.h"
#include "numbers/make_updater.h"
#include "shard/keyed_shard.h"

namespace multiverso {

static_assert(KeyCounts::kFields == TableLabel::kKeyCounts);

namespace {

// Returns who owns the rows of table number `id`. A small table is on one node, since each call
// would ask every node for a few bytes.
Partition PartitionOf(const TableSpec& spec, const Membership& members, const ModeOptions& mode,
                      int64_t id) {
  // The first node applies the sum, from which its tree begins.
  if (mode.sums_in_rounds()) {
    const bool is_one_part = SumPlan::PrefersOnePart(members.num_nodes(), spec.bytes());
    return is_one_part ? Partition::OnOneNode(members, spec.num_row, 0)
                       : Partition(members, spec.num_row);
  }
  const bool is_small = spec.bytes() <= TableShard::kSmallBytes && spec.MayBeOnOneNode();
  return is_small ? Partition::OnOneNode(members, spec.num_row, id)
                  : Partition(members, spec.num_row);
}

int64_t ValueBytesOfRow(const TableSpec& spec) { return spec.num_col * SizeOf(spec.value_type()); }

StagedShape ShapeOf(const TableSpec& spec) {
  const int64_t row_bytes = ValueBytesOfRow(spec);
  const int64_t stripe_bytes =
      spec.is_hash() ? KeyIndex::kRowsPerStripe * row_bytes : StripeLayout::kStripeBytes;
  StagedShape shape{StripeLayout(spec.num_row, row_bytes, stripe_bytes), spec.num_col,
                    spec.value_type()};
  shape.sums = spec.wire_format();
  // Results that are not exact must be the same for all workers, so that every node copies the
  // whole table, for which a lazy table may be too large.
  if (!spec.is_lazy()) shape.results = spec.wire_format();
  return shape;
}

// Returns who adds which rows in a round.
SumPlan PlanOf(const Partition& partition, const Membership& members) {
  SumPlan plan = SumPlan::Of(members);
  for (const Partition::NodePart& part : partition.nodes()) {
    if (part.rows.count() > 0) plan.parts.push_back({part.rows.first, part.rows.end, part.node});
  }
  const std::vector<int> nodes = plan.WorkerNodes();
  plan.is_tree = partition.is_on_one_node() &&
                 SumPlan::PrefersTree(static_cast<int>(nodes.size())) &&
                 plan.parts[0].root == nodes[0];
  return plan;
}

// Returns how many keys the node with these rows may hold. With several nodes, their numbers of
// keys differ. Where keys make room for others, a node holds at most its share, and all nodes
// together the capacity. Elsewhere a node has room for more, since so many keys as the capacity
// must fit.
int64_t MostKeysOf(const TableSpec& spec, RowRange rows) {
  const auto capacity = static_cast<double>(spec.keys.capacity);
  const auto share_before = [&](int64_t row) {
    return static_cast<double>(row) / static_cast<double>(spec.num_row) * capacity;
  };
  if (spec.keys.evict != 0) {
    return static_cast<int64_t>(share_before(rows.end)) -
           static_cast<int64_t>(share_before(rows.first));
  }
  if (rows.count() == spec.num_row) return spec.keys.capacity;
  const double share = share_before(rows.count());
  constexpr double kDeviations = 6;  // of the number of keys, which is nearly Poisson-distributed
  return std::min(spec.keys.capacity,
                  static_cast<int64_t>(std::ceil(share + kDeviations * std::sqrt(share))));
}

// Returns where updates are counted: for the updater, or to round parameters of 16 bits.
StepCells StepCellsOf(const TableSpec& spec, const StripeLayout& layout, const Updater& updater) {
  if (!updater.counts_steps() && !IsHalf(spec.type())) return StepCells();
  return StepCells(layout, spec.num_col, /*row_by_row=*/!spec.is_array());
}

int64_t KeyBytesOf(const TableSpec& spec, const StripeLayout& layout) {
  return spec.is_hash() ? BytesOfKeys(layout.stripes(), spec.keys) : 0;
}

// A touched row of a lazy table takes whole pages. So only a small part of the memory may be in
// huge pages that are hardly used.
PageSize PagesOf(const TableSpec& spec, int64_t shard_bytes) {
  constexpr int64_t kMaxParts = 16;
  if (spec.is_on_disk()) return PageSize::kSmall;
  if (!spec.is_lazy()) return PageSize::kHuge;
  const bool may_be_wasted = spec.max_bytes == 0 && shard_bytes <= MemoryCeiling() / kMaxParts;
  return may_be_wasted ? PageSize::kHuge : PageSize::kSmall;
}

// Returns null if the rows begin with what their memory contains.
std::unique_ptr<const LazyRows> MakeLazyRows(const TableSpec& spec, RowRange rows,
                                             const StripeLayout& layout,
                                             const ShardStorage& storage, const DiskRows* disk) {
  if (!spec.is_lazy()) return nullptr;
  const bool is_huge = PagesOf(spec, storage.segment_bytes()) == PageSize::kHuge;
  return std::make_unique<LazyRows>(layout, spec.num_col, storage,
                                    Initializer(spec.initializer, spec.type()), rows.first,
                                    spec.max_bytes, is_huge ? kHugePageBytes : PageBytes(),
                                    spec.is_hash() ? MostKeysOf(spec, rows) : 0, disk);
}

// Returns null if the rows have no keys. Observers find the counts of keys at `counts`.
std::unique_ptr<KeyIndex> MakeKeyIndex(const TableSpec& spec, RowRange rows,
                                       const StripeLayout& layout, const ShardStorage& storage,
                                       const LazyRows* lazy, std::atomic<int64_t>* counts) {
  if (!spec.is_hash()) return nullptr;
  auto keys = std::make_unique<KeyIndex>(storage.key_index(), layout.stripes(),
                                         rows.first / KeyIndex::kRowsPerStripe, spec.key_stripes(),
                                         spec.keys, lazy);
  keys->PublishTo(counts);
  return keys;
}

}  // namespace

// The stripes of a shard have as many rows as those of a staged delta.
StripeLayout TableShard::LayoutOf(const TableSpec& spec, int64_t rows) {
  const int64_t size = SizeOf(spec.type());
  if (spec.is_hash()) {
    const int64_t row_bytes = spec.num_col * size;
    return StripeLayout(rows, row_bytes, KeyIndex::kRowsPerStripe * row_bytes);
  }
  return StripeLayout(rows, spec.num_col * size,
                      StripeLayout::kStripeBytes * size / SizeOf(spec.value_type()));
}

Result<ShardStorage> TableShard::StorageOf(const TableSpec& spec, const StripeLayout& layout,
                                           int workers) {
  MV_ASSIGN_OR_RETURN(auto updater, MakeUpdater(spec.updater_kind(), spec.type()));
  return ShardStorage::Plan(layout, ValueBytesOfRow(spec), updater->state_slots(workers),
                            StepCellsOf(spec, layout, *updater),
                            updater->row_slots() * SizeOf(spec.value_type()), spec.is_lazy(),
                            KeyBytesOf(spec, layout));
}

namespace {

// Returns the description of the shards in the buffers of publications, which have no state. Dense
// ones contain values, since those of other nodes arrive as values.
TableSpec PublishedSpecOf(TableSpec spec) {
  spec.updater = static_cast<int32_t>(UpdaterKind::kAdd);
  if (!spec.is_lazy()) spec.dtype = static_cast<int32_t>(spec.value_type());
  return spec;
}

RowRange PublishedRowsOf(const TableSpec& spec, const Partition& partition) {
  return spec.is_lazy() ? partition.node_rows() : RowRange{0, spec.num_row};
}

// Returns whether readers find the table. They would need copies of tables that lie on a disk.
bool HasHeader(const TableSpec& spec, const Membership& members) {
  return !members.name().empty() && !spec.is_on_disk();
}

// Returns the storage of these rows, which are those of a node.
Result<ShardStorage> StorageHere(const TableSpec& spec, RowRange rows, const Membership& members) {
  return TableShard::StorageOf(spec, TableShard::LayoutOf(spec, rows.count()),
                               members.num_workers());
}

std::unique_ptr<const DiskRows> MakeDiskRows(const TableSpec& spec, RowRange rows,
                                             const Segment* file, const ShardStorage& storage) {
  const StripeLayout layout = TableShard::LayoutOf(spec, rows.count());
  std::vector<RowArea> keys;
  if (spec.is_hash()) {
    keys = ArraysOfKeys(layout.stripes());
    keys.erase(keys.begin());
  }
  return std::make_unique<DiskRows>(file, layout, storage, keys);
}

Result<int64_t> BufferBytesOf(const TableSpec& spec, const Partition& partition) {
  const TableSpec published = PublishedSpecOf(spec);
  const int64_t rows = PublishedRowsOf(spec, partition).count();
  MV_ASSIGN_OR_RETURN(
      const ShardStorage storage,
      TableShard::StorageOf(published, TableShard::LayoutOf(published, rows), /*workers=*/0));
  return RoundUp(storage.segment_bytes(), kPage);
}

}  // namespace

Result<TableBytes> TableShard::BytesOf(const TableSpec& spec, int64_t id, const Membership& members,
                                       const ModeOptions& mode) {
  const Partition partition = PartitionOf(spec, members, mode, id);
  MV_ASSIGN_OR_RETURN(const ShardStorage storage,
                      StorageHere(spec, partition.node_rows(), members));
  MV_ASSIGN_OR_RETURN(int64_t consistency, ConsistencyBytes(mode, ShapeOf(spec), members));
  const int64_t shard = RoundUp(storage.segment_bytes(), kPage);
  // The rows of a lazy table may be more than the machine holds, since few may be used.
  const int64_t needed = spec.is_lazy()
                             ? storage.bytes_before_parameters()
                             : RoundUp(shard - storage.changed_rows().set_bytes(), kPage);
  int64_t published = 0;
  if (HasHeader(spec, members)) {
    MV_ASSIGN_OR_RETURN(const int64_t buffer, BufferBytesOf(spec, partition));
    published = TableHeader::BuffersOf(spec) * buffer;
  }
  return TableBytes{needed, shard - needed + RoundUp(consistency, kPage) + published,
                    PagesOf(spec, shard)};
}

void TableShard::SizeForKeys(const Membership& members, TableSpec* spec) {
  // A later session may have another number of servers, mostly one of those that divide this.
  constexpr int64_t kUsualServers = 48;
  const int64_t servers = spec->is_on_disk()
                              ? std::lcm(int64_t{members.num_servers()}, kUsualServers)
                              : members.num_servers();
  spec->num_row = KeyIndex::kRowsPerStripe;
  constexpr int64_t kMostColumns = int64_t{1} << 20;  // more fail the check of the spec
  const bool has_size =
      IsTableDType(spec->dtype) && spec->num_col > 0 && spec->num_col < kMostColumns;
  if (spec->keys.capacity == 0 && spec->max_bytes > 0 && has_size) {
    auto storage = StorageOf(*spec, LayoutOf(*spec, spec->num_row), members.num_workers());
    if (storage.ok()) {
      spec->keys.capacity =
          std::max<int64_t>(spec->max_bytes / storage->bytes_per_row() * members.num_nodes(), 1);
    }
  }
  spec->SetRowsForKeys(servers);
}

Result<std::unique_ptr<Shard>> TableShard::MakeShard(const TableSpec& spec, RowRange rows,
                                                     int workers, char* base, const ShardUser& user,
                                                     std::atomic<int64_t>* key_counts) {
  const StripeLayout layout = LayoutOf(spec, rows.count());
  MV_ASSIGN_OR_RETURN(ShardStorage storage, StorageOf(spec, layout, workers));
  MV_ASSIGN_OR_RETURN(auto updater, MakeUpdater(spec.updater_kind(), spec.type()));
  storage.Attach(base);
  auto lazy = MakeLazyRows(spec, rows, layout, storage, user.disk);
  auto keys = MakeKeyIndex(spec, rows, layout, storage, lazy.get(), key_counts);
  ShardValues values(layout, spec.num_col, spec.type(), storage, std::move(updater), rows.first,
                     std::move(lazy), keys.get());
  if (keys == nullptr) return std::make_unique<Shard>(std::move(values), user);
  return std::unique_ptr<Shard>(
      std::make_unique<KeyedShard>(std::move(values), user, std::move(keys)));
}

Result<std::shared_ptr<TableShard>> TableShard::Open(const TableSpec& spec, int64_t id,
                                                     Segment segment, RankContext* rank_context,
                                                     const ModeOptions& mode, bool is_new) {
  const Membership& members = rank_context->members();
  const Partition partition = PartitionOf(spec, members, mode, id);
  const RowRange rows = partition.node_rows();
  MV_ASSIGN_OR_RETURN(ShardStorage storage, StorageHere(spec, rows, members));
  std::shared_ptr<TableShard> created(new TableShard(spec, id, std::move(segment), partition));
  storage.Attach(created->segment_->data());
  if (spec.is_on_disk()) {
    created->disk_ = MakeDiskRows(spec, rows, created->segment_.get(), storage);
  }
  MV_ASSIGN_OR_RETURN(created->shard_,
                      MakeShard(spec, rows, members.num_workers(), created->segment_->data(),
                                ShardUser{rank_context->members().local_rank(),
                                          rank_context->peers(), members.worker_id(),
                                          /*is_reader=*/false, created->disk_.get()},
                                rank_context->memory()->KeyCountsOf(id)));
  char* const mode_memory = created->segment_->data() + RoundUp(storage.segment_bytes(), kPage);
  Shard* const shard = created->shard_.get();
  created->consistency_ =
      MakeConsistency(mode, ShapeOf(spec), rows.first, mode_memory, shard, rank_context, spec.name);
  if (NodeRounds::AreIn(mode, members)) {
    created->node_rounds_ =
        std::make_unique<NodeRounds>(mode, PlanOf(partition, members), ShapeOf(spec), rows.first,
                                     mode_memory, shard, rank_context, spec.name);
  }
  if (HasHeader(spec, members)) {
    created->header_ = reinterpret_cast<TableHeader*>(storage.header_room());
    if (!is_new) return created;
    MV_RETURN_IF_NOT_OK(created->WriteHeader(members));
  }
  // Every rank stores the same values, before any rank can use the table.
  for (int i = 0; i < kHyperCount; ++i) {
    shard->hyper()->values[i].store(spec.hyper[i], std::memory_order_relaxed);
  }
  return created;
}

Status TableShard::WriteHeader(const Membership& members) {
  MV_ASSIGN_OR_RETURN(const int64_t buffer, BufferBytesOf(spec_, partition_));
  // Every rank writes the same header, before any rank can use the table.
  header_->session = members.session();
  header_->id = id_;
  header_->spec = spec_;
  header_->rows = partition_.node_rows();
  header_->num_workers = members.num_workers();
  header_->published_spec = PublishedSpecOf(spec_);
  header_->published_rows = PublishedRowsOf(spec_, partition_);
  const int buffers = TableHeader::BuffersOf(spec_);
  for (int i = 0; i < buffers; ++i) {
    header_->buffers[i].offset = segment_->bytes() - (buffers - i) * buffer;
  }
  header_->magic.store(TableHeader::kMagic, std::memory_order_release);
  return Status::Ok();
}

Result<std::unique_ptr<TableFile>> TableShard::OpenFile(const std::string& folder,
                                                        const TableSpec& spec, bool any_seed,
                                                        const Membership& members,
                                                        const ModeOptions& mode, uint64_t session) {
  const RowRange rows = PartitionOf(spec, members, mode, /*id=*/0).node_rows();
  MV_ASSIGN_OR_RETURN(const ShardStorage storage, StorageHere(spec, rows, members));
  MV_ASSIGN_OR_RETURN(const TableBytes bytes, BytesOf(spec, /*id=*/0, members, mode));
  const TablePlace place{spec, members.node_of(members.rank()), members.num_nodes(), rows,
                         RoundUp(storage.segment_bytes(), kPage)};
  if (session != 0) return TableFile::TakeOver(folder, place, session);
  return TableFile::Open(folder, place, bytes.needed + bytes.spare, any_seed);
}

Status TableShard::PrepareFile(const TableSpec& spec, const Membership& members,
                               const ModeOptions& mode, const Segment& segment,
                               const TableFile& file) {
  const RowRange rows = PartitionOf(spec, members, mode, /*id=*/0).node_rows();
  MV_ASSIGN_OR_RETURN(ShardStorage storage, StorageHere(spec, rows, members));
  storage.Attach(segment.data());
  const auto disk = MakeDiskRows(spec, rows, &segment, storage);
  if (file.last_session() == 0 || file.has_holes()) {
    MV_RETURN_IF_NOT_OK(spec.is_lazy() ? disk->ReserveAllButRows() : disk->ReserveAll());
    if (file.last_session() == 0) return Status::Ok();
    MV_RETURN_IF_NOT_OK(disk->ReserveAgain());
  }
  // The end of the segment may be new, since another mode needs another number of bytes.
  const int64_t end = RoundUp(storage.segment_bytes(), kPage);
  MV_RETURN_IF_NOT_OK(ReserveOnDisk(segment, end, segment.bytes() - end));
  new (storage.holders()) Holders();
  TouchCounts* const counts = storage.touch_counts();
  counts->rows_in_use.store(counts->touched.load());
  new (&counts->credit) MemoryCredit();
  std::memset(segment.data() + end, 0, static_cast<size_t>(segment.bytes() - end));
  return Status::Ok();
}

Status TableShard::EndUseOfFile(const Membership& members, const ModeOptions& mode,
                                const WaitLimit& limit) {
  if (file_ == nullptr) {
    const uint64_t session = TableFile::NumberOf(members.session());
    MV_ASSIGN_OR_RETURN(file_,
                        OpenFile(folder_, spec_, /*any_seed=*/false, members, mode, session));
  }
  if (members.survives_losses()) MV_RETURN_IF_NOT_OK(shard_->RecoverStripes(limit));
  return file_->EndUse(*segment_, shard_->version());
}

// ---- The requests of other nodes that this node can serve
// -----------------------------------------

Status TableShard::CheckRequest(const RequestHeader& header) const {
  if (header.is_encoded() && spec_.value_type() != DType::kFloat32) {
    return Status(Code::kTransport, StrCat("a request with encoded values of ", spec_.Describe()));
  }
  if (header.kind == RequestKind::kSetHyper) {
    return CheckHyper(spec_.updater_kind(), static_cast<int32_t>(header.first), header.value);
  }
  if (header.version > static_cast<uint64_t>(Request::kLastVersion)) {
    return Status(Code::kTransport, StrCat("a request with version ", header.version));
  }
  const int64_t element_bytes = SizeOf(spec_.value_type());
  int64_t unit = HasIds(header.kind) ? spec_.bytes_per_id(header.kind) : element_bytes;
  if (unit == 0) unit = sizeof(int64_t);  // then the bytes are those of the ids
  const bool has_bytes = header.kind != RequestKind::kTouch;
  if (has_bytes && (header.count > kChunkBytes / unit || header.bytes != header.count * unit)) {
    return Status(Code::kTransport, StrCat("a request for ", header.count, " x ", unit,
                                           " bytes, with ", header.bytes));
  }
  if (NeedsKeys(header.kind) && !spec_.is_hash()) {
    return Status(Code::kTransport, StrCat("a request for keys of ", spec_.Describe()));
  }
  if (IsAtomic(header.kind) && !spec_.has_atomics()) {
    return Status(Code::kTransport,
                  StrCat("a request for ", NameOf(header.kind), " of ", spec_.Describe()));
  }
  if (HasIds(header.kind)) return Status::Ok();
  const RowRange rows = partition_.node_rows();
  const int64_t width = header.width;
  const int64_t column = header.first % spec_.num_col;
  // Each update of an updater with state per row is of whole rows.
  const bool must_be_rows = IsAdd(header.kind) && shard_->updater().row_slots() > 0;
  const bool is_of_rows = column == 0 && header.count % spec_.num_col == 0;
  bool fits =
      header.first >= rows.first * spec_.num_col && (!must_be_rows || (width == 0 && is_of_rows));
  if (width == 0) {
    fits = fits && header.first <= rows.end * spec_.num_col - header.count;
  } else {
    fits = fits && width <= spec_.num_col - column && header.count % width == 0 &&
           header.first / spec_.num_col <= rows.end - header.count / width;
  }
  if (!fits) {
    return Status(Code::kTransport,
                  StrCat("a request for ", header.count, " elements from element ", header.first,
                         "; this node has rows ", rows.first, " to ", rows.end - 1));
  }
  return Status::Ok();
}

Status TableShard::CheckRows(RequestKind kind, const int64_t* row_ids, int64_t num_ids) const {
  const RowRange rows = partition_.node_rows();
  for (int64_t i = 0; i < num_ids; ++i) {
    if (rows.Contains(spec_.RowOfId(kind, row_ids[i]))) continue;
    return Status(Code::kTransport,
                  StrCat("a request for ", IsOfKeys(kind) ? "key " : "row ", row_ids[i],
                         "; this node has rows ", rows.first, " to ", rows.end - 1));
  }
  return Status::Ok();
}

}  // namespace multiverso
