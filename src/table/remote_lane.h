// RemoteLane: the part of a call that one server of another node answers.
#ifndef MULTIVERSO_TABLE_REMOTE_LANE_H_
#define MULTIVERSO_TABLE_REMOTE_LANE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "table/chunk_source.h"
#include "table/request.h"
#include "transport/messenger.h"

namespace multiverso {

// Keeps several chunks under way, straight from and into the caller's memory, so that the network
// always has something to do. Used by one thread at a time.
class RemoteLane {
 public:
  // To `server`, with a tag that no other call of this rank has now. `rows` is for messages.
  RemoteLane(Messenger* messenger, int server, int tag, int64_t table, const TableRequest& request,
             ChunkSource source, RowRange rows);
  ~RemoteLane();
  RemoteLane(RemoteLane&&) = default;
  RemoteLane& operator=(RemoteLane&&) = delete;

  int server() const { return server_; }
  RowRange rows() const { return rows_; }

  // Ok when all chunks have been answered, pending before. Never waits. Not called again after an
  // error.
  Status Step(bool* progressed);

  // The call has failed or is given up. Sends no more, and lets what is under way end; true when
  // nothing is.
  bool WindDown();
  // Nothing more will come of what is under way: takes the caller's memory back where it can.
  void Abandon();

 private:
  static constexpr size_t kWindow = 8;

  // A chunk under way.
  struct Parcel {
    Chunk chunk;
    std::string header;
    Reply reply;
    int64_t expected = 0;  // bytes of the answer
    int64_t received = 0;
    Messenger::Ticket answer;
    Messenger::Ticket sends[3];
    bool is_under_way = false;
  };

  Status SendNext(Parcel* parcel);
  // Lets the messages of the parcel move on; done when all are over.
  Status Test(Parcel* parcel, bool* done);
  Status CheckAnswer(const Parcel& parcel);

  Messenger* messenger_;
  int server_;
  int tag_;
  int64_t table_;
  TableRequest request_;
  ChunkSource source_;
  RowRange rows_;
  std::vector<std::unique_ptr<Parcel>> parcels_;  // stay put: messages point into them
  bool all_sent_ = false;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_REMOTE_LANE_H_
