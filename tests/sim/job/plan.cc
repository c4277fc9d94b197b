#include "job/plan.h"

#include <algorithm>
#include <sstream>

namespace sim {
namespace {

constexpr const char* kCollectives[] = {
    "barrier", "aggregate", "create",  "get_together",       "broadcast",
    "save",    "load",      "publish", "save_in_background", "save_wait"};

// Splits "name=value"; a word without = has an empty value.
std::pair<std::string, std::string> Split(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return {word, ""};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

bool ToNumber(const std::string& text, int64_t* number) {
  size_t used = 0;
  try {
    *number = std::stoll(text, &used);
  } catch (const std::exception&) {
    return false;
  }
  return used == text.size();
}

bool ToNumbers(const std::string& text, std::vector<int64_t>* numbers) {
  std::istringstream words(text);
  std::string word;
  while (std::getline(words, word, ',')) {
    int64_t number = 0;
    if (!ToNumber(word, &number)) return false;
    numbers->push_back(number);
  }
  return true;
}

template <class Numbers>
std::string Joined(const Numbers& numbers) {
  std::string text;
  for (const auto number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

// Sets the field of that name. Each returns false if there is no such field or no such value.
bool SetJob(Plan* plan, const std::string& name, const std::string& value) {
  if (name == "mode")
    return plan->mode = value, value == "async" || value == "sync" || value == "staleness";
  if (name == "on_loss") return plan->on_loss = value, value == "fail" || value == "continue";
  if (name == "after_error") {
    return plan->after_error = value, value == "leave" || value == "close" || value == "go_on";
  }
  if (name == "servers") {
    std::vector<int64_t> ranks;
    if (!ToNumbers(value, &ranks)) return false;
    for (const int64_t rank : ranks) plan->servers.insert(static_cast<int>(rank));
    return true;
  }
  int64_t number = 0;
  if (!ToNumber(value, &number)) return false;
  if (name == "ranks") return plan->ranks = static_cast<int>(number), number >= 1;
  if (name == "per_node") return plan->per_node = static_cast<int>(number), number >= 1;
  if (name == "staleness") return plan->staleness = number, number >= 0;
  if (name == "elastic") return plan->is_elastic = number != 0, true;
  if (name == "timeout_ms") return plan->timeout_ms = number, number > 0;
  if (name == "peer_timeout_ms") return plan->peer_timeout_ms = number, number > 0;
  return false;
}

bool SetWorld(Plan* plan, const std::string& name, const std::string& value) {
  int64_t number = 0;
  if (!ToNumber(value, &number)) return false;
  if (name == "seed") return plan->seed = static_cast<uint64_t>(number), true;
  if (name == "mean_run") return plan->mean_run = static_cast<int>(number), number >= 1;
  if (name == "writes") return plan->writes = number != 0, true;
  if (name == "reorders") return plan->reorders = number != 0, true;
  if (name == "signals") return plan->signals = number != 0, true;
  if (name == "point_ns") return plan->point_ns = number, number >= 1;
  if (name == "latency_us") return plan->latency_us = number, number >= 6;
  return false;
}

bool SetTable(TablePlan* table, const std::string& name, const std::string& value) {
  if (name == "kind") return table->kind = value, true;
  if (name == "dtype") return table->dtype = value, true;
  if (name == "updater") return table->updater = value, true;
  int64_t number = 0;
  if (!ToNumber(value, &number)) return false;
  if (name == "rows") return table->rows = number, number >= 1;
  if (name == "columns") return table->columns = number, number >= 1;
  return false;
}

bool SetStep(Step* step, const std::string& name, const std::string& value) {
  if (name == "ids") return ToNumbers(value, &step->ids);
  return ToNumber(value, &step->numbers[name]);
}

// Reads the rest of a line as name=value pairs.
template <class Set>
bool ReadPairs(std::istringstream* words, const Set& set, std::string* error) {
  std::string word;
  while (*words >> word) {
    const auto [name, value] = Split(word);
    if (set(name, value)) continue;
    *error = "cannot read '" + word + "'";
    return false;
  }
  return true;
}

bool ReadLine(const std::string& line, Plan* plan, std::string* error) {
  std::istringstream words(line);
  std::string first;
  if (!(words >> first) || first[0] == '#') return true;
  if (first == "known_violation") {
    std::getline(words >> std::ws, plan->known_violation);
    return true;
  }
  if (first == "job" || first == "world") {
    const auto set = first == "job" ? SetJob : SetWorld;
    return ReadPairs(
        &words, [&](const auto& name, const auto& value) { return set(plan, name, value); }, error);
  }
  if (first == "table") {
    plan->tables.emplace_back();
    return ReadPairs(
        &words,
        [&](const auto& name, const auto& value) {
          return SetTable(&plan->tables.back(), name, value);
        },
        error);
  }
  Step step;
  if (first == "rank") {
    if (!(words >> step.rank) || step.rank < 0 || step.rank >= plan->ranks) {
      *error = "expected the number of a rank after 'rank'";
      return false;
    }
  } else if (first != "all") {
    *error = "expected job, world, table, all, rank or known_violation, received '" + first + "'";
    return false;
  }
  if (!(words >> step.call)) {
    *error = "expected a call";
    return false;
  }
  if (!ReadPairs(
          &words, [&](const auto& name, const auto& value) { return SetStep(&step, name, value); },
          error)) {
    return false;
  }
  plan->steps.push_back(std::move(step));
  return true;
}

}  // namespace

int64_t Step::Get(const std::string& name, int64_t otherwise) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? otherwise : found->second;
}

std::string Step::Text() const {
  std::string text = (rank == kAll ? "all" : "rank " + std::to_string(rank)) + " " + call;
  for (const auto& [name, number] : numbers) text += " " + name + "=" + std::to_string(number);
  if (!ids.empty()) text += " ids=" + Joined(ids);
  return text;
}

std::string TablePlan::Text() const {
  return "table kind=" + kind + " dtype=" + dtype + " updater=" + updater +
         " rows=" + std::to_string(rows) + " columns=" + std::to_string(columns);
}

std::vector<int> Plan::ServiceRanks(int node) const {
  std::vector<int> found;
  const int first = node * per_node;
  for (int rank = first; rank < first + per_node && rank < ranks; ++rank) {
    if (servers.empty() || servers.count(rank) != 0) found.push_back(rank);
  }
  if (found.empty()) found.push_back(first);
  return found;
}

std::set<int> Plan::RanksWith(const std::string& call) const {
  std::set<int> found;
  for (const Step& step : steps) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (step.call == call && step.IsFor(rank)) found.insert(rank);
    }
  }
  return found;
}

std::set<int> Plan::SuspendedLong() const {
  std::set<int> found;
  for (const Step& step : steps) {
    // Several short suspensions that follow each other may be a long one for the others.
    if (step.call == "suspend" && step.Get("ms") > peer_timeout_ms / 3) found.insert(step.rank);
  }
  return found;
}

bool Plan::HasFaults() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.IsFault(); });
}

