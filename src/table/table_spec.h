// TableSpec: the properties of a table, which must be the same on all ranks that create it.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/status.h"
#include "base/supported.h"
#include "multiverso/constants.h"
#include "numbers/hyper.h"
#include "numbers/initializer.h"
#include "numbers/wire_format.h"
#include "shard/key_index.h"
#include "shard/request.h"

namespace multiverso {

// The numbers equal those of the C API (MV_TABLE_ARRAY, ...). A hash table has a row for each key,
// in any row.
enum class TableKind : int32_t {
  kArray = MV_TABLE_ARRAY,
  kMatrix = MV_TABLE_MATRIX,
  kHash = MV_TABLE_HASH
};
// The numbers are those of the C API (MV_NUMA_LOCAL, ...).
enum class NumaPolicy : int32_t { kLocal = MV_NUMA_LOCAL, kInterleave = MV_NUMA_INTERLEAVE };

// Ranks send a spec as bytes, so every field is plain and of fixed size. A spec keeps a caller's
// invalid values, so that Check() can name them.
struct TableSpec {
  int32_t kind = 0;
  int32_t dtype = 0;
  int32_t updater = 0;
  int32_t numa = 0;  // a NumaPolicy
  int32_t wire = 0;  // a WireFormat, in which sums, and deltas of ranges, travel between nodes
  // A checksum of the folder's name if the table lies in a folder, and then never 0.
  uint32_t backing = 0;
  int64_t num_row = 0;
  int64_t num_col = 1;
  double hyper[kHyperCount] = {};
  char name[64] = {};
  InitializerSpec initializer;
  int64_t max_bytes = 0;  // of parameters and state on each node; 0 for all that the machine has
  KeyPolicy keys;         // of a hash table

  // Returns ValueError or TypeError if no table can have this spec.
  Status Check() const;
  // Returns what a table with this spec uses, for CheckSupported. The spec is valid by itself.
  FeatureSet features() const;
  bool operator==(const TableSpec& other) const;

  WireFormat wire_format() const { return static_cast<WireFormat>(wire); }
  UpdaterKind updater_kind() const { return static_cast<UpdaterKind>(updater); }
  bool is_array() const { return kind == static_cast<int32_t>(TableKind::kArray); }
  bool is_hash() const { return kind == static_cast<int32_t>(TableKind::kHash); }
  // Sets num_row for the capacity of a hash table whose rows are divided among `parts` servers.
  void SetRowsForKeys(int64_t parts);
  // Returns the number of stripes of a hash table.
  int64_t key_stripes() const { return num_row / KeyIndex::kRowsPerStripe; }
  // Returns the table's row that a row id names, or the first row of the stripe of a key.
  int64_t RowOfId(RequestKind request, int64_t id) const {
    return IsOfKeys(request) ? StripeOfKey(id, key_stripes()) * KeyIndex::kRowsPerStripe : id;
  }
  // Returns the bytes that a request of that kind, which names rows, has for each of them, in its
  // delta or its result; 0 if it has neither.
  int64_t bytes_per_id(RequestKind request) const;
  // Returns the type in which parameters are stored.
  DType type() const { return static_cast<DType>(dtype); }
  // Returns the type of deltas and results.
  DType value_type() const { return ValueType(type()); }
  int64_t count() const { return num_row * num_col; }
  // Returns the bytes of a delta or a result of the whole table.
  int64_t bytes() const { return count() * SizeOf(value_type()); }
  // Returns whether rows get their initial values when they are first changed (LazyRows).
  bool is_lazy() const { return initializer.kind != static_cast<int32_t>(InitializerKind::kNone); }
  // Returns whether the rows lie in files, from session to session (TableFile).
  bool is_on_disk() const { return backing != 0; }
  // Returns whether one node may have all rows. Lazy rows take their memory as they are used, for
  // which all nodes have room, and a later session must find rows on a disk where they were.
  bool MayBeOnOneNode() const { return !is_lazy() && !is_on_disk(); }
  // Returns whether elements can be changed without the updater, by atomic requests.
  bool has_atomics() const {
    return updater_kind() == UpdaterKind::kAdd && !IsHalf(type()) && !is_hash();
  }
  // Returns "matrix 'w' of 4 x 8 float32, updater add".
  std::string Describe() const;

 private:
  // Checks the numbers that stand for names.
  Status CheckNumbers() const;
  Status CheckKeys() const;
  FeatureSet FeaturesOfRows() const;
  FeatureSet FeaturesOfUpdater() const;
  // Returns where the rows lie and how they travel, for Describe.
  std::string DescribeMemory() const;
};

// Returns the feature that a value of a hyper-parameter is, if it is one.
FeatureSet FeaturesOfHyper(UpdaterKind updater, int32_t index, double value);

}  // namespace multiverso
