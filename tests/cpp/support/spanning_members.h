// A rank's view of a job on several nodes, without the other ranks.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"
#include "node/membership.h"
#include "support/status.h"

namespace multiverso::testing {

// Returns the membership of `rank` in a job on nodes of `sizes` ranks. All ranks are workers and
// servers. `like` holds the other properties of the ranks.
inline Membership SpanningMembers(const std::vector<int>& sizes, int rank,
                                  const Hello& like = Hello()) {
  std::vector<std::string> hellos;
  for (size_t node = 0; node < sizes.size(); ++node) {
    Hello hello = like;
    CopyText(hello.host, StrCat("host", node));
    CopyText(hello.memory_domain, StrCat("memory", node));
    for (int i = 0; i < sizes[node]; ++i) {
      hellos.emplace_back(reinterpret_cast<const char*>(&hello), sizeof(hello));
    }
  }
  return ValueOf(Membership::FromHellos(hellos, rank));
}

}  // namespace multiverso::testing
