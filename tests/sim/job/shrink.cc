#include "job/shrink.h"

#include <algorithm>
#include <cctype>

#include "job/options.h"

namespace sim {
namespace {

// Returns the plan without a rank; the later ranks move down.
Plan WithoutRank(const Plan& plan, int rank) {
  Plan smaller = plan;
  --smaller.ranks;
  smaller.servers.clear();
  for (const int server : plan.servers) {
    if (server != rank) smaller.servers.insert(server - (server > rank ? 1 : 0));
  }
  smaller.steps.clear();
  for (Step step : plan.steps) {
    if (step.rank == rank) continue;
    if (step.rank > rank) --step.rank;
    smaller.steps.push_back(std::move(step));
  }
  return smaller;
}

Plan WithoutTable(const Plan& plan, size_t table) {
  Plan smaller = plan;
  smaller.tables.erase(smaller.tables.begin() + static_cast<std::ptrdiff_t>(table));
  return smaller;
}

class Shrinker {
 public:
  Shrinker(const Plan& plan, const std::string& violation, int attempts, const RunPlan& run)
      : best_(plan), kind_(KindOfViolation(violation)), attempts_(attempts), run_(run) {}

  Plan Shrink() {
    bool has_changed = true;
    while (has_changed && attempts_ > 0) {
      has_changed = false;
      for (int rank = best_.ranks - 1; rank >= 0 && best_.ranks > 1; --rank) {
        has_changed |= Try(WithoutRank(best_, rank));
      }
      has_changed |= RemoveSteps();
      for (size_t table = best_.tables.size(); table-- > 0 && best_.tables.size() > 1;) {
        has_changed |= Try(WithoutTable(best_, table));
      }
      has_changed |= Simplify();
    }
    return best_;
  }

 private:
  // Keeps the plan if it has a violation of the same kind.
  bool Try(const Plan& plan) {
    if (attempts_ <= 0 || plan.Text() == best_.Text() || !IsSupported(plan)) return false;
    --attempts_;
    if (KindOfViolation(run_(plan)) != kind_) return false;
    best_ = plan;
    return true;
  }

  // Removes ever smaller parts of the list of steps.
  bool RemoveSteps() {
    bool has_changed = false;
    for (size_t part = std::max<size_t>(best_.steps.size() / 2, 1); part > 0; part /= 2) {
      for (size_t first = 0; first < best_.steps.size();) {
        Plan smaller = best_;
        const auto from = smaller.steps.begin() + static_cast<std::ptrdiff_t>(first);
        const size_t count = std::min(part, best_.steps.size() - first);
        smaller.steps.erase(from, from + static_cast<std::ptrdiff_t>(count));
        if (Try(smaller)) {
          has_changed = true;
        } else {
          first += part;
        }
        if (attempts_ <= 0) return has_changed;
      }
    }
    return has_changed;
  }

  bool Simplify() {
    bool has_changed = false;
    const auto change = [&](const auto& how) {
      Plan simpler = best_;
      how(&simpler);
      has_changed |= Try(simpler);
    };
    change([](Plan* plan) { plan->servers.clear(); });
    change([](Plan* plan) { plan->writes = false; });
    change([](Plan* plan) { plan->reorders = false; });
    change([](Plan* plan) { plan->after_error = "leave"; });
    change([](Plan* plan) { plan->on_loss = "fail"; });
    for (size_t i = 0; i < best_.tables.size(); ++i) {
      change([&](Plan* plan) { plan->tables[i].kind = "matrix"; });
      change([&](Plan* plan) { plan->tables[i].dtype = "float64"; });
      change([&](Plan* plan) { plan->tables[i].updater = "add"; });
      change([&](Plan* plan) { plan->tables[i].rows = 2; });
      change([&](Plan* plan) { plan->tables[i].columns = 1; });
    }
    for (size_t i = 0; i < best_.steps.size(); ++i) {
      if (best_.steps[i].ids.size() > 1) {
        change([&](Plan* plan) { plan->steps[i].ids.resize(1); });
      }
      for (const char* const name : {"points", "us", "count", "value"}) {
        if (best_.steps[i].Get(name) <= 1) continue;
        change([&](Plan* plan) { plan->steps[i].numbers[name] = 1; });
        change([&](Plan* plan) { plan->steps[i].numbers[name] /= 2; });
      }
    }
    return has_changed;
  }

  Plan best_;
  const std::string kind_;
  int attempts_;
  const RunPlan& run_;
};

}  // namespace

std::string KindOfViolation(const std::string& violation) {
  // The promise that is broken is before the first colon. A crash has the name of its signal after.
  const bool is_crash = violation.rfind("no crash", 0) == 0;
  const std::string text = is_crash ? violation.substr(0, violation.find(" in rank"))
                                    : violation.substr(0, violation.find(':'));
  std::string kind;
  for (const char letter : text) {
    if (std::isdigit(static_cast<unsigned char>(letter)) == 0) kind += letter;
  }
  return kind;
}

Plan Shrink(const Plan& plan, const std::string& violation, int attempts, const RunPlan& run) {
  return Shrinker(plan, violation, attempts, run).Shrink();
}

}  // namespace sim
