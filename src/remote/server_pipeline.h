// ServerPipeline: sends one server of another node its part of a call, and receives the answers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/buffer_pool.h"
#include "node/flight_recorder.h"
#include "remote/chunk_source.h"
#include "remote/late_answers.h"
#include "shard/tensor_exchange.h"
#include "table/request_message.h"
#include "table/table_shard.h"
#include "transport/call_tags.h"
#include "transport/messenger.h"

namespace multiverso {

// A pipeline keeps several chunks in flight, so that the network never idles. Its messages use
// the caller's memory directly. A pipeline is used by one thread at a time.
class ServerPipeline {
 public:
  // No other pipeline of this rank uses the call's tag with the server. `rows` is for error
  // messages. `buffers` and `table` outlive the pipeline.
  ServerPipeline(Messenger* messenger, BufferPool* buffers, int server, CallNumber call,
                 const TableShard* table, ChunkSource source, RowRange rows);
  ~ServerPipeline();
  ServerPipeline(ServerPipeline&&) = default;
  ServerPipeline& operator=(ServerPipeline&&) = delete;

  int server() const { return server_; }
  int tag() const { return call_.tag; }
  RowRange rows() const { return rows_; }
  const MessageCounts& counts() const { return counts_; }

  // Sends and receives without waiting. Returns ok when all chunks have been answered, and pending
  // until then. Not called again after an error.
  Status Step(bool* progressed);

  // Ends a call that failed or was aborted: sends nothing more and lets the messages in flight
  // complete. Returns true when no message is in flight.
  bool WindDown();
  // Withdraws the receives of the answers that have not come. Sends nothing more afterwards.
  void Abandon();
  // After Abandon, returns whether no answer is arriving in the caller's memory.
  bool HasLeftMemory();
  // Returns the answers that are missing after Abandon.
  LateAnswers::Part Missing() const { return {server_, missing_}; }

 private:
  static constexpr size_t kWindow = 8;  // the most chunks in flight

  // A chunk in flight, with its messages and the memory that they use.
  struct InFlightRequest {
    Chunk chunk;
    RequestHeader header;
    std::string message;  // the header and the inline bytes
    Reply reply;
    // The values received, if they may be encoded. Otherwise null: the messages use the caller's
    // memory.
    BufferPool::Buffer values;
    int64_t expected = 0;  // bytes of the answer
    int64_t received = 0;
    Messenger::Ticket answer;
    Messenger::Ticket sends[3];
    // The values that are sent, if they are not the chunk's.
    BufferPool::Buffer encoded;
    bool is_separate = false;  // the values are in `encoded`
    bool is_in_flight = false;

    bool HasOpenMessages() const;
  };

  Status SendNext(InFlightRequest* request);
  // Returns the steps of an exchange, and requires that the call is one.
  TensorExchange ExchangeOf(const Request& request) const;
  RequestHeader HeaderOf(const Chunk& chunk) const;
  // Takes the delta of an exchange, and encodes the delta of a range.
  void Prepare(InFlightRequest* request);
  void Encode(InFlightRequest* request);
  Status Send(InFlightRequest* request);
  // Progresses the messages of the request, and sets *done to whether all have completed.
  Status Test(InFlightRequest* request, bool* done);
  // Returns the outcome of a request, or pending until the reason of an empty answer has come.
  Status CheckAnswer(const InFlightRequest& request);
  // Moves the values that have been received to the caller's memory.
  void TakeValues(const InFlightRequest& request);
  // Takes the answer of a request whose messages have completed.
  Status Finish(InFlightRequest* request);

  Messenger* messenger_;
  BufferPool* buffers_;
  int server_;
  CallNumber call_;
  const TableShard* table_;
  ChunkSource source_;
  RowRange rows_;
  // Pointers, since messages in flight point into the requests.
  std::vector<std::unique_ptr<InFlightRequest>> in_flight_;
  MessageCounts counts_;
  bool all_sent_ = false;
  int missing_ = 0;  // answers, after Abandon
};

}  // namespace multiverso
