// Runs jobs under the simulator, and checks what they promise:
//
//   simulation run FIRST COUNT [name=value ...]   seeds from FIRST on; each draws a plan
//   simulation run FIRST --seconds N [...]        as many as there is time for
//   simulation twice FIRST COUNT [name=value ...] each seed twice, whose runs must not differ
//   simulation check                              checks the simulated machine itself
//   simulation traffic NODES                      the messages of a barrier
//   simulation replay FILE                        the plan in a file, with its trace
//   simulation plan SEED [name=value ...]         prints the plan of a seed
//   simulation stories FIRST COUNT [name=value ...]  stories of several jobs over one disk
//   simulation stories FILE...                    the stories in files, and the traces of failures
//   simulation known [FOLDER]                     FOLDER/runs/*.txt and FOLDER/seeds.txt
//
// A seed that fails prints the command that repeats it, and a plan that is smaller and fails, too.
#include <dirent.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "checks/checks.h"
#include "checks/traffic.h"
#include "job/plan.h"
#include "job/run.h"
#include "job/shrink.h"
#include "stories/run.h"

namespace {

using sim::Plan;
using sim::Result;

constexpr int kWallSeconds = 120;
constexpr int kShrinkingRuns = 400;
// Failing seeds that are shrunk and printed in full; the others are only counted.
constexpr int kMostReports = 5;

// The clock of the simulated world is virtual, so the real one is asked past the C library.
double RealSeconds() {
  timespec now{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Totals {
  int jobs = 0, bad = 0, kills = 0, suspensions = 0;
  double virtual_s = 0, points = 0;

  void Count(const Result& result) {
    ++jobs;
    if (result.violation[0] != '\0') ++bad;
    kills += result.kills;
    suspensions += result.suspensions;
    virtual_s += static_cast<double>(result.virtual_ns) * 1e-9;
    points += static_cast<double>(result.points);
  }
  void Print(double seconds) const {
    std::printf(
        "simulation: %d jobs, %d failed, %d kills, %d suspensions, %.0f s of virtual time, "
        "%.3g points, in %.1f s\n",
        jobs, bad, kills, suspensions, virtual_s, points, seconds);
  }
};

struct Arguments {
  std::vector<std::string> words;  // what is neither an option nor a wish
  sim::Wishes wishes;
  std::string wishes_text;
  double seconds = 0;
  int processes = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  bool shrinks = true;
  bool stops_at_first = false;
  int wall_seconds = kWallSeconds;  // of real time, after which a job counts as hanging
};

bool ReadArguments(int argc, char** argv, Arguments* arguments) {
  const std::vector<std::string>& names = sim::NamesOfWishes();
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (word == "--seconds" && i + 1 < argc) {
      arguments->seconds = std::atof(argv[++i]);
    } else if (word == "--processes" && i + 1 < argc) {
      arguments->processes = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--wall-seconds" && i + 1 < argc) {
      arguments->wall_seconds = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--no-shrinking") {
      arguments->shrinks = false;
    } else if (word == "--stop-at-first") {
      arguments->stops_at_first = true;
    } else if (equals == std::string::npos) {
      arguments->words.push_back(word);
    } else if (std::find(names.begin(), names.end(), word.substr(0, equals)) != names.end()) {
      arguments->wishes[word.substr(0, equals)] = word.substr(equals + 1);
      arguments->wishes_text += " " + word;
    } else {
      std::fprintf(stderr, "unknown option %s; expected one of:", word.c_str());
      for (const std::string& name : names) std::fprintf(stderr, " %s", name.c_str());
      std::fprintf(stderr, "\n");
      return false;
    }
  }
  return true;
}

// Shrinks a failing plan and prints it with its trace.
void Report(const Plan& plan, const std::string& violation, bool shrinks) {
  sim::Runner runner(1, kWallSeconds);
  Plan smallest = plan;
  if (shrinks) {
    smallest = sim::Shrink(plan, violation, kShrinkingRuns,
                           [&](const Plan& smaller) { return runner.Run(smaller); });
  }
  std::string trace, last;
  runner.Start(smallest, [&](const Plan&, const Result& result) {
    trace = result.Trace();
    last = result.violation;
  });
  runner.Wait();
  std::printf("a small plan that fails, for `simulation replay FILE`:\n%s\nits trace:\n%s%s\n",
              smallest.Text().c_str(), trace.c_str(), last.c_str());
}

int RunSeeds(const Arguments& arguments) {
  const uint64_t first =
      arguments.words.empty() ? 1 : std::strtoull(arguments.words[0].c_str(), nullptr, 10);
  const uint64_t count = arguments.words.size() > 1
                             ? std::strtoull(arguments.words[1].c_str(), nullptr, 10)
                             : UINT64_MAX;
  if (count == UINT64_MAX && arguments.seconds <= 0) {
    std::fprintf(stderr, "run: expected a number of seeds, or --seconds\n");
    return 2;
  }
  const double start = RealSeconds();
  Totals totals;
  std::vector<std::pair<Plan, std::string>> failed;
  sim::Runner runner(arguments.processes, arguments.wall_seconds);
  for (uint64_t i = 0; i < count; ++i) {
    if (arguments.seconds > 0 && RealSeconds() - start > arguments.seconds) break;
    if (arguments.stops_at_first && totals.bad > 0) break;
    const uint64_t seed = first + i;
    runner.Start(
        sim::Draw(seed, arguments.wishes), [&, seed](const Plan& plan, const Result& result) {
          totals.Count(result);
          if (result.violation[0] == '\0') return;
          std::printf("seed %llu: %.600s\n  repeat: simulation run %llu 1%s\n",
                      static_cast<unsigned long long>(seed), result.violation,
                      static_cast<unsigned long long>(seed), arguments.wishes_text.c_str());
          std::fflush(stdout);
          failed.emplace_back(plan, result.violation);
        });
  }
  runner.Wait();
  for (size_t i = 0; i < failed.size() && i < kMostReports; ++i) {
    if (arguments.shrinks) Report(failed[i].first, failed[i].second, true);
  }
  totals.Print(RealSeconds() - start);
  return totals.bad > 0 ? 1 : 0;
}

// Runs each seed twice, and compares the hashes over all switches and their times.
int RunTwice(const Arguments& arguments) {
  if (arguments.words.size() != 2) {
    std::fprintf(stderr, "twice: expected a seed and a number of seeds\n");
    return 2;
  }
  const uint64_t first = std::strtoull(arguments.words[0].c_str(), nullptr, 10);
  const uint64_t count = std::strtoull(arguments.words[1].c_str(), nullptr, 10);
  std::map<uint64_t, uint64_t> hashes;  // by seed, of the run that ended first
  int differing = 0;
  sim::Runner runner(arguments.processes, arguments.wall_seconds);
  for (uint64_t run = 0; run < 2 * count; ++run) {
    const uint64_t seed = first + run / 2;
    runner.Start(sim::Draw(seed, arguments.wishes), [&, seed](const Plan&, const Result& result) {
      const auto [found, is_first] = hashes.emplace(seed, result.hash);
      if (is_first || found->second == result.hash) return;
      ++differing;
      std::printf("seed %llu: its runs differ\n", static_cast<unsigned long long>(seed));
    });
  }
  runner.Wait();
  std::printf("simulation: %d of %llu seeds had runs that differ\n", differing,
              static_cast<unsigned long long>(count));
  return differing > 0 ? 1 : 0;
}

bool ReadPlan(const std::string& path, Plan* plan) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::string error = "it cannot be read";
  if (file.good() && sim::Parse(text.str(), plan, &error)) return true;
  std::fprintf(stderr, "%s: %s\n", path.c_str(), error.c_str());
  return false;
}

int Replay(const Arguments& arguments) {
  Plan plan;
  if (arguments.words.size() != 1 || !ReadPlan(arguments.words[0], &plan)) return 2;
  sim::Runner runner(1, kWallSeconds);
  const double start = RealSeconds();
  Totals totals;
  runner.Start(plan, [&](const Plan&, const Result& result) {
    totals.Count(result);
    std::printf("%s%s\nhash %016llx\n", result.Trace().c_str(), result.violation,
                static_cast<unsigned long long>(result.hash));
  });
  runner.Wait();
  totals.Print(RealSeconds() - start);
  return totals.bad > 0 ? 1 : 0;
}

int PrintPlan(const Arguments& arguments) {
  if (arguments.words.size() != 1) return 2;
  const uint64_t seed = std::strtoull(arguments.words[0].c_str(), nullptr, 10);
  std::printf("%s", sim::Draw(seed, arguments.wishes).Text().c_str());
  return 0;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  DIR* const open = opendir(folder.c_str());
  if (open == nullptr) return files;
  while (const dirent* const entry = readdir(open)) {
    const std::string name = entry->d_name;
    if (name.size() > 4 && name.substr(name.size() - 4) == ".txt")
      files.push_back(folder + "/" + name);
  }
  closedir(open);
  std::sort(files.begin(), files.end());
  return files;
}

// Reads lines such as "17 nodes=2 kills=1  # why".
bool ReadSeed(const std::string& line, Plan* plan) {
  std::istringstream words(line.substr(0, line.find('#')));
  uint64_t seed = 0;
  if (!(words >> seed)) return false;
  sim::Wishes wishes;
  std::string word;
  while (words >> word) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) wishes[word.substr(0, equals)] = word.substr(equals + 1);
  }
  *plan = sim::Draw(seed, wishes);
  return true;
}

