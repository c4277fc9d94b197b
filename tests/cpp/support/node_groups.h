// The ranks of one node, as objects of one process: each with a mapping of the control segment of
// its own, as processes have it.
#ifndef MULTIVERSO_TESTS_SUPPORT_NODE_GROUPS_H_
#define MULTIVERSO_TESTS_SUPPORT_NODE_GROUPS_H_

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

// What rank `rank` knows of a job of these roles on one node.
// `like` is what they say of themselves otherwise.
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

// Of a session that goes on without lost ranks.
inline Hello Surviving() {
  Hello hello;
  hello.on_loss = static_cast<int32_t>(OnLoss::kContinue);
  return hello;
}

class NodeGroups {
 public:
  // All ranks of these roles have joined, but for the last `outside`, whose processes may.
  explicit NodeGroups(const Roles& roles, int outside = 0, const Hello& like = Hello())
      : roles_(roles), like_(like) {
    const int ranks = static_cast<int>(roles.size());
    control_ = std::move(
        Segment::CreateShared(NodeMemory::ControlBytes(ranks) + NodeMemory::ScratchBytes(ranks))
            .value());
    for (int rank = 0; rank < ranks - outside; ++rank) groups_.push_back(Join(rank));
  }

  // Joins, in this process or a child.
  std::unique_ptr<RankContext> Join(int rank) const {
    Result<Segment> mine = Segment::OpenShared(control_.locator());
    EXPECT_TRUE(mine.ok()) << mine.status().text();
    auto group = RankContext::Join(std::move(mine.value()), MembersOf(roles_, rank, like_));
    EXPECT_TRUE(group.ok()) << group.status().text();
    return std::move(group.value());
  }

  RankContext* operator[](int rank) const { return groups_[static_cast<size_t>(rank)].get(); }
  int size() const { return static_cast<int>(groups_.size()); }
  // The rank's object goes, as at the end of its session.
  void Drop(int rank) { groups_[static_cast<size_t>(rank)].reset(); }

 private:
  Roles roles_;
  Hello like_;
  Segment control_;
  std::vector<std::unique_ptr<RankContext>> groups_;
};

}  // namespace multiverso::testing

#endif  // MULTIVERSO_TESTS_SUPPORT_NODE_GROUPS_H_
