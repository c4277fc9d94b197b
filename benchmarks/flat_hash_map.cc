// Rows in private memory that absl::flat_hash_map finds, as references for hash tables.
#include <absl/container/flat_hash_map.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

namespace {

struct Rows {
  absl::flat_hash_map<int64_t, int64_t> places;
  std::vector<float> values;
  int64_t columns;
};

// A part of the rows with a lock. The least recently used of some random rows is evicted.
struct Shard {
  std::mutex mutex;
  absl::flat_hash_map<int64_t, uint32_t> places;
  std::vector<int64_t> keys;
  std::vector<uint32_t> uses;
  std::vector<float> values;
  uint32_t calls = 0;
  uint32_t used = 0;

  void Fetch(int64_t key, int64_t columns, uint32_t random, float* out) {
    constexpr uint32_t kCandidates = 64;
    const auto found = places.find(key);
    uint32_t row = 0;
    if (found != places.end()) {
      row = found->second;
    } else {
      const auto rows = static_cast<uint32_t>(keys.size());
      if (used < rows) {
        row = used++;
      } else {
        row = random % rows;
        for (uint32_t i = 0; i < kCandidates; ++i) {
          const uint32_t other = (random + i) % rows;
          if (uses[other] < uses[row]) row = other;
        }
        places.erase(keys[row]);
      }
      places.emplace(key, row);
      keys[row] = key;
      std::memset(values.data() + row * columns, 0, columns * sizeof(float));
    }
    uses[row] = ++calls;
    std::memcpy(out, values.data() + row * columns, columns * sizeof(float));
  }
};

struct EvictingRows {
  static constexpr uint64_t kShards = 1024;
  std::unique_ptr<Shard[]> shards{new Shard[kShards]};
  int64_t columns;

  void Fetch(int64_t key, uint32_t random, float* out) {
    Shard& shard = shards[static_cast<uint64_t>(key) * 0x9E3779B97F4A7C15U >> 54];
    const std::lock_guard<std::mutex> holding(shard.mutex);
    shard.Fetch(key, columns, random, out);
  }
};

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

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

// Makes room for `capacity` keys, with some room more, and fetches these keys.
void* evicting_rows_create(const int64_t* keys, int64_t count, int64_t capacity, int64_t columns) {
  auto* const rows = new EvictingRows;
  rows->columns = columns;
  const uint64_t each = capacity / EvictingRows::kShards + 1;
  for (uint64_t i = 0; i < EvictingRows::kShards; ++i) {
    Shard& shard = rows->shards[i];
    shard.places.reserve(each);
    shard.keys.resize(each);
    shard.uses.resize(each);
    shard.values.resize(each * columns);
  }
  std::vector<float> out(columns);
  for (int64_t i = 0; i < count; ++i) rows->Fetch(keys[i], 0, out.data());
  return rows;
}

// Lets threads fetch batches of keys, of which every tenth is new. Sets span[0] and span[1] to the
// begin and end. Returns another number than 0 if the threads could not be started.
int evicting_rows_fetch(void* table, int threads, int64_t calls, int64_t seed, void* const* sets,
                        int64_t num_sets, int64_t count, double* span) {
  EvictingRows& rows = *static_cast<EvictingRows*>(table);
  std::vector<std::thread> running;
  span[0] = Now();
  const auto fetch = [&](int thread) {
    std::mt19937_64 random(seed * threads + thread);
    std::vector<float> out(count * rows.columns);
    for (int64_t call = 0; call < calls; ++call) {
      const auto* const keys = static_cast<const int64_t*>(sets[(call + thread) % num_sets]);
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t number = random();
        const int64_t key = i % 10 == 0 ? static_cast<int64_t>(number) : keys[i];
        rows.Fetch(key, static_cast<uint32_t>(number >> 32), out.data() + i * rows.columns);
      }
    }
  };
  int failed = 0;
  try {
    for (int thread = 1; thread < threads; ++thread) running.emplace_back(fetch, thread);
  } catch (const std::system_error&) {
    failed = 1;
  }
  fetch(0);
  for (std::thread& thread : running) thread.join();
  span[1] = Now();
  return failed;
}

void evicting_rows_destroy(void* table) { delete static_cast<EvictingRows*>(table); }

}  // extern "C"
