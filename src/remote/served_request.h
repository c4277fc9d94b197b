// ServedRequest: a request of another node, from the arrival of its header until its answer has
// left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"
#include "memory/buffer_pool.h"
#include "shard/shard.h"
#include "table/request_message.h"
#include "table/table_shard.h"
#include "transport/messenger.h"

namespace multiverso {

class ServedRequest {
 public:
  enum class Phase { kReceive, kWork, kReply };

  // `number` is larger than that of any request that has arrived before. `table` may be null if the
  // request Fails.
  ServedRequest(uint64_t number, const RequestHeader& header, std::shared_ptr<TableShard> table,
                RankContext* rank_context, BufferPool* buffers);
  ServedRequest(const ServedRequest&) = delete;
  ServedRequest& operator=(const ServedRequest&) = delete;

  uint64_t number() const { return number_; }
  const RequestHeader& header() const { return header_; }
  Phase phase() const { return phase_; }
  const Status& failure() const { return failure_; }
  // Makes the failure the answer, unless there is an earlier one.
  void Fail(const Status& failure) {
    if (failure_.ok()) failure_ = failure;
  }

  // Begins to receive what follows the header. `payload` has header.inline_bytes().
  Status BeginReceive(const char* payload);
  // Sets *done if all has been received.
  void TestReceives(bool* done) { Fail(TestAll(receives_, done)); }
  // Begins phase kWork, after all has been received.
  void BeginWork();
  // Returns whether the request needs more rounds of sync mode than have been applied.
  bool WaitsForRound() const;
  // Runs or continues the request, and sends its answer, with which phase kReply begins. Returns
  // pending if the request has to be continued.
  Status Execute();
  // Sets *done if the answer has left.
  Status TestReply(bool* done) { return TestAll(sends_, done); }
  // Releases, or leaks, the memory of a request that will not be answered.
  void Abandon();

 private:
  // Makes room in the buffer for that many bytes of values after the row ids and, if values are
  // encoded, once more.
  void PlaceValues(int64_t bytes);
  // Returns where the second values are.
  char* SecondValues() const;
  void DecodeValues();
  // Returns the bytes of the values to send, and sets *values to their address.
  int64_t EncodeReply(const char** values) const;
  void CountEncoding(Instant began) const;
  // Fails if the received message is incomplete or names rows of other nodes.
  void CheckValues();
  Status Run();
  Status SendReply();
  // Tests two messages. The failure of one message does not end the wait for the other.
  Status TestAll(Messenger::Ticket* tickets, bool* done);

  const uint64_t number_;
  RequestHeader header_;
  std::shared_ptr<TableShard> table_;
  RankContext* rank_context_;
  Messenger* messenger_;
  BufferPool* buffers_;
  Phase phase_ = Phase::kReceive;
  Status failure_;
  // The row ids, the values as they travel, and room for as many more.
  BufferPool::Buffer buffer_;
  Messenger::Ticket receives_[2];
  int64_t received_ = 0;
  Request request_;  // refers to the buffer
  Progress progress_;
  std::string reply_;
  Messenger::Ticket sends_[2];
};

}  // namespace multiverso
