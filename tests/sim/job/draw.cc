// Draw: chooses a plan from a seed. Most jobs are small, because most faults need few ranks, and
// small jobs are fast; each choice has a part of unusual values.
#include <algorithm>
#include <random>

#include "job/focus.h"
#include "job/options.h"
#include "job/plan.h"
#include "table/table_shard.h"

namespace sim {
namespace {

class Drawer {
 public:
  Drawer(uint64_t seed, const Wishes& wishes)
      : random_(seed * 0x9e3779b97f4a7c15U + 1), wishes_(WithFocus(seed, wishes)) {
    plan_.seed = seed;
  }

  Plan Draw() {
    do {
      DrawSession();
      DrawTables();
    } while (!IsSupported(plan_) && ++refused_ < kMostRefused);
    DrawWorld();
    DrawSteps();
    DrawFaults();
    return std::move(plan_);
  }

 private:
  static constexpr int kMostRefused = 100;

  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(bound, 1)));
  }
  int64_t Between(int64_t first, int64_t last) { return first + Below(last - first + 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <class T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int64_t>(values.size()))];
  }
  // Returns what was wished, or what was drawn. Drawing first keeps all later choices the same.
  int64_t Wish(const char* name, int64_t drawn) const {
    const auto found = wishes_.find(name);
    return found == wishes_.end() ? drawn : std::stoll(found->second);
  }
  std::string WishText(const char* name, const std::string& drawn) const {
    const auto found = wishes_.find(name);
    return found == wishes_.end() ? drawn : found->second;
  }

  void DrawSession() {
    const int64_t ranks = Between(1, 6);
    plan_.ranks = static_cast<int>(Wish("ranks", std::max<int64_t>(ranks, OneIn(4) ? 1 : 2)));
    const int64_t nodes = Wish("nodes", Between(1, std::min(4, plan_.ranks)));
    plan_.per_node =
        static_cast<int>(Wish("per_node", (plan_.ranks + nodes - 1) / std::max<int64_t>(nodes, 1)));
    plan_.mode = WishText("mode", OneOf({"async", "async", "async", "sync", "staleness"}));
    const int64_t staleness = Between(1, 3);
    plan_.staleness = plan_.mode == "staleness" ? Wish("staleness", staleness) : 0;
    plan_.on_loss = WishText("on_loss", OneOf({"fail", "continue"}));
    plan_.timeout_ms = Wish("timeout_ms", OneOf({20000, 20000, 120000}));
    plan_.peer_timeout_ms = Wish("peer_timeout_ms", OneOf({10000, 2000, 2000, 1000}));
    plan_.after_error = WishText("after_error", OneOf({"leave", "leave", "close", "go_on"}));
    plan_.servers.clear();
    const int64_t servers = Wish("servers", OneIn(8) ? 1 : 0);
    if (servers > 0 && servers < plan_.ranks) {
      for (int64_t i = 0; i < servers; ++i)
        plan_.servers.insert(static_cast<int>(Below(plan_.ranks)));
    }
  }

  void DrawTables() {
    plan_.tables.clear();
    const int64_t tables = Wish("tables", OneOf({1, 1, 1, 2}));
    for (int64_t i = 0; i < tables; ++i) {
      TablePlan table;
      table.kind = WishText("kind", OneOf({"matrix", "matrix", "array", "lazy", "hash"}));
      table.dtype = WishText("dtype", OneOf({"float64", "float32", "int64", "int32"}));
      table.updater = WishText("updater", OneOf({"add", "add", "add", "sgd", "adagrad"}));
      table.rows = Wish("rows", OneOf({1, 3, 8, 32, 100}));
      table.columns = Wish("columns", OneOf({1, 4, 4, 9}));
      // A row of several chunks (512 KiB), and a table whose sums take several pieces (1 MiB).
      if (OneIn(25) && table.kind == "matrix" && wishes_.count("columns") == 0) {
        table.rows = 3;
        table.columns = 70000;
      }
      if (table.kind == "array") table.columns = 1;
      if (wishes_.count("columns") == 0) SpreadOverNodes(&table);
      plan_.tables.push_back(table);
    }
  }

  // Makes a small table, which would be on one node, so large that it is on all, in half of the
  // plans. This choice takes no random number, so that the others of a seed stay what they were.
  void SpreadOverNodes(TablePlan* table) const {
    constexpr int64_t kElements = multiverso::TableShard::kSmallBytes / 4 + 1;
    if (plan_.seed % 2 == 0) return;
    if (table->kind == "matrix") {
      table->columns = std::max(table->columns, kElements / table->rows + 1);
    } else if (table->kind == "array") {
      table->rows = std::max(table->rows, kElements);
    }
  }

  void DrawWorld() {
    plan_.mean_run = static_cast<int>(Wish("mean_run", OneOf({1, 3, 10, 30, 100, 1000})));
    plan_.writes = Wish("writes", OneIn(3) ? 1 : 0) != 0;
    // This choice takes no random number, so that the others of a seed stay what they were.
    plan_.reorders = Wish("reorders", plan_.seed % 3 == 0 ? 1 : 0) != 0;
    plan_.signals = Wish("signals", 1) != 0;
    plan_.latency_us = Wish("latency_us", OneOf({20, 300, 3000, 30000}));
    plan_.point_ns = Wish("point_ns", OneOf({40, 200, 200, 1000}));
  }

  Step Make(int rank, const char* call, std::map<std::string, int64_t> numbers = {}) {
    Step step;
    step.rank = rank;
    step.call = call;
    step.numbers = std::move(numbers);
    return step;
  }
  std::vector<int64_t> DrawIds(int64_t table) {
    const int64_t rows = plan_.tables[static_cast<size_t>(table)].rows;
    std::set<int64_t> ids;
    for (int64_t i = Between(1, 5); i > 0; --i) ids.insert(Below(rows));
    return {ids.begin(), ids.end()};
  }
  int64_t DrawTable() { return Below(static_cast<int64_t>(plan_.tables.size())); }
  bool IsLarge(int64_t table) const {
    return plan_.tables[static_cast<size_t>(table)].count() > 5000;
  }

  Step DrawCollective() {
    const std::string wished = WishText("collective", "");
    if (wished == "aggregate") return DrawAggregate(Between(1, 8));
    if (wished == "get_together") return Make(Step::kAll, wished.c_str(), {{"table", DrawTable()}});
    switch (Below(12)) {
      case 0:
      case 1:
      case 2:
        return Make(Step::kAll, "barrier");
      case 3:
      case 4:
        return Make(Step::kAll, "get_together", {{"table", DrawTable()}});
      case 5:
        return DrawAggregate(OneOf({3000, 40000, 100000}));
      case 6:
        if (plan_.nodes() == 1 && plan_.on_loss == "fail") {
          return Make(Step::kAll, "broadcast",
                      {{"count", OneOf({3, 1000, 100000})}, {"root", Below(6)}});
        }
        return Make(Step::kAll, "barrier");
      case 7:
        return DrawCreation();
      default:
        return DrawAggregate(Between(1, 8));
    }
  }

  Step DrawAggregate(int64_t count) {
    Step step = Make(Step::kAll, "aggregate", {{"count", count}});
    // Some jobs average, which takes no random number, and have arrays of several pieces.
    if (Wish("means", plan_.seed % 7 == 5 ? 1 : 0) != 0) {
      step.numbers["mean"] = 1;
      if (count == 100000) step.numbers["count"] = 300000;
    }
    return step;
  }

  Step DrawCreation() {
    Step step = Make(Step::kAll, "create", {{"rows", Between(1, 20)}});
    // One rank may have no memory, a choice which takes no random number, either.
    if (Wish("refused", plan_.seed % 5 == 1 ? 1 : 0) != 0) {
      step.numbers["refused_on"] = static_cast<int64_t>(plan_.seed / 5) % plan_.ranks;
      step.numbers["mapping"] = 1 + step.Get("rows") % 4;
    }
    return step;
  }

  // How many calls there are for one with a short limit. A wish for 0 removes the limits again.
  int64_t CallsPerLimit() const {
    const int64_t calls = Wish("limits", 0);
    return calls > 1 ? calls : 40;
  }

  // A call on a table of one rank or, where all workers make the same calls, of all.
  Step DrawCall(int rank) {
    const int64_t table = DrawTable();
    Step step = Make(rank, "get", {{"table", table}});
    const bool is_in_step = plan_.mode != "async";
    const int64_t choice = Below(8);
    if (choice < 3 || (choice < 5 && is_in_step)) {
      step.call = "add";
    } else if (choice == 3) {
      step.call = "add_get";
    }
    // This choice takes no random number.
    if (choice < 7 && Wish("add_gets", 0) != 0) step.call = "add_get";
    if (step.call != "get") step.numbers["value"] = Between(1, 997);
    if (step.call != "get" && is_in_step) step.rank = Step::kAll;
    if (plan_.mode == "sync") step.rank = Step::kAll;
    const std::string& kind = plan_.tables[static_cast<size_t>(table)].kind;
    if (step.call != "add_get" && kind != "array" && (OneIn(2) || kind == "hash")) {
      step.ids = DrawIds(table);
      if (step.rank == Step::kAll && step.call == "add" && OneIn(2))
        step.numbers["spread"] = Between(1, 3);
    }
    if (kind == "hash" && step.call == "add_get") step.call = "add", step.ids = DrawIds(table);
    if (plan_.mode == "async" && OneIn(CallsPerLimit()))
      step.numbers["limit_ms"] = OneOf({1, 20, 300});
    return step;
  }

  void DrawSteps() {
    const int64_t calls = Wish("calls", OneOf({10, 30, 60, 120}));
    const bool has_limits = Wish("limits", 1) != 0;
    for (int64_t i = 0; i < calls; ++i) {
      if (OneIn(Wish("steps_per_collective", 9))) {
        plan_.steps.push_back(DrawCollective());
        continue;
      }
      const int rank = static_cast<int>(Below(plan_.ranks));
      if (OneIn(Wish("sleeps", 25))) {
        const int64_t us = Wish("sleep_us", OneOf({10, 1000, 50000, 3000000}));
        plan_.steps.push_back(Make(rank, "sleep", {{"us", us}}));
        continue;
      }
      Step step = DrawCall(rank);
      if (!has_limits) step.numbers.erase("limit_ms");
      if (IsLarge(step.Get("table")) && !OneIn(4) && Wish("large", 0) == 0) continue;
      plan_.steps.push_back(std::move(step));
    }
    if (Wish("disagree", OneIn(30) ? 1 : 0) != 0 && plan_.ranks > 1) DrawDisagreement();
  }

  // One rank makes another collective call than the rest, or leaves, or adds to a round alone.
  void DrawDisagreement() {
    const int rank = static_cast<int>(Below(plan_.ranks));
    Step step = DrawCollective();
    step.rank = rank;
    // This choice takes no random number, either.
    if (plan_.mode == "sync" && plan_.seed % 3 == 0) step = Make(rank, "add", {{"value", 7}});
    // In sync mode, it reads the last round and meets nobody.
    if (plan_.mode == "sync" && step.call == "get_together") step = Make(rank, "barrier");
    if (OneIn(4)) step = Make(rank, "leave");
    plan_.steps.insert(plan_.steps.begin() + Below(static_cast<int64_t>(plan_.steps.size() + 1)),
                       step);
  }

  void DrawFaults() {
    const int64_t kind = Below(20);
    int64_t kills = Wish("kills", kind < 8 ? OneOf({1, 1, 2}) : 0);
    const int64_t suspends = Wish("suspends", kind >= 8 && kind < 14 ? OneOf({1, 1, 2}) : 0);
    if (plan_.Continues()) kills = std::min<int64_t>(kills, plan_.ranks - 1);
    const bool is_long = Wish("long", kind < 12 ? 1 : 0) != 0;
    std::vector<int> ranks;
    for (int rank = 0; rank < plan_.ranks; ++rank) ranks.push_back(rank);
    for (size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[random_() % i]);
    for (const int rank : ranks) {
      Step fault = Make(rank, "kill");
      const int64_t bits = Between(1, OneIn(3) ? 17 : 12);
      fault.numbers["points"] = Below(int64_t{1} << bits);
      const int64_t ms = is_long ? plan_.peer_timeout_ms + Between(500, 3 * plan_.peer_timeout_ms)
                                 : Between(1, plan_.peer_timeout_ms / 3);
      if (kills > 0) {
        --kills;
      } else if (static_cast<int64_t>(plan_.RanksWith("suspend").size()) < suspends &&
                 plan_.RanksWith("suspend").size() + 1 < static_cast<size_t>(plan_.ranks)) {
        fault.call = "suspend";
        fault.numbers["ms"] = Wish("suspend_ms", ms);
      } else {
        continue;
      }
      // This choice takes no random number, either.
      if (Wish("opening", plan_.seed % 13 == 0 ? 1 : 0) != 0) fault.numbers["opening"] = 1;
      const auto places = static_cast<int64_t>(plan_.steps.size() + 1);
      const int64_t place = Wish("late", OneIn(6) ? 1 : 0) != 0 ? places - 1 : Below(places);
      plan_.steps.insert(plan_.steps.begin() + place, fault);
    }
  }

  std::mt19937_64 random_;
  const Wishes wishes_;
  Plan plan_;
  int refused_ = 0;
};

}  // namespace

Plan Draw(uint64_t seed, const Wishes& wishes) { return Drawer(seed, wishes).Draw(); }

const std::vector<std::string>& NamesOfWishes() {
  static const std::vector<std::string> names = {
      "ranks",       "nodes",           "per_node",
      "mode",        "staleness",       "on_loss",
      "timeout_ms",  "calls",           "tables",
      "kind",        "dtype",           "updater",
      "rows",        "columns",         "mean_run",
      "writes",      "reorders",        "latency_us",
      "kills",       "suspends",        "long",
      "suspend_ms",  "point_ns",        "late",
      "after_error", "servers",         "disagree",
      "limits",      "peer_timeout_ms", "opening",
      "refused",     "large",           "focus",
      "signals",     "collective",      "steps_per_collective",
      "sleeps",      "sleep_us",        "means",
      "add_gets"};
  return names;
}

}  // namespace sim
