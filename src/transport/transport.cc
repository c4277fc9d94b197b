#include "transport/transport.h"

#include "base/text.h"

namespace multiverso {

std::string NameRanks(const std::vector<int>& ranks) {
  constexpr size_t kMostNamed = 8;
  if (ranks.empty()) return "no rank";
  if (ranks.size() == 1) return StrCat("rank ", ranks[0]);
  std::string text = StrCat("ranks ", ranks[0]);
  const size_t named = ranks.size() <= kMostNamed ? ranks.size() - 1 : kMostNamed;
  for (size_t i = 1; i < named; ++i) text += StrCat(", ", ranks[i]);
  if (named < ranks.size() - 1) return text + StrCat(" and ", ranks.size() - named, " more");
  return text + StrCat(" and ", ranks.back());
}

}  // namespace multiverso
