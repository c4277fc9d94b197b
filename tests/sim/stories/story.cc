#include "stories/story.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <sstream>

namespace sim {
namespace {

class Drawing {
 public:
  Drawing(uint64_t seed, const Wishes& wishes) : random_(seed ^ 0x5bd1e995), wishes_(wishes) {}

  Story Draw(uint64_t seed) {
    static constexpr int64_t kMeans[] = {3, 10, 30, 100, 300, 1000};
    static constexpr int64_t kLatencies[] = {20, 100, 300, 3000};
    Story story;
    story.world.call = "world";
    story.world.numbers = {{"seed", static_cast<int64_t>(seed)},
                           {"mean_run", kMeans[Below(6)]},
                           {"writes", Below(40) == 0 ? 1 : 0},
                           {"latency_us", kLatencies[Below(4)]}};
    kind_ = Wish("kind", std::max<int64_t>(0, Below(6) - 3));
    if (kind_ != 0) story.world.numbers["kind"] = kind_;
    const int64_t jobs = Wish("jobs", 1 + Below(3));
    for (int64_t job = 0; job < jobs; ++job) DrawJob(job, &story);
    return story;
  }

 private:
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }
  int64_t Wish(const std::string& name, int64_t drawn) const {
    const auto found = wishes_.find(name);
    return found == wishes_.end() ? drawn : std::stoll(found->second);
  }
  static Step Of(const std::string& call, std::map<std::string, int64_t> numbers = {}) {
    Step step;
    step.call = call;
    step.numbers = std::move(numbers);
    return step;
  }

  // Workers of an elastic session, of which some join, leave when told, and are killed.
  void DrawElasticJob(Story* story) {
    ranks_ = Wish("ranks", 1 + Below(3));
    mode_ = 0;
    const int64_t joiners = 1 + Below(4);
    Step begin = Of("job", {{"elastic", 1}, {"ranks", ranks_}, {"per_node", ranks_}});
    begin.numbers["joiners"] = joiners;
    story->steps.push_back(begin);
    const auto worker = [&] { return static_cast<int>(Below(ranks_ + joiners)); };
    for (int64_t joiner = 0; joiner < joiners; ++joiner) {
      Step join = Of("join", {{"after_us", Below(int64_t{1} << (4 + Below(12)))}});
      join.rank = static_cast<int>(ranks_ + joiner);
      story->steps.push_back(join);
    }
    const size_t first = story->steps.size();
    const int64_t calls = Wish("calls", 2 + Below(8));
    for (int64_t call = 0; call < calls; ++call) {
      for (int64_t adds = Below(6); adds > 0; --adds) {
        Step add = DrawAdd();
        add.rank = worker();
        story->steps.push_back(add);
      }
      if (Below(3) == 0) {
        story->steps.push_back(Of("save", {{"step", ++step_}, {"keep", Below(3)}}));
      } else if (Below(2) == 0) {
        story->steps.push_back(Of("barrier"));
      }
    }
    const auto at = [&] {
      const auto places = static_cast<int64_t>(story->steps.size() - first) + 1;
      return story->steps.begin() + static_cast<ptrdiff_t>(first) + Below(places);
    };
    const int64_t last_step = ++step_;
    const bool all_are_told = Below(2) == 0;
    for (int number = 0; number < ranks_ + joiners; ++number) {
      Step told = Of("told", {{"step", last_step}});
      told.rank = number;
      if (all_are_told || Below(3) == 0) story->steps.insert(at(), told);
    }
    for (int64_t faults = Wish("faults", Below(3)); faults > 0; --faults) {
      Step fault = Of("kill", {{"points", Below(int64_t{1} << (1 + Below(14)))}});
      if (Below(3) == 0) fault = Of("suspend", {{"points", Below(1 << 12)}, {"ms", Below(3000)}});
      fault.rank = worker();
      story->steps.insert(at(), fault);
    }
    if (Below(3) == 0) story->steps.push_back(Of("outage"));
  }