bool IsCollective(const std::string& call) {
  return std::find(std::begin(kCollectives), std::end(kCollectives), call) !=
         std::end(kCollectives);
}

bool Plan::Disagrees() const {
  return std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
    // In sync mode, workers make their calls on tables together, too.
    const bool is_of_round = mode == "sync" && (step.call == "add" || step.call == "add_get");
    return step.rank != Step::kAll && ranks > 1 &&
           (IsCollective(step.call) || step.call == "leave" || is_of_round);
  });
}

std::string Plan::Text() const {
  std::ostringstream text;
  text << "job ranks=" << ranks << " per_node=" << per_node << " mode=" << mode;
  if (staleness != 0) text << " staleness=" << staleness;
  text << " on_loss=" << on_loss;
  if (is_elastic) text << " elastic=1";
  text << " timeout_ms=" << timeout_ms << " peer_timeout_ms=" << peer_timeout_ms;
  if (!servers.empty()) text << " servers=" << Joined(servers);
  text << " after_error=" << after_error << "\n";
  text << "world seed=" << seed << " mean_run=" << mean_run << " writes=" << (writes ? 1 : 0)
       << (reorders ? " reorders=1" : "") << (signals ? "" : " signals=0")
       << " point_ns=" << point_ns << " latency_us=" << latency_us << "\n";
  for (const TablePlan& table : tables) text << table.Text() << "\n";
  for (const Step& step : steps) text << step.Text() << "\n";
  if (!known_violation.empty()) text << "known_violation " << known_violation << "\n";
  return text.str();
}

bool Parse(const std::string& text, Plan* plan, std::string* error) {
  *plan = Plan();
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (ReadLine(line, plan, error)) continue;
    *error = "line " + std::to_string(number) + ": " + *error;
    return false;
  }
  if (plan->tables.empty()) plan->tables.emplace_back();
  return true;
}

}  // namespace sim
