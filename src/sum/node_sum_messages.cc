// The messages of NodeSum: partial sums and results, which may travel encoded.
#include <utility>

#include "base/clock.h"
#include "base/mix.h"
#include "base/text.h"
#include "numbers/kernels.h"
#include "sum/node_sum.h"

namespace multiverso {

std::vector<int> NodeSum::Copying(size_t part, uint64_t round) const {
  std::vector<int> nodes;
  for (const Child& child : places_[part].children) {
    if (child.copied_from <= round) nodes.push_back(child.node);
  }
  return nodes;
}

Status NodeSum::SendTo(const std::vector<int>& nodes, const PieceLink::Piece& piece) {
  // A lost node must not keep the others from getting the piece.
  Status failure;
  for (const int node : nodes) {
    MessageCounts counts;
    counts.bytes_sent = static_cast<int64_t>(piece->bytes.size());
    counts.raw_bytes_sent = piece->RawBytes();
    sink_.CountMessages(counts);
    const Status sent = link_->Send(plan_.leader_of[static_cast<size_t>(node)], piece);
    if (failure.ok()) failure = sent;
  }
  return failure;
}

PieceLink::Piece NodeSum::Encoded(const PieceLink::Piece& piece, WireFormat format,
                                  const uint64_t* seed) {
  const Instant began = Clock::now();
  PieceLink::Piece encoded = link_->New();
  const bool fits = piece->Encode(format, seed, encoded.get());
  MessageCounts counts;
  counts.encoding = Clock::now() - began;
  sink_.CountMessages(counts);
  return fits ? encoded : piece;
}

Status NodeSum::SendSumPiece(const std::vector<int>& nodes, const PieceLink::Piece& piece) {
  if (formats_.sums == WireFormat::kFloat32) return SendTo(nodes, piece);
  // The seed depends on nothing but the piece, so that a repetition of the job rounds alike.
  const PieceHeader& header = *piece->header();
  uint64_t seed = static_cast<uint64_t>(number_);
  for (const int64_t number :
       {static_cast<int64_t>(header.round), header.first, static_cast<int64_t>(header.worker)}) {
    seed = Mix64(seed + static_cast<uint64_t>(number) + 1);
  }
  return SendTo(nodes, Encoded(piece, formats_.sums, &seed));
}

Status NodeSum::SendResult(const std::vector<int>& nodes, const PieceLink::Piece& piece,
                           bool is_new) {
  if (formats_.results == WireFormat::kFloat32) return SendTo(nodes, piece);
  if (is_new) {
    UpdateCopy(piece.get());
    return SendTo(nodes, piece);
  }
  const PieceLink::Piece difference = link_->New();
  *difference = *piece;
  difference->header()->is_difference = 1;
  difference->ForEachRange(sum_.grid(), [&](int64_t element, int64_t count, char* values) {
    auto* const floats = reinterpret_cast<float*>(values);
    kernels::Difference(floats, floats, reinterpret_cast<float*>(sink_.at(element)), count);
  });
  const PieceLink::Piece encoded = Encoded(difference, formats_.results, nullptr);
  if (encoded == difference) return SendResult(nodes, piece, /*is_new=*/true);
  // What the other nodes decode takes the place of the exact difference.
  encoded->Decode(sum_.grid(), difference.get());
  UpdateCopy(difference.get());
  return SendTo(nodes, encoded);
}

void NodeSum::UpdateCopy(SumPiece* piece) {
  const bool is_difference = piece->header()->is_difference != 0;
  piece->ForEachRange(sum_.grid(), [&](int64_t element, int64_t count, char* values) {
    if (!is_difference) return sink_.Store(element, count, values);
    kernels::Add(reinterpret_cast<float*>(sink_.at(element)),
                 reinterpret_cast<const float*>(values), count);
  });
}

Status NodeSum::Invalid(const SumPiece& piece) const {
  const bool has_header = piece.bytes.size() >= sizeof(PieceHeader);
  return Status(
      Code::kTransport,
      StrCat(has_header ? StrCat("rank ", piece.header()->sender) : "another node", " sent ",
             piece.bytes.size(), " bytes that are not the next piece of a sum"));
}

Status NodeSum::Receive(PieceLink::Piece message) {
  const Instant began = Clock::now();
  MessageCounts counts;
  counts.bytes_received = counts.raw_bytes_received = static_cast<int64_t>(message->bytes.size());
  PieceLink::Piece piece = message;
  const bool is_encoded = message->bytes.size() >= sizeof(PieceHeader) &&
                          message->header()->wire != WireFormat::kFloat32;
  if (is_encoded) {
    piece = link_->New();
    if (!message->Decode(sum_.grid(), piece.get())) return Invalid(*message);
    counts.raw_bytes_received = message->RawBytes();
    counts.encoding = Clock::now() - began;
  }
  sink_.CountMessages(counts);
  if (!piece->IsValid(sum_.grid())) return Invalid(*piece);
  const PieceHeader& header = *piece->header();
  const auto part = static_cast<size_t>(header.part);
  if (part >= plan_.parts.size() || header.first < plan_.parts[part].first ||
      header.end > plan_.parts[part].end) {
    return Invalid(*piece);
  }
  if (header.worker == PieceHeader::kResult) return StoreAndForward(piece, message);
  const auto found = inputs_.find({part, header.worker});
  if (found == inputs_.end()) return Invalid(*piece);
  const auto [stream, input] = found->second;
  streams_[stream].inputs[input].pieces.push_back(std::move(piece));
  return Status::Ok();
}

Status NodeSum::StoreAndForward(const PieceLink::Piece& piece, const PieceLink::Piece& message) {
  const PieceHeader& header = *piece->header();
  const auto part = static_cast<size_t>(header.part);
  const SumPlan::Part& all = plan_.parts[part];
  Place& place = places_[part];
  const bool begins = place.next == all.first;
  if (is_root(part) || header.first != place.next ||
      (begins ? header.round < place.copied : header.round != place.round)) {
    return Invalid(*piece);
  }
  if (header.is_difference != 0 && formats_.results == WireFormat::kFloat32) return Invalid(*piece);
  if (begins) sink_.BeginChange(header.round);
  UpdateCopy(piece.get());
  place.round = header.round;
  place.next = header.end;
  if (place.next == all.end) {
    place.next = all.first;
    place.copied = header.round + 1;
  }
  // The receivers look whether the node from which they have it counts as lost.
  message->header()->sender = link_->rank();
  return SendTo(Copying(part, header.round), message);
}

}  // namespace multiverso
