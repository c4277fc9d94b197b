// AddArranger: prepares the adds of a table. Rows are ordered or merged, and a gradient is clipped
// to a norm. The caller does this, because only the caller has the whole add: over several nodes it
// travels in parts.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "numbers/hyper.h"
#include "shard/request.h"
#include "shard/row_merge.h"
#include "table/table_shard.h"

namespace multiverso {

// What an add refers to while it runs: the order of its rows, and merged rows or clipped values.
struct ArrangedAdd {
  RowOrder order;
  MergedRows merged;
};

class AddArranger {
 public:
  // `is_staged` is whether adds are staged for rounds, and `is_in_place` whether they run on this
  // node's shard alone. `where` begins the messages. The shard outlives the object.
  AddArranger(const TableShard& here, bool is_staged, bool is_in_place, std::string where)
      : spec_(here.spec()),
        shard_(here.shard()),
        is_staged_(is_staged),
        is_in_place_(is_in_place),
        clips_gradients_(ClipsGradients(here.spec().updater_kind())),
        where_(std::move(where)) {}

  bool MustArrange(const Request& request) const {
    return request.kind == RequestKind::kAddRows ||
           // The rows of keys in a round are found first.
           (request.kind == RequestKind::kAddKeys && !is_staged_) ||
           (clips_gradients_ && IsAdd(request.kind) && clipnorm() != 0);
  }
  // Prepares a checked add. The result, which may be null, must outlive the request. Returns
  // ValueError if a row is named twice and the updater does not allow it.
  Result<std::unique_ptr<const ArrangedAdd>> Arrange(Request* add) const;
  // Returns the norm to which the gradient of each call is clipped, or 0.
  double clipnorm() const { return clips_gradients_ ? shard_->hyper()->Get(kClipNorm) : 0; }

 private:
  // The same for rows, without clipping.
  Result<std::unique_ptr<ArrangedAdd>> ArrangeRows(Request* add) const;

  const TableSpec& spec_;
  Shard* shard_;
  bool is_staged_;
  bool is_in_place_;
  bool clips_gradients_;  // whether the updater has the option clipnorm
  std::string where_;
};

}  // namespace multiverso
