// Vote: one rank's result of a step of a collective call. Each rank sends its vote to the others.
// The first failure in rank order can then become the result on every rank.
#ifndef MULTIVERSO_BASE_VOTE_H_
#define MULTIVERSO_BASE_VOTE_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/text.h"

namespace multiverso {

// Ranks exchange votes as raw bytes, so a long text of an error is cut off.
struct Vote {
  int32_t code = 0;
  char text[300] = {};

  static Vote Of(const Status& status) {
    Vote vote;
    vote.code = static_cast<int32_t>(status.code());
    CopyText(vote.text, status.text());
    return vote;
  }
  // Returns the rank's status, with `context` in front of the text of an error.
  Status ToStatus(const std::string& context) const {
    return code == 0 ? Status::Ok() : Status(static_cast<Code>(code), text).In(context);
  }
};

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_VOTE_H_
