// The ranks of one node as objects of one process. Each rank maps the control segment itself, as
// the process of a rank would.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "group/rank_context.h"
#include "memory/segment.h"
#include "node/membership.h"
#include "support/status.h"

namespace multiverso::testing {

using Roles = std::vector<Role>;

inline Roles AllOf(int ranks) { return Roles(static_cast<size_t>(ranks), Role::kAll); }

// Returns the membership of a rank in a job on one node, whose ranks have these roles. `like` holds
// the other properties of all ranks.
inline Membership MembersOf(const Roles& roles, int rank, const Hello& like = Hello()) {
  std::vector<std::string> hellos;
  for (const Role role : roles) {
    Hello hello = like;
    hello.role = static_cast<int32_t>(role);
    CopyText(hello.memory_domain, "here");
    hellos.emplace_back(reinterpret_cast<const char*>(&hello), sizeof(hello));
  }
  return ValueOf(Membership::FromHellos(hellos, rank));
}

// Returns the properties of ranks whose session continues without lost ranks.
inline Hello Surviving() {
  Hello hello;
  hello.options.on_loss = OnLoss::kContinue;
  return hello;
}

class RankContexts {
 public:
  // All ranks join except the last `absent`, which may join later.
  explicit RankContexts(const Roles& roles, int absent = 0, const Hello& like = Hello())
      : roles_(roles), like_(like) {
    const int size = static_cast<int>(roles.size());
    control_ = ValueOf(Segment::CreateShared(NodeMemory::ControlBytes(size, size) +
                                             NodeMemory::ScratchBytes(size, 1)));
    for (int rank = 0; rank < size - absent; ++rank) ranks_.push_back(Join(rank));
  }

  // Joins as `rank`; a forked child may also call this function.
  std::unique_ptr<RankContext> Join(int rank) const {
    return ValueOf(RankContext::Join(ValueOf(Segment::OpenShared(control_.locator())),
                                     MembersOf(roles_, rank, like_)));
  }

  RankContext* operator[](int rank) const { return ranks_[static_cast<size_t>(rank)].get(); }
  int size() const { return static_cast<int>(ranks_.size()); }
  // Destroys the rank's context, as the end of the rank's session would.
  void Drop(int rank) { ranks_[static_cast<size_t>(rank)].reset(); }

 private:
  Roles roles_;
  Hello like_;
  Segment control_;
  std::vector<std::unique_ptr<RankContext>> ranks_;
};

}  // namespace multiverso::testing
