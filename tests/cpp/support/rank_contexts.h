// The ranks of one node as objects of one process. Each maps the control segment itself, as a
// process would.
#ifndef MULTIVERSO_TESTS_SUPPORT_RANK_CONTEXTS_H_
#define MULTIVERSO_TESTS_SUPPORT_RANK_CONTEXTS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "group/rank_context.h"
#include "memory/segment.h"
#include "node/membership.h"

namespace multiverso::testing {

using Roles = std::vector<Role>;

inline Roles AllOf(int ranks) { return Roles(static_cast<size_t>(ranks), Role::kAll); }

// The membership of rank `rank` in a job of these roles on one node. `like` has their other
// options.
inline Membership MembersOf(const Roles& roles, int rank, const Hello& like = Hello()) {
  std::vector<std::string> hellos;
  for (const Role role : roles) {
    Hello hello = like;
    hello.role = static_cast<int32_t>(role);
    CopyText(hello.memory, "here");
    hellos.emplace_back(reinterpret_cast<const char*>(&hello), sizeof(hello));
  }
  Result<Membership> members = Membership::FromHellos(hellos, rank);
  EXPECT_TRUE(members.ok()) << members.status().text();
  return std::move(members.value());
}

// The options of a session that survives losses.
inline Hello Surviving() {
  Hello hello;
  hello.on_loss = static_cast<int32_t>(OnLoss::kContinue);
  return hello;
}

class RankContexts {
 public:
  // All ranks of these roles join, except the last `outside`, which may join later.
  explicit RankContexts(const Roles& roles, int outside = 0, const Hello& like = Hello())
      : roles_(roles), like_(like) {
    const int size = static_cast<int>(roles.size());
    control_ = std::move(
        Segment::CreateShared(NodeMemory::ControlBytes(size) + NodeMemory::ScratchBytes(size))
            .value());
    for (int rank = 0; rank < size - outside; ++rank) ranks_.push_back(Join(rank));
  }

  // Joins, in this process or a child.
  std::unique_ptr<RankContext> Join(int rank) const {
    Result<Segment> mine = Segment::OpenShared(control_.locator());
    EXPECT_TRUE(mine.ok()) << mine.status().text();
    auto joined = RankContext::Join(std::move(mine.value()), MembersOf(roles_, rank, like_));
    EXPECT_TRUE(joined.ok()) << joined.status().text();
    return std::move(joined.value());
  }

  RankContext* operator[](int rank) const { return ranks_[static_cast<size_t>(rank)].get(); }
  int size() const { return static_cast<int>(ranks_.size()); }
  // Destroys the rank's object, as at the end of its session.
  void Drop(int rank) { ranks_[static_cast<size_t>(rank)].reset(); }

 private:
  Roles roles_;
  Hello like_;
  Segment control_;
  std::vector<std::unique_ptr<RankContext>> ranks_;
};

}  // namespace multiverso::testing

#endif  // MULTIVERSO_TESTS_SUPPORT_RANK_CONTEXTS_H_
