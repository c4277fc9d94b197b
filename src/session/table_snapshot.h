// TableSnapshot: copies sections of tables to memory with several threads, since one thread alone
// cannot use the full memory bandwidth. The caller ensures that the tables do not change meanwhile.
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
  // Returns the offset of each section in the copy, and then the bytes of the whole copy. Sections
  // are aligned to cache lines.
  static std::vector<int64_t> OffsetsOf(const std::vector<Section>& sections);
  // Returns the number of threads that each of `ranks` ranks of a node may use.
  static int ThreadsFor(int ranks);

  // The tables and `to` must outlive the snapshot.
  TableSnapshot(const Tables& tables, const std::vector<Section>& sections, char* to);
  Status Copy(int threads, const WaitLimit& limit);

 private:
  struct Piece {
    Table* table = nullptr;
    Section section;
    int64_t offset = 0;  // offset in the section
    int64_t bytes = 0;
    char* to = nullptr;
  };

  // Copies pieces, in each thread, until no piece is left or a thread has failed.
  Status CopyPieces(std::atomic<size_t>* next, const WaitLimit& limit) const;

  std::vector<Piece> pieces_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_TABLE_SNAPSHOT_H_
