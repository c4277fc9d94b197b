// The operations of a shard on values that travel in another format.
#include <algorithm>
#include <vector>

#include "shard/shard_stripes.h"

namespace multiverso {

int64_t Shard::PieceOf(int64_t count) const {
  const bool is_whole = counts_steps_ || storage_.row_state_bytes() > 0;
  return is_whole ? count : std::min(count, kWirePiece);
}

Status Shard::RunEncoded(const Request& request, WireFormat delta_format, WireFormat out_format,
                         Progress* progress, const WaitLimit& limit, bool* fits) {
  const int worker = request.worker == Request::kThisWorker ? user_.worker : request.worker;
  if (progress->done == 0 && MustTouch(request, worker)) {
    MV_RETURN_IF_NOT_OK(Touch(request, limit));
  }
  const auto* const delta = static_cast<const char*>(request.delta);
  auto* const out = static_cast<char*>(request.out);
  const bool returns = ReturnsData(request.kind);
  float piece_values[kWirePiece];
  std::vector<float> run_values;  // of longer pieces
  const auto body = [&](int64_t at, int64_t buffer_at, int64_t count) {
    const int64_t piece = PieceOf(count);
    if (piece > kWirePiece) run_values.resize(static_cast<size_t>(piece));
    float* const values = piece > kWirePiece ? run_values.data() : piece_values;
    for (const int64_t end = at + count; at < end; at += piece, buffer_at += piece) {
      const int64_t elements = std::min(piece, end - at);
      if (IsAdd(request.kind)) {
        DecodePart(delta_format, delta, buffer_at, elements, values);
        ApplyAndNote(at, UpdateAt(at, values, returns ? values : nullptr, elements, worker));
      } else {
        CopyToWorker(at, values, elements, worker);
      }
      if (!returns) continue;
      char* const to = out + WireBytes(out_format, buffer_at);
      *fits = EncodeNearest(out_format, values, elements, to) && *fits;
    }
  };
  const Elements range = ElementsOf(request);
  return IsAdd(request.kind) ? ForEachStripe<kWriting>(range, progress, limit, body)
                             : ForEachStripe<kReading>(range, progress, limit, body);
}

}  // namespace multiverso