  void DrawJob(int64_t job, Story* story) {
    if (Wish("elastic", Below(5) == 0 ? 1 : 0) != 0) return DrawElasticJob(story);
    const int64_t nodes = Wish("nodes", Below(2) == 0 ? 1 : 1 + Below(2));
    const int64_t per_node = Wish("per_node", 1 + Below(3));
    ranks_ = nodes * per_node;
    mode_ = Wish("mode", Below(3) != 0 ? 0 : 1 + Below(2));
    // Rounds of keys are not supported on several nodes.
    if (kind_ == 2 && nodes > 1 && mode_ == 1) mode_ = 0;
    Step begin = Of("job", {{"ranks", ranks_}, {"per_node", per_node}, {"mode", mode_}});
    if (Below(3) == 0) begin.numbers["slow_us"] = int64_t{1} << Below(18);
    begin.numbers["readers"] = Below(3) == 0 ? 1 + Below(2) : 0;
    // Lazy rows and keys stay on their nodes, and a reader sees those of one.
    if (kind_ != 0 && nodes > 1) begin.numbers["readers"] = 0;
    // A session that continues is of one node, and keeps one rank.
    if (mode_ == 0 && nodes == 1 && ranks_ > 1 && Below(3) == 0) begin.numbers["continues"] = 1;
    begin.numbers["readers"] = Wish("readers", begin.numbers["readers"]);
    story->steps.push_back(begin);
    const size_t first = story->steps.size();
    if (job == 0 || Below(8) != 0) story->steps.push_back(Of("load"));
    const int64_t calls = Wish("calls", 2 + Below(8));
    const int64_t keep = Below(3);
    for (int64_t call = 0; call < calls; ++call) {
      for (int64_t adds = Below(4); adds > 0; --adds) story->steps.push_back(DrawAdd());
      const bool is_read = begin.Get("readers") > 0;
      story->steps.push_back(is_read && Below(2) == 0 ? Of("publish", {{"step", ++step_}})
                                                      : DrawCall(keep));
      // A buffer is overwritten by the next publication but one.
      const bool repeats = is_read && story->steps.back().call == "publish";
      for (int64_t more = repeats ? Below(5) : 0; more > 0; --more) {
        if (Below(2) == 0) story->steps.push_back(DrawAdd());
        story->steps.push_back(Of("publish", {{"step", ++step_}}));
      }
    }
    DrawFaults(first, job > 0, begin.Get("continues") != 0, story);
    if (Below(3) == 0) story->steps.push_back(Of("outage"));
  }

  // The call of the disk at which something happens: any that changes it, or one of a kind.
  Step AtCall(Step step) {
    // The number of changes of a save is about 10 and 3 for each rank.
    step.numbers["at"] = Below(int64_t{1} << (1 + Below(7)));
    if (Below(3) == 0) return step;
    // Each sync of a folder matters.
    static constexpr int64_t kKinds[] = {1, 2, 3, 4, 5, 6, 7, 7, 7, 8};
    step.numbers["of"] = kKinds[Below(10)];
    // A load reads more often than a save makes any one change.
    step.numbers["at"] = Below(int64_t{1} << (1 + Below(step.numbers["of"] == 8 ? 6 : 4)));
    return step;
  }

  Step DrawAdd() {
    Step add = Of("add", {{"table", Below(2)}, {"value", 1 + Below(150)}});
    // Modes with rounds or clocks need the same number of adds from all ranks.
    if (mode_ == 0) add.rank = static_cast<int>(Below(ranks_));
    if (Below(2) == 0) return add;
    add.numbers["table"] = 0;
    for (int64_t i = 1 + Below(4); i > 0; --i) add.ids.push_back(Below(16));
    std::sort(add.ids.begin(), add.ids.end());
    add.ids.erase(std::unique(add.ids.begin(), add.ids.end()), add.ids.end());
    return add;
  }

  Step DrawCall(int64_t keep) {
    const int64_t kind = Below(10);
    if (kind < 5) {
      Step save = Of("save", {{"step", ++step_}, {"keep", keep}});
      if (Below(2) == 0) save.numbers["incremental"] = 1;
      if (Below(2) == 0) save.numbers["background"] = 1;
      return save;
    }
    if (kind == 5) return Of("load");
    if (kind == 6) return Of("wait");
    if (kind == 7) return Of("barrier");
    return Of("publish", {{"step", ++step_}});
  }

