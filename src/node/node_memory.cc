#include "node/node_memory.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/checked.h"
#include "base/process.h"
#include "base/text.h"

namespace multiverso {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

// Over nodes an area has a piece of a sum for each node, so that the number of messages per element
// does not grow with the nodes. With more than 8 nodes the pieces become smaller instead.
int64_t AreaBytes(int nodes) { return NodeMemory::kScratchAreaBytes * std::clamp(nodes, 1, 8); }

}  // namespace

int64_t NodeMemory::ControlBytes(int num_ranks, int local_ranks) {
  return RoundUp(NodeControl::BytesFor(num_ranks, local_ranks), kHugePage);
}

int64_t NodeMemory::ScratchBytes(int local_ranks, int nodes) {
  return local_ranks * 2 * AreaBytes(nodes);
}

NodeMemory::NodeMemory(Segment segment, const Membership* members)
    : segment_(std::move(segment)),
      members_(members),
      control_(reinterpret_cast<NodeControl*>(segment_.data())),
      cores_(OnlineCores()) {}

void NodeMemory::Join() const {
  RankSlot& mine = own_slot();
  mine.rank = members_->rank();
  mine.pid = ProcessId();
  mine.process = OwnProcess();
  mine.worker_id = members_->worker_id();
  mine.local_rank = members_->local_rank();
  // A rank that joins an elastic session finds the control segment complete.
  if (members_->local_rank() == 0) {
    control_->bytes_of_slot = sizeof(RankSlot);
    control_->bytes_of_recorder = sizeof(FlightRecorder);
    CopyText(control_->version, members_->version());
    control_->num_ranks = members_->capacity();
    control_->num_ranks_here = static_cast<int32_t>(members_->node_ranks().size());
    control_->num_nodes = members_->num_nodes();
    control_->node = members_->node();
    control_->started = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
    control_->session = members_->session();
    control_->options = members_->options();
    if (members_->is_elastic()) StartElastic();
    control_->magic.store(NodeControl::kMagic, std::memory_order_release);
  }
  mine.state.store(RankSlot::kAlive, std::memory_order_release);
}

void NodeMemory::StartElastic() const {
  control_->initial_size = members_->initial_size();
  CopyText(control_->host, members_->host_of(members_->rank()));
  control_->joined.Start(members_->initial_size());
  control_->calls.latest.store(uint64_t{1} << 32 | static_cast<uint32_t>(members_->initial_size()));
  control_->calls.loaded_step.store(-1);
}

char* NodeMemory::scratch(int local_rank, int area) const {
  return segment_.data() + ControlBytes(*members_) + (local_rank * 2 + area) * scratch_area_bytes();
}

int64_t NodeMemory::scratch_area_bytes() const { return AreaBytes(members_->num_nodes()); }

void NodeMemory::RecordAbort(int by, const Status& why) const {
  uint32_t expected = NodeControl::kNone;
  if (!control_->abort.compare_exchange_strong(expected, NodeControl::kWriting)) return;
  control_->aborted_by = by;
  control_->abort_code = static_cast<int32_t>(why.code());
  control_->abort_about = why.peer() == nullptr ? -1 : why.peer()->rank;
  CopyText(control_->abort_reason, why.text());
  control_->abort.store(NodeControl::kSet, std::memory_order_release);
}

void NodeMemory::RecordTable(int64_t table, const std::string& name, int32_t dtype, int64_t num_row,
                             int64_t num_col, int64_t capacity) const {
  if (table >= FlightRecorder::kTables) return;
  TableLabel& label = control_->labels[table];
  label.is_set.store(0);
  CopyText(label.name, name);
  label.dtype = dtype;
  label.num_row = num_row;
  label.num_col = num_col;
  label.capacity = capacity;
  label.is_set.store(1, std::memory_order_release);
}

std::atomic<int64_t>* NodeMemory::KeyCountsOf(int64_t table) const {
  return table >= FlightRecorder::kTables ? nullptr : control_->labels[table].key_counts;
}

void NodeMemory::RecordCheckpoint(const std::string& path) const {
  const uint32_t number = control_->num_checkpoints.load(std::memory_order_relaxed) + 1;
  CopyText(control_->checkpoints[number % 2], path);
  control_->num_checkpoints.store(number, std::memory_order_release);
}

void NodeMemory::WakeLeader() const {
  if (!members_->spans_nodes()) return;
  // The bell changes even if no thread sleeps, since the service thread may be about to sleep.
  control_->bell.fetch_add(1, std::memory_order_seq_cst);
  if (control_->bell_sleepers.load(std::memory_order_seq_cst) != 0) {
    WakeWord(&control_->bell, kWakeAll);
  }
}

}  // namespace multiverso
