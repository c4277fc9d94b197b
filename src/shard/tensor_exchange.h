// TensorExchange: the steps of an exchange (Request::Exchange) outside of the table, for a range of
// elements at a time: TakeDelta, then an add_get of the delta, then Settle.
#pragma once

#include <cstdint>

#include "numbers/hyper.h"
#include "numbers/tensor_list.h"
#include "numbers/updater.h"
#include "numbers/wire_format.h"
#include "shard/request.h"

namespace multiverso {

// Multiplies floating-point values by a factor.
void Scale(DType dtype, void* values, int64_t count, double factor);

// Elements are counted from the first element of the table.
class TensorExchange {
 public:
  // The steps of a Request::Exchange. The updater, its hyper-parameters and what the request refers
  // to must outlive the object.
  TensorExchange(const Updater& updater, const Hyper& hyper, const Request& request)
      : updater_(updater),
        hyper_(hyper),
        tensors_(*request.tensors),
        last_(static_cast<char*>(request.out)),
        scale_(request.scale) {}

  // Elements that stay in a cache between two loops over them.
  static constexpr int64_t kPiece = 4096;

  char* last(int64_t first) const { return last_ + first * SizeOf(tensors_.dtype()); }
  // Writes the delta, scaled, to `to`. It may overwrite the last values.
  void TakeDelta(int64_t first, int64_t count, char* to) const;
  // Sets the tensors to the parameters with which the worker continues. The last values have been
  // overwritten with the table's new values.
  void Settle(int64_t first, int64_t count) const;

  // ---- For adds that another node makes, with an encoded delta of float32 values
  // Encodes the delta as TakeDelta would leave it, and overwrites the last values with what
  // rounding took from it. If the format cannot represent all values, they are in `to` as float32,
  // nothing was taken, and the result is kFloat32. `to` has room for these.
  WireFormat TakeEncoded(WireFormat format, int64_t first, int64_t count, char* to) const;
  // `values` are the table's new values in that format. The next delta includes what rounding took.
  void SettleEncoded(WireFormat format, int64_t first, int64_t count, const char* values) const;

 private:
  const Updater& updater_;
  const Hyper& hyper_;
  const TensorList& tensors_;
  char* last_;    // the values of the whole table after the last exchange
  double scale_;  // Request::scale
};

}  // namespace multiverso