int RunKnown(const Arguments& arguments) {
  const std::string folder = arguments.words.empty() ? "tests/sim" : arguments.words[0];
  std::vector<std::pair<std::string, Plan>> plans;
  for (const std::string& path : FilesIn(folder + "/runs")) {
    plans.emplace_back(path, Plan());
    if (!ReadPlan(path, &plans.back().second)) return 2;
  }
  std::ifstream seeds(folder + "/seeds.txt");
  std::string line;
  for (Plan plan; std::getline(seeds, line);) {
    if (ReadSeed(line, &plan)) plans.emplace_back("seed " + line, plan);
  }
  if (plans.empty()) {
    std::fprintf(stderr, "known: %s has no runs\n", folder.c_str());
    return 2;
  }
  const double start = RealSeconds();
  Totals totals;
  int wrong = 0;
  sim::Runner runner(arguments.processes, arguments.wall_seconds);
  for (const auto& named : plans) {
    if (arguments.stops_at_first && wrong > 0) break;
    runner.Start(named.second, [&](const Plan& plan, const Result& result) {
      totals.Count(result);
      const std::string violation = result.violation;
      const bool is_known = !plan.known_violation.empty();
      const bool is_right =
          is_known ? violation.find(plan.known_violation) != std::string::npos : violation.empty();
      if (is_right) return;
      ++wrong;
      std::printf("%s: %s\n", named.first.c_str(),
                  violation.empty() ? "has no violation any more; remove its line known_violation"
                                    : violation.c_str());
    });
  }
  runner.Wait();
  totals.Print(RealSeconds() - start);
  return wrong > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "stories") return sim::StoriesMain(argc - 1, argv + 1);
  Arguments arguments;
  if (!ReadArguments(argc, argv, &arguments)) return 2;
  if (command == "run") return RunSeeds(arguments);
  if (command == "twice") return RunTwice(arguments);
  if (command == "check") return sim::RunChecks() > 0 ? 1 : 0;
  if (command == "traffic" && argc == 3) return sim::PrintTraffic(std::atoi(argv[2]));
  if (command == "replay") return Replay(arguments);
  if (command == "plan") return PrintPlan(arguments);
  if (command == "known") return RunKnown(arguments);
  std::fprintf(stderr,
               "usage: simulation run FIRST COUNT|--seconds N [name=value ...]\n"
               "       simulation twice FIRST COUNT [name=value ...]\n"
               "       simulation check\n"
               "       simulation traffic NODES\n"
               "       simulation replay FILE\n"
               "       simulation plan SEED [name=value ...]\n"
               "       simulation stories FIRST COUNT|FILE... [name=value ...]\n"
               "       simulation known [FOLDER]\n");
  return 2;
}
