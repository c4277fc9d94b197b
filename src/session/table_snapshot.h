// TableSnapshot: copies sections of tables to memory, with as many threads as this rank has cores
// for, since one thread alone does not use all of a memory's speed. Nobody writes to the tables
// meanwhile.
#ifndef MULTIVERSO_SESSION_TABLE_SNAPSHOT_H_
#define MULTIVERSO_SESSION_TABLE_SNAPSHOT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/format.h"
#include "session/negotiation.h"

namespace multiverso {

class TableSnapshot {
 public:
  // Where each section goes: one after the other, each from the beginning of a cache line on.
  static std::vector<int64_t> OffsetsOf(const std::vector<Section>& sections);
  // What all of them take.
  static int64_t BytesOf(const std::vector<Section>& sections);
  // How many threads a rank may use beside as many others of its node.
  static int ThreadsFor(int ranks);

  // The tables and `to` stay until the end.
  void Begin(const Tables& tables, const std::vector<Section>& sections, char* to, int threads);
  // Goes on with it; pending at the end of the slice.
  Status Step(const WaitLimit& limit);

 private:
  struct Piece {
    Table* table = nullptr;
    Section section;
    int64_t offset = 0;  // in the section
    int64_t bytes = 0;
    char* to = nullptr;
  };
  // One thread's part.
  struct Share {
    std::vector<Piece> unfinished;  // one at most
    Status failure;
  };

  // Takes pieces until there are no more, or the slice is over.
  void Work(std::atomic<size_t>* next, const WaitLimit& limit, Share* share) const;

  std::vector<Piece> pieces_;  // still to be copied
  int threads_ = 1;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_TABLE_SNAPSHOT_H_
