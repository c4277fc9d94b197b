// TensorExchange: the steps of an exchange (Request::Exchange) outside of the table, for a range of
// elements at a time: TakeDelta, then an add_get of the delta, then Settle.
#ifndef MULTIVERSO_SHARD_TENSOR_EXCHANGE_H_
#define MULTIVERSO_SHARD_TENSOR_EXCHANGE_H_

#include <cstdint>

#include "shard/hyper.h"
#include "shard/tensor_list.h"
#include "shard/updater.h"

namespace multiverso {

// Multiplies floating-point values by a factor.
void Scale(DType dtype, void* values, int64_t count, double factor);

// Elements are counted from the first element of the table.
class TensorExchange {
 public:
  // `last` are the values of the whole table after the last exchange. The arguments must outlive
  // the object.
  TensorExchange(const Updater& updater, const Hyper& hyper, const TensorList& tensors, void* last,
                 double scale)
      : updater_(updater),
        hyper_(hyper),
        tensors_(tensors),
        last_(static_cast<char*>(last)),
        scale_(scale) {}

  char* last(int64_t first) const { return last_ + first * SizeOf(tensors_.dtype()); }
  // Overwrites the last values with the delta.
  void TakeDelta(int64_t first, int64_t count) const;
  // Sets the tensors to the parameters with which the worker continues. The last values have been
  // overwritten with the table's new values.
  void Settle(int64_t first, int64_t count) const;
  // The same, if only a part of the delta was added, and the last values have been overwritten with
  // the rest. `values` are the table's new values. The next delta includes the rest.
  void SettleWithResidual(int64_t first, int64_t count, const char* values) const;

 private:
  const Updater& updater_;
  const Hyper& hyper_;
  const TensorList& tensors_;
  char* last_;
  double scale_;  // Request::scale
};

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_TENSOR_EXCHANGE_H_
