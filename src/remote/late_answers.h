// LateAnswers: the answers to calls of this rank that ended without them, because of a deadline, an
// interrupt or another server's error.
//
// A server sends every answer, however late, and is busy with it until this rank has received it.
// So each is received and dropped, and the call keeps its tag until the last one has come: a later
// call with that tag would take a late answer for its own.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "group/rank_context.h"
#include "transport/messenger.h"

namespace multiverso {

// Thread-safe.
class LateAnswers {
 public:
  // A part of a call that has ended: what one server has not answered.
  struct Part {
    int server = 0;
    int missing = 0;  // answers
  };

  // `rank_context` outlives the object.
  explicit LateAnswers(RankContext* rank_context) : rank_context_(rank_context) {}
  ~LateAnswers();

  // Frees the tag of an ended call, at once if no answer is missing.
  void Finish(int tag, std::vector<Part> parts);
  // Receives what has arrived.
  void Poll();

 private:
  // An answer that is arriving, in memory of its own.
  struct Arrival {
    std::string bytes;
    Messenger::Ticket ticket;
  };
  struct UnansweredCall {
    int tag = 0;
    std::vector<Part> parts;
    std::list<Arrival> arrivals;
  };

  Messenger* messenger() const { return rank_context_->control_channel()->messenger(); }
  // Returns whether all answers have come that still can.
  bool Receive(UnansweredCall* call);
  void Free(int tag) { rank_context_->control_channel()->tags()->GiveBack(tag); }

  RankContext* rank_context_;
  std::mutex mutex_;
  std::list<UnansweredCall> calls_;
  std::atomic<bool> any_{false};  // whether calls_ has calls
};

}  // namespace multiverso
