// StagedSum: sums the deltas that workers have staged, and applies the sums to the parameters.
//
// Rounds (rounds.h) stages the deltas and knows whose turn it is. Where the workers are decides who
// sums: LocalSum on one node, SpanningSum over several.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "shard/shard.h"

namespace multiverso {

class RoundService;

// The calls of one rank on one table, made by one thread at a time. "The first n rounds" are rounds
// 0 to n - 1.
class StagedSum {
 public:
  virtual ~StagedSum() = default;

  // ---- Adding
  // Makes the rows exist that the request adds to or gets.
  virtual Status Touch(const Request& /*request*/, const WaitLimit& /*limit*/) {
    return Status::Ok();
  }
  // Copies a delta of the whole table to this worker's staging memory, or, if `to` is null, uses it
  // where it is. In an add_get, may leave out a block that only this worker sums, in
  // ReadAfterAdd. Returns whether it did. Of an exchange, computes the delta there.
  virtual bool StageWhole(const Request& request, char* to) = 0;
  // Called after this worker has counted the add that it staged.
  virtual void NoteAdd() {}
  // Waits until the deltas of the first `rounds` rounds have been summed, so that their memory can
  // be used again. On one node their sums have then been applied, too.
  virtual Status AwaitSummed(uint64_t rounds, const char* call, const WaitLimit& limit) = 0;
  // Returns whether AwaitSummed would not wait.
  virtual bool HasSummed(uint64_t rounds) const = 0;

  // ---- Getting
  // Passes gets of values that this node does not have to `runner`. A waiting call does the work of
  // `service` (Consistency::PassTo).
  virtual void PassTo(RequestRunner* /*runner*/, RoundService* /*service*/) {}
  // Waits until the first `rounds` rounds have been applied, and copies the parameters. They do not
  // change meanwhile if a later round needs an add of this worker.
  virtual Status Read(const Request& request, uint64_t rounds, const char* call,
                      const WaitLimit& limit) = 0;
  // Waits until the first `rounds` rounds have been applied, the last of which has the delta that
  // this worker has staged in an add_get or exchange, and copies the parameters.
  virtual Status ReadAfterAdd(const Request& request, uint64_t rounds, const WaitLimit& limit) = 0;
  // Returns the parameters if workers may read them in place, or null.
  virtual const void* values() const { return nullptr; }
  // Returns whether workers may stage a delta in place, in the buffer that Staging has for it.
  virtual bool SumsInPlace() const { return false; }
  // Sets *rounds to the number of rounds that are complete as far as this node knows, and waits
  // until they have been applied. They include those that were complete at that sync point.
  virtual Status AwaitComplete(uint64_t sync_point, const char* call, const WaitLimit& limit,
                               uint64_t* rounds) = 0;
  // Returns whether a change by a round after the first `rounds` rounds has begun.
  virtual bool HasBegun(uint64_t rounds) const = 0;

  // ---- For servers, which answer gets of other nodes
  virtual bool HasApplied(uint64_t /*rounds*/) const { return true; }
  virtual uint64_t rounds_applied() const { return 0; }
  // Called after a checkpoint has been loaded, which changed the parameters.
  virtual void Restart() {}
};

}  // namespace multiverso
