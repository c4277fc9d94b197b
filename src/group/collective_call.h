// CollectiveCall: one collective call of a rank, and in an elastic session, which ranks take part.
//
// In an elastic session ranks join while others are in a call, or make calls that the others made
// long ago. So calls have numbers. Call n of a rank is call n of every rank, whenever it joined: a
// joiner runs the same program from its beginning. The first rank that begins a call fixes how many
// ranks have joined by then. These take part, except those that end before they begin the call. A
// rank that joined later only waits until the call is over, and it need not wait for a call that
// has been followed by another. It gets the failure of the call, if it has failed, so that programs
// that repeat such a call stay in step. A lock, which joiners also take, decides whether a rank
// joined before a call began. While the others save, load or publish, a joiner waits before it
// changes any table.
//
// A rank that takes part for the first time must know how many allgathers the group has made. The
// participants publish that number when they leave a call, and no call begins before the one before
// it is over for at least one of them.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"

namespace multiverso {

// The scope of the call. The destructor ends the call, which lets other ranks begin the next one.
class CollectiveCall {
 public:
  CollectiveCall(RankContext* context, CollectiveKind kind) : context_(context), kind_(kind) {}
  ~CollectiveCall();
  CollectiveCall(const CollectiveCall&) = delete;
  CollectiveCall& operator=(const CollectiveCall&) = delete;

  // Begins the call; called once. Returns whether this rank takes part, which is always true in a
  // session that is not elastic. Otherwise the call is over for the ranks that take part. Returns
  // its failure, if it was one of the last calls and has failed, or MismatchError, only to this
  // rank, if that call was another one than this rank makes.
  Result<bool> Enter(const WaitLimit& limit);
  // Returns the result of a part of the call in which this rank takes part. Notes a failure for
  // ranks that join later, since all participants have the same one.
  Status Noted(const Status& status) const;
  // Waits, for a rank that joins the session, until the session has been opened, and until a call
  // is over that others began before and during which no rank may change the tables.
  static Status AwaitOthers(RankContext* context, const WaitLimit& limit);
  // Records the end of the opening, for a rank with which the session was opened.
  static void EndOpening(RankContext* context);
  // Skips the calls that others have made, for the last rank of an elastic session: its next call
  // is none of theirs.
  static void SkipEarlier(RankContext* context);
  // Returns the number of the call, which is the same on all ranks of an elastic session.
  uint32_t number() const { return number_; }

 private:
  // Begins the call for all ranks, unless another rank has. Sets *latest to what NodeControl has.
  Status BeginForAll(uint64_t* latest, const WaitLimit& limit);
  Status AwaitEnd(uint32_t number, const WaitLimit& limit) const;
  Status CheckKind(uint32_t latest) const;
  // Returns the failure of the call, in which this rank does not take part.
  Status CheckFailure() const;
  NodeControl::Calls& calls() const { return context_->memory()->control()->calls; }
  std::atomic<uint32_t>& kind_of_call() const {
    return calls().kinds[number_ % NodeControl::Calls::kKinds];
  }

  RankContext* context_;
  CollectiveKind kind_;
  uint32_t number_ = 0;
  bool takes_part_ = false;
};

}  // namespace multiverso
