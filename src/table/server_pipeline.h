// ServerPipeline: sends one server of another node its part of a call, and receives the answers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/buffer_pool.h"
#include "node/flight_recorder.h"
#include "node/sequence_numbers.h"
#include "shard/tensor_exchange.h"
#include "table/chunk_source.h"
#include "table/late_answers.h"
#include "table/request_message.h"
#include "table/table_shard.h"
#include "transport/call_tags.h"
#include "transport/messenger.h"

namespace multiverso {

// How the unanswered requests can go to another server of the node, in a session that continues
// without lost ranks. Changes have numbers, so that none is applied twice. Messages have memory of
// their own, so that the caller gets its memory back even if a message to a dead rank never
// completes.
struct Failover {
  SequenceNumbers* numbers = nullptr;  // null in other sessions
  int node = 0;                        // the server's node
  int slot = -1;  // slot of the numbers; without one, an unanswered add is not repeated
};

// A pipeline keeps several chunks in flight, so that the network never idles. Without failover, the
// messages use the caller's memory directly. A pipeline is used by one thread at a time.
class ServerPipeline {
 public:
  // No other pipeline of this rank uses the call's tag with the server. `rows` is for error
  // messages. `buffers` and `table` outlive the pipeline.
  ServerPipeline(Messenger* messenger, BufferPool* buffers, int server, CallNumber call,
                 const TableShard* table, ChunkSource source, RowRange rows, Failover failover);
  ~ServerPipeline();
  ServerPipeline(ServerPipeline&&) = default;
  ServerPipeline& operator=(ServerPipeline&&) = delete;

  int server() const { return server_; }
  int tag() const { return call_.tag; }
  RowRange rows() const { return rows_; }
  // Returns the server that server() replaced, or -1.
  int replaced_server() const { return replaced_server_; }
  const MessageCounts& counts() const { return counts_; }

  // Sends and receives without waiting. Returns ok when all chunks have been answered, and pending
  // until then. Not called again after an error.
  Status Step(bool* progressed);

  // With failover, returns the messenger's error, which may mean that the server has died. After
  // such an error, Step does nothing until Redirect.
  const Status& stall() const { return stall_; }
  // Redirects the unanswered requests of a lost server to another server of its node, with another
  // call number. Returns PeerLost if an add without a number might then be applied twice.
  Status Redirect(int server, CallNumber call);

  // Ends a call that failed or was aborted: sends nothing more and lets the messages in flight
  // complete. Returns true when no message is in flight.
  bool WindDown();
  // Withdraws the receives of the answers that have not come. Sends nothing more afterwards.
  void Abandon();
  // After Abandon, returns whether no answer is arriving in the caller's memory.
  bool HasLeftMemory();
  // Returns the answers that are missing after Abandon.
  LateAnswers::Part Missing() const;

 private:
  static constexpr size_t kWindow = 8;  // the most chunks in flight

  // The messages of a chunk, and the memory that the messages use.
  struct Wire {
    std::string message;  // the header and the inline bytes
    Reply reply;
    // With failover, the row ids and then the values sent or received. If values are received that
    // may be encoded, these values. Otherwise null: the messages use the caller's memory.
    BufferPool::Buffer values;
    int64_t received = 0;
    Messenger::Ticket answer;
    Messenger::Ticket sends[3];

    bool is_in_use() const;
  };
  struct InFlightRequest {
    Chunk chunk;
    std::unique_ptr<Wire> wire = std::make_unique<Wire>();
    // The values that are sent, if they are not the chunk's. They are encoded once, so that a
    // repeated request adds the same.
    BufferPool::Buffer encoded;
    bool is_separate = false;                  // the values are in `encoded`
    WireFormat format = WireFormat::kFloat32;  // of the values that are sent
    uint64_t number = 0;   // number among the changes of the slot; 0 without a slot
    uint64_t order = 0;    // position among the chunks of the pipeline
    int64_t expected = 0;  // bytes of the answer
    bool is_in_flight = false;
  };

  bool has_failover() const { return failover_.numbers != nullptr; }
  Status SendNext(InFlightRequest* request);
  // Returns the steps of an exchange, and requires that the call is one.
  TensorExchange ExchangeOf(const Request& request) const;
  // Takes the delta of an exchange, and encodes the delta of a range.
  void Prepare(InFlightRequest* request);
  void Encode(InFlightRequest* request);
  RequestHeader HeaderOf(const InFlightRequest& request) const;
  Status Send(InFlightRequest* request);
  // Progresses the messages of the request, and sets *done to whether all have completed.
  Status Test(InFlightRequest* request, bool* done);
  // Returns the outcome of a request, or pending until the reason of an empty answer has come.
  Status CheckAnswer(const InFlightRequest& request);
  // Moves the values that have been received to the caller's memory.
  void TakeValues(const InFlightRequest& request);
  // Takes the answer of a request whose messages have completed.
  Status Finish(InFlightRequest* request);
  // With failover, moves an error that may mean the death of the server to stall_, and returns ok.
  Status StoreIfLoss(const Status& status);
  // Gives a request new message memory, and leaks the old memory if messages still use it.
  static void Detach(Messenger* messenger, std::unique_ptr<Wire>* wire);

  Messenger* messenger_;
  BufferPool* buffers_;
  int server_;
  int replaced_server_ = -1;
  CallNumber call_;
  const TableShard* table_;
  ChunkSource source_;
  RowRange rows_;
  Failover failover_;
  Status stall_;
  // Pointers, since messages in flight point into the requests.
  std::vector<std::unique_ptr<InFlightRequest>> in_flight_;
  uint64_t num_sent_ = 0;  // chunks sent
  MessageCounts counts_;
  bool all_sent_ = false;
  int missing_ = 0;  // answers, after Abandon
};

}  // namespace multiverso
