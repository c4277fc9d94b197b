// Vote: one rank's result of a step of a collective call. Each rank sends its vote to the others.
// The first failure in rank order can then become the result on every rank.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/text.h"

namespace multiverso {

// Ranks exchange votes as raw bytes, so long texts and paths are cut off.
struct Vote {
  int32_t code = 0;
  int32_t about = -1;  // the rank that the error is about; -1 if it is about none
  int32_t error_number = 0;
  int32_t unused = 0;
  int64_t position = 0;
  char text[300] = {};
  char path[164] = {};  // of the file that the error is about; empty if it is about none

  static Vote Of(const Status& status) {
    Vote vote;
    vote.code = static_cast<int32_t>(status.code());
    CopyText(vote.text, status.text());
    if (status.peer() != nullptr) vote.about = status.peer()->rank;
    if (const FileFault* fault = status.file()) {
      vote.error_number = fault->error_number;
      vote.position = fault->position;
      CopyText(vote.path, fault->path);
    }
    return vote;
  }
  // Returns the rank's status, with `context` in front of the text of an error.
  Status ToStatus(const std::string& context) const {
    if (code == 0) return Status::Ok();
    const Status failure(static_cast<Code>(code), StrCat(context, ": ", text),
                         FileFault{path, error_number, position});
    return about < 0 ? failure : failure.About(PeerFault{about, -1, "", "", "", ""});
  }
};

}  // namespace multiverso
