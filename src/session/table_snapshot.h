// TableSnapshot: copies sections of tables to memory with several threads, since one thread alone
// cannot use the full memory bandwidth. The tables do not change meanwhile.
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
  // The offset of each section in the copy: they follow each other, each aligned to a cache line.
  static std::vector<int64_t> OffsetsOf(const std::vector<Section>& sections);
  // The bytes of the whole copy.
  static int64_t BytesOf(const std::vector<Section>& sections);
  // How many threads each of `ranks` ranks of a node may use.
  static int ThreadsFor(int ranks);

  // The tables and `to` must outlive the snapshot.
  TableSnapshot(const Tables& tables, const std::vector<Section>& sections, char* to);
  Status Copy(int threads, const WaitLimit& limit);

 private:
  struct Piece {
    Table* table = nullptr;
    Section section;
    int64_t offset = 0;  // in the section
    int64_t bytes = 0;
    char* to = nullptr;
  };

  // One thread's part: copies pieces until none are left or a thread has failed.
  Status CopyPieces(std::atomic<size_t>* next, const WaitLimit& limit) const;

  std::vector<Piece> pieces_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_TABLE_SNAPSHOT_H_
