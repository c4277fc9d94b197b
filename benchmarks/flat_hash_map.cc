// Rows in private memory that absl::flat_hash_map finds, as a reference for hash tables.
#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

struct Rows {
  absl::flat_hash_map<int64_t, int64_t> places;
  std::vector<float> values;
  int64_t columns;
};

}  // namespace

extern "C" {

void* flat_hash_map_create(const int64_t* keys, int64_t count, int64_t columns) {
  auto* const rows = new Rows{{}, std::vector<float>(count * columns, 1e-3f), columns};
  rows->places.reserve(count);
  for (int64_t i = 0; i < count; ++i) rows->places.emplace(keys[i], i);
  return rows;
}

void flat_hash_map_get(void* table, const int64_t* keys, int64_t count, float* out) {
  const Rows& rows = *static_cast<Rows*>(table);
  const auto bytes = static_cast<size_t>(rows.columns) * sizeof(float);
  for (int64_t i = 0; i < count; ++i) {
    const auto found = rows.places.find(keys[i]);
    if (found == rows.places.end()) {
      std::memset(out + i * rows.columns, 0, bytes);
    } else {
      std::memcpy(out + i * rows.columns, rows.values.data() + found->second * rows.columns, bytes);
    }
  }
}

void flat_hash_map_destroy(void* table) { delete static_cast<Rows*>(table); }

}