  void DrawFaults(size_t first, bool can_flip, bool continues, Story* story) {
    int64_t faults = Wish("faults", Below(4) == 0 ? 0 : 1 + Below(3));
    const auto at = [&] {
      return story->steps.begin() + static_cast<ptrdiff_t>(first) +
             Below(static_cast<int64_t>(story->steps.size() - first) + 1);
    };
    std::vector<int> to_kill(static_cast<size_t>(ranks_));
    for (size_t i = 0; i < to_kill.size(); ++i) to_kill[i] = static_cast<int>(i);
    std::shuffle(to_kill.begin(), to_kill.end(), random_);
    if (continues) to_kill.pop_back();
    for (; faults > 0; --faults) {
      const int64_t kind = Below(11);
      if (kind < 2 && !to_kill.empty()) {
        Step kill = Of("kill", {{"points", Below(int64_t{1} << (1 + Below(14)))}});
        kill.rank = to_kill.back();
        to_kill.pop_back();
        story->steps.insert(at(), kill);
      } else if (kind == 2) {
        Step suspend = Of("suspend", {{"points", Below(1 << 12)}, {"ms", 1 + Below(3000)}});
        suspend.rank = static_cast<int>(Below(ranks_));
        story->steps.insert(at(), suspend);
      } else if (kind == 3 || kind > 8) {
        static constexpr int64_t kErrors[] = {EIO, ENOSPC, EACCES};
        Step fail = AtCall(Of("fail", {{"count", 1}, {"errno", kErrors[Below(3)]}}));
        if (Below(2) == 0) {
          fail.numbers["count"] = 1 + Below(3);
        } else {
          fail.numbers["every"] = 2 + Below(6);
        }
        story->steps.push_back(fail);
      } else if (kind == 4) {
        story->steps.push_back(Of("full", {{"bytes", Below(int64_t{1} << (10 + Below(12)))}}));
      } else if (kind == 5 && can_flip) {
        story->steps.push_back(Of("flip"));
      } else if (kind == 6 && !continues) {
        story->steps.push_back(AtCall(Of(Below(3) == 0 ? "killer" : "power")));
        if (Below(4) == 0) story->steps.back().numbers["node"] = Below(3);
      } else if (kind == 7 && !continues) {
        story->steps.push_back(AtCall(Of("power")));
      } else if (kind == 8) {
        Step refuse = Of("refuse", {{"thread", 1 + Below(3)}});
        refuse.rank = static_cast<int>(Below(ranks_));
        story->steps.insert(at(), refuse);
      }
    }
  }

  std::mt19937_64 random_;
  const Wishes& wishes_;
  int64_t kind_ = 0;
  int64_t ranks_ = 1;
  int64_t mode_ = 0;
  int64_t step_ = 0;
};

}  // namespace

std::string Story::Text() const {
  std::string text = world.Text() + "\n";
  for (const Step& step : steps) text += step.Text() + "\n";
  return text;
}

bool ParseStory(const std::string& text, Story* story, std::string* error) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word[0] == '#') continue;
    Step step;
    if (word == "rank") words >> step.rank;
    words >> step.call;
    while (words >> word) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        *error = "expected name=number, received '" + word + "' in: " + line;
        return false;
      }
      std::istringstream values(word.substr(equals + 1));
      std::string value;
      while (std::getline(values, value, ',')) {
        const int64_t number = std::strtoll(value.c_str(), nullptr, 10);
        if (word.substr(0, equals) == "ids") {
          step.ids.push_back(number);
        } else {
          step.numbers[word.substr(0, equals)] = number;
        }
      }
    }
    if (step.call == "world") {
      story->world = step;
    } else {
      story->steps.push_back(step);
    }
  }
  if (!story->steps.empty() && story->steps[0].call == "job") return true;
  *error = "expected a story that begins with a job";
  return false;
}

Story DrawStory(uint64_t seed, const Wishes& wishes) { return Drawing(seed, wishes).Draw(seed); }

}  // namespace sim
