#include "sum/node_sum.h"

#include <algorithm>

#include "base/copy_bytes.h"

namespace multiverso {
namespace {

// The number of pieces of a sum made before the leader polls other tables, so that none waits long.
constexpr int kPiecesPerPoll = 4;

}  // namespace

NodeSum::NodeSum(int64_t number, const SumPlan& plan, int node, const SegmentGrid& grid,
                 const Reduction& reduction, const Formats& formats, Terms* terms, SumSink sink,
                 PieceLink* link)
    : number_(number),
      plan_(plan),
      node_(node),
      formats_(formats),
      terms_(terms),
      sink_(std::move(sink)),
      link_(link),
      sum_(grid, reduction, static_cast<int>(plan.node_of.size())),
      places_(plan.parts.size()) {
  const std::vector<int> worker_nodes = plan_.WorkerNodes();
  const std::vector<int> here = plan_.WorkersByNode()[static_cast<size_t>(node)];
  // Each node begins with another part, so that the nodes do not all send to the same one.
  for (size_t i = 0; i < plan_.parts.size(); ++i) {
    AddPart((i + static_cast<size_t>(node) + 1) % plan_.parts.size(), worker_nodes, here);
  }
}

void NodeSum::AddPart(size_t index, const std::vector<int>& worker_nodes,
                      const std::vector<int>& here) {
  const SumPlan::Part& part = plan_.parts[index];
  Place& place = places_[index];
  place.parent = plan_.ParentOf(part, node_, worker_nodes);
  place.next = part.first;
  // The workers on this node or behind a child, and those behind each child. A leaf of a star, as
  // this node is in nearly all parts of a large sum, has none.
  const bool is_leaf = !is_root(index) && !plan_.is_tree;
  const auto num_workers = static_cast<int>(plan_.node_of.size());
  std::vector<int> all = is_leaf ? here : std::vector<int>();
  std::map<int, std::vector<int>> behind;
  for (int worker = 0; worker < num_workers && !is_leaf; ++worker) {
    int child = SumPlan::kNoNode;
    int node = plan_.node_of[static_cast<size_t>(worker)];
    for (; node != node_ && node != SumPlan::kNoNode;
         node = plan_.ParentOf(part, node, worker_nodes)) {
      child = node;
    }
    if (node != node_) continue;
    all.push_back(worker);
    if (child != SumPlan::kNoNode) behind[child].push_back(worker);
  }
  const std::vector<WorkerRange> ranges = SubtreesOf(all, num_workers);
  for (const WorkerRange& range : ranges) {
    Stream stream;
    stream.part = index;
    stream.workers = range;
    stream.next = part.first;
    streams_.push_back(std::move(stream));
  }
  const size_t first = streams_.size() - ranges.size();
  for (const auto& [child, workers] : behind) {
    place.children.push_back(Child{child});
    for (const WorkerRange& subtree : SubtreesOf(workers, num_workers)) {
      size_t at = first;
      while (!streams_[at].workers.Contains(subtree.first)) ++at;
      inputs_[{index, subtree.first}] = {at, streams_[at].inputs.size()};
      Input input;
      input.node = child;
      input.workers = subtree;
      streams_[at].inputs.push_back(std::move(input));
    }
  }
}

// ---- Sums ---------------------------------------------------------------------------------------

Status NodeSum::Poll(bool* any) {
  for (Stream& stream : streams_) {
    bool moved = true;
    for (int i = 0; i < kPiecesPerPoll && moved; ++i) {
      moved = false;
      MV_RETURN_IF_NOT_OK(Step(&stream, &moved));
      *any = *any || moved;
    }
  }
  return Status::Ok();
}

void NodeSum::ReadFrom(const char* to, const char* from) {
  for (Stream& stream : streams_) {
    for (DeltaSource& source : stream.sources) source.ReadFrom(to, from);
  }
}

bool NodeSum::Open(Stream* stream) {
  std::vector<DeltaSource> here;
  for (Input& input : stream->inputs) {
    input.contributes = !input.pieces.empty();
    if (!input.contributes && !terms_->HaveFinished(input.workers, stream->round)) return false;
  }
  stream->end =
      std::min(terms_->Open(stream->round, stream->next, &here), plan_.parts[stream->part].end);
  if (stream->end <= stream->next) return false;
  const std::vector<DeltaSource> former = std::move(stream->sources);
  stream->sources.clear();
  // The source of an input is set when its next piece is read.
  for (Input& input : stream->inputs) {
    if (!input.contributes) continue;
    stream->sources.push_back(input.is_read ? former[input.source]
                                            : DeltaSource::Whole(input.workers.first, nullptr));
    const uint64_t copied_from = input.pieces.front()->header()->copied_from;
    for (Child& child : places_[stream->part].children) {
      if (child.node == input.node) child.copied_from = copied_from;
    }
  }
  const int64_t first_row = stream->next / sum_.grid().per_row();
  for (DeltaSource& source : here) {
    if (!stream->workers.Contains(source.worker())) continue;
    source.SeekRow(sum_.grid(), first_row);
    stream->sources.push_back(source);
  }
  if (stream->sources.empty()) return false;
  std::sort(stream->sources.begin(), stream->sources.end(),
            [](const DeltaSource& a, const DeltaSource& b) { return a.worker() < b.worker(); });
  for (Input& input : stream->inputs) {
    const auto is_of_input = [&](const DeltaSource& source) {
      return source.worker() == input.workers.first;
    };
    input.source = static_cast<size_t>(
        std::find_if(stream->sources.begin(), stream->sources.end(), is_of_input) -
        stream->sources.begin());
  }
  if (!is_root(stream->part) || formats_.results != WireFormat::kFloat32) {
    copied_from_ = terms_->CopiedFrom(stream->round);
  }
  stream->is_open = true;
  return true;
}

Status NodeSum::Step(Stream* stream, bool* any) {
  if (!stream->is_open && !Open(stream)) return Status::Ok();
  const Place& place = places_[stream->part];
  std::vector<int> receivers{place.parent};
  if (is_root(stream->part)) receivers = Copying(stream->part, stream->round);
  for (const int node : receivers) {
    if (!link_->CanSend(plan_.leader_of[static_cast<size_t>(node)])) return Status::Ok();
  }
  int64_t end = stream->end;
  for (Input& input : stream->inputs) {
    if (!input.contributes) continue;
    if (input.pieces.empty()) return Status::Ok();
    const SumPiece& piece = *input.pieces.front();
    if (!input.is_read) {
      if (piece.header()->round != stream->round || piece.header()->first != stream->next) {
        return Invalid(piece);
      }
      stream->sources[input.source] = piece.Source();
      input.is_read = true;
    }
    end = std::min(end, piece.header()->end);
  }
  *any = true;
  // A failure to send the piece does not undo it.
  const Status sent =
      is_root(stream->part) ? ApplySum(stream, receivers, end) : SendSum(stream, receivers, end);
  for (Input& input : stream->inputs) {
    if (!input.contributes || input.pieces.front()->header()->end > stream->next) continue;
    input.pieces.pop_front();
    input.is_read = false;
  }
  if (stream->next < stream->end) return sent;
  stream->is_open = false;
  const SumPlan::Part& part = plan_.parts[stream->part];
  if (stream->next < part.end) return sent;
  stream->next = part.first;
  ++stream->round;
  return sent;
}

PieceHeader NodeSum::HeaderOf(const Stream& stream, int32_t worker) const {
  PieceHeader header;
  header.sender = link_->rank();
  header.table = number_;
  header.round = stream.round;
  header.part = static_cast<int32_t>(stream.part);
  header.worker = worker;
  header.first = stream.next;
  return header;
}

Status NodeSum::SendSum(Stream* stream, const std::vector<int>& receivers, int64_t end) {
  const SegmentGrid& grid = sum_.grid();
  PieceHeader header = HeaderOf(*stream, stream->workers.first);
  header.copied_from = copied_from_;
  for (const Child& child : places_[stream->part].children) {
    header.copied_from = std::min(header.copied_from, child.copied_from);
  }
  const PieceLink::Piece piece = link_->New();
  const bool is_whole = AllAreWhole(stream->sources);
  PieceWriter writer(grid, piece.get(), header, end, is_whole);
  stream->next = sum_.Sum(
      &stream->sources, header.first, writer.end(),
      [&](int64_t segment, int64_t terms) { return writer.Begin(segment, terms); },
      [&](int64_t, int64_t count, const char* sum, int64_t terms) {
        CopyBytes(writer.Append(count), sum, static_cast<size_t>(count * grid.element_bytes()));
        if (is_whole) piece->header()->terms = terms;
      });
  writer.End(stream->next);
  return SendSumPiece(receivers, piece);
}

Status NodeSum::ApplySum(Stream* stream, const std::vector<int>& receivers, int64_t end) {
  const SegmentGrid& grid = sum_.grid();
  if (stream->next == plan_.parts[stream->part].first) sink_.BeginChange(stream->round);
  PieceHeader header = HeaderOf(*stream, PieceHeader::kResult);
  const bool is_copied_here = formats_.results != WireFormat::kFloat32;
  const bool is_sent = is_copied_here || !receivers.empty();
  const bool is_new =
      (is_copied_here && copied_from_ == stream->round) ||
      std::any_of(places_[stream->part].children.begin(), places_[stream->part].children.end(),
                  [&](const Child& child) { return child.copied_from == stream->round; });
  // A node that begins to copy needs the values of all rows.
  const bool is_whole = AllAreWhole(stream->sources);
  const bool sends_changes = is_sent && (is_whole || (!is_new && !plan_.is_tree));
  PieceLink::Piece piece = link_->New();
  PieceWriter writer(grid, piece.get(), header, end, is_whole);
  stream->next = sum_.Sum(
      &stream->sources, header.first, writer.end(),
      [&](int64_t segment, int64_t terms) {
        return !sends_changes || writer.Begin(segment, terms);
      },
      [&](int64_t element, int64_t count, const char* sum, int64_t terms) {
        sink_.Apply(element, count, sum, terms, sends_changes ? writer.Append(count) : nullptr);
      });
  if (!is_sent) return Status::Ok();
  if (sends_changes) {
    writer.End(stream->next);
    return SendResult(receivers, piece, is_new);
  }
  Status failure;
  for (; header.first < end; header.first = header.end) {
    piece = link_->New();
    header.end = std::min(end, grid.EndOfPiece(header.first));
    piece->Begin(header, grid.Bytes(header.first, header.end));
    sink_.shard->Copy(grid.Element(header.first) - sink_.first_element,
                      grid.Elements(header.first, header.end), piece->values());
    const Status sent = SendResult(receivers, piece, is_new);
    if (failure.ok()) failure = sent;
  }
  return failure;
}

// ---- Progress -----------------------------------------------------------------------------------

uint64_t NodeSum::summed() const {
  uint64_t rounds = kNever;
  for (const Stream& stream : streams_) {
    if (terms_->HaveFinished(stream.workers, stream.round)) continue;
    rounds = std::min(rounds, stream.round);
  }
  return rounds;
}

bool NodeSum::HasSummed(const std::vector<uint64_t>& adds) const {
  return std::all_of(streams_.begin(), streams_.end(), [&](const Stream& stream) {
    return std::all_of(adds.begin() + stream.workers.first, adds.begin() + stream.workers.end,
                       [&](uint64_t count) { return count <= stream.round; });
  });
}

bool NodeSum::HasSummedParts(int64_t segments) const {
  const auto has_passed = [&](size_t part, uint64_t rounds, int64_t next) {
    const SumPlan::Part& all = plan_.parts[part];
    return rounds > 0 || next >= std::min(all.first + segments, all.end);
  };
  for (size_t part = 0; part < places_.size(); ++part) {
    const Place& place = places_[part];
    if (!is_root(part) && !has_passed(part, place.copied, place.next)) return false;
  }
  return std::all_of(streams_.begin(), streams_.end(), [&](const Stream& stream) {
    return has_passed(stream.part, stream.round, stream.next);
  });
}

uint64_t NodeSum::applied() const {
  uint64_t rounds = kNever;
  for (const Stream& stream : streams_) {
    if (is_root(stream.part)) rounds = std::min(rounds, stream.round);
  }
  return rounds;
}

uint64_t NodeSum::copied() const {
  uint64_t rounds = kNever;
  for (size_t part = 0; part < places_.size(); ++part) {
    if (!is_root(part)) rounds = std::min(rounds, places_[part].copied);
  }
  return rounds;
}

std::vector<int> NodeSum::Awaited() const {
  std::vector<bool> is_awaited(plan_.leader_of.size(), false);
  uint64_t round = kNever;
  for (const Stream& stream : streams_) {
    round = std::min(round, stream.round);
    for (const Input& input : stream.inputs) {
      if (input.pieces.empty()) is_awaited[static_cast<size_t>(input.node)] = true;
    }
  }
  std::vector<int> ranks;
  for (size_t node = 0; node < is_awaited.size(); ++node) {
    if (is_awaited[node]) ranks.push_back(plan_.leader_of[node]);
  }
  // Only when all partial sums have come is a result missing.
  for (size_t part = 0; ranks.empty() && part < places_.size(); ++part) {
    if (is_root(part) || places_[part].copied >= round) continue;
    ranks.push_back(plan_.leader_of[static_cast<size_t>(plan_.parts[part].root)]);
  }
  return ranks;
}

bool NodeSum::IsAwaitingPieces() const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const Stream& stream) {
    return stream.is_open || (!is_root(stream.part) && copied_from_ < stream.round &&
                              places_[stream.part].copied < stream.round);
  });
}

}  // namespace multiverso
