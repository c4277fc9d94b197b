// UpcomingPlaces: the places of the next keys of a list, each computed once, some keys before it is
// needed.
#ifndef MULTIVERSO_SHARD_UPCOMING_PLACES_H_
#define MULTIVERSO_SHARD_UPCOMING_PLACES_H_

#include <cstdint>

#include "shard/key_index.h"
#include "shard/prefetch.h"

namespace multiverso {

class UpcomingPlaces {
 public:
  explicit UpcomingPlaces(const KeyIndex* keys) : keys_(keys) {}

  // Computes the place of the key number i, and prefetches what finding it reads.
  void Begin(int64_t i, int64_t key) {
    KeyIndex::Place& place = places_[i % kSize];
    place = keys_->PlaceOf(key);
    keys_->Prefetch(place);
  }
  const KeyIndex::Place& At(int64_t i) const { return places_[i % kSize]; }

 private:
  static constexpr int64_t kSize = 4 * kPrefetchDistance;
  const KeyIndex* keys_;
  KeyIndex::Place places_[kSize];
};

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_UPCOMING_PLACES_H_
