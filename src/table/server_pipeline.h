// ServerPipeline: the part of a call that one server of another node answers.
#ifndef MULTIVERSO_TABLE_SERVER_PIPELINE_H_
#define MULTIVERSO_TABLE_SERVER_PIPELINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "node/sequence_numbers.h"
#include "table/chunk_source.h"
#include "table/request.h"
#include "transport/messenger.h"

namespace multiverso {

// What a lane needs in a session that goes on without lost ranks: its changes are numbered, so that
// another server can take over, and its messages have memory of their own, so that the caller's is
// free whatever becomes of a message to a rank that has died.
struct LaneBackup {
  SequenceNumbers* numbers = nullptr;  // null in other sessions
  int node = 0;
  int slot = -1;  // none: then a change that was not answered cannot be asked for again
};

// Keeps several chunks under way, straight from and into the caller's memory, so that the network
// always has something to do. Used by one thread at a time.
class ServerPipeline {
 public:
  // To `server`, with a tag that no other call of this rank has now. `rows` is for messages.
  ServerPipeline(Messenger* messenger, int server, int tag, int64_t table,
                 const TableRequest& request, ChunkSource source, RowRange rows,
                 LaneBackup backup = LaneBackup());
  ~ServerPipeline();
  ServerPipeline(ServerPipeline&&) = default;
  ServerPipeline& operator=(ServerPipeline&&) = delete;

  int server() const { return server_; }
  int tag() const { return tag_; }
  RowRange rows() const { return rows_; }
  // The server that this one took over from, or -1.
  int replaced() const { return replaced_; }
  const LaneBackup& backup() const { return backup_; }

  // Ok when all chunks have been answered, pending before. Never waits. Not called again after an
  // error.
  Status Step(bool* progressed);

  // With a backup: the messenger has failed, as it may when the server has died, and this is how.
  // Step does nothing any more before Redirect.
  const Status& stall() const { return stall_; }
  // The server has gone: asks another one of its node for what has not been answered, with another
  // tag. PeerLost if that might be done twice.
  Status Redirect(int server, int tag);

  // The call has failed or is given up. Sends no more, and lets what is under way end; true when
  // nothing is.
  bool WindDown();
  // Nothing more will come of what is under way: takes the caller's memory back where it can.
  void Abandon();

 private:
  static constexpr size_t kWindow = 8;

  // The messages of a chunk, and the memory that they use.
  struct Wire {
    std::string header;
    Reply reply;
    std::vector<char> values;  // with a backup: row ids, then what is sent or comes back
    int64_t received = 0;
    Messenger::Ticket answer;
    Messenger::Ticket sends[3];

    bool is_in_use() const;
  };
  // A chunk under way.
  struct InFlightRequest {
    Chunk chunk;
    std::unique_ptr<Wire> wire = std::make_unique<Wire>();
    uint64_t number = 0;   // among the changes of the slot
    uint64_t order = 0;    // among the chunks of the lane
    int64_t expected = 0;  // bytes of the answer
    bool is_under_way = false;
  };

  bool has_backup() const { return backup_.numbers != nullptr; }
  Status SendNext(InFlightRequest* parcel);
  Status Send(InFlightRequest* parcel);
  // Lets the messages of the parcel move on; done when all are over.
  Status Test(InFlightRequest* parcel, bool* done);
  Status CheckAnswer(const InFlightRequest& parcel);
  // Takes in the answer to a parcel that is over.
  Status Finish(InFlightRequest* parcel);
  // What came of a message: ok if that is held back, since the server may have died.
  Status Stall(const Status& status);
  static void Detach(Messenger* messenger, std::unique_ptr<Wire>* wire);

  Messenger* messenger_;
  int server_;
  int replaced_ = -1;
  int tag_;
  int64_t table_;
  TableRequest request_;
  ChunkSource source_;
  RowRange rows_;
  LaneBackup backup_;
  Status stall_;
  std::vector<std::unique_ptr<InFlightRequest>> parcels_;  // stay put: messages point into them
  uint64_t sent_ = 0;                                      // chunks
  bool all_sent_ = false;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_SERVER_PIPELINE_H_
