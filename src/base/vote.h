// Vote: how one rank fared in a step of a collective call. Each rank sends its vote to the others,
// so that the first failure, in rank order, becomes the result on every rank.
#ifndef MULTIVERSO_BASE_VOTE_H_
#define MULTIVERSO_BASE_VOTE_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace multiverso {

// Travels as bytes, which every rank of a job reads alike.
struct Vote {
  int32_t code = 0;
  int32_t error_number = 0;
  int64_t position = 0;
  char path[160] = {};
  char text[296] = {};

  // Paths in `folder`, which all ranks know, are sent without it: long ones would not fit.
  static Vote Of(const Status& status, const std::string& folder = "");
  // What the rank reported, with `context` in front of its text.
  Status ToStatus(const std::string& context, const std::string& folder = "") const;
};

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_VOTE_H_
