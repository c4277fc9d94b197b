// Runs stories of seeds, each in a process of its own, and shrinks those that fail.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "memory/limits.h"
#include "stories/run.h"

namespace sim {
namespace {

// Most stories take a tenth of a second.
constexpr rlim_t kProcessorSeconds = 20;

struct Report {
  std::string violation;  // the first, or ""
  std::string text;       // all violations and, if wanted, the trace
  StoryResult numbers;
};

// Runs a story in a child, whose memory disappears with it, also after a crash.
Report RunInChild(const Story& story, bool with_trace) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{kProcessorSeconds, kProcessorSeconds};
    (void)setrlimit(RLIMIT_CPU, &limit);
    const StoryResult result = RunStory(story);
    std::ostringstream out;
    out << result.hash << ' ' << result.switches << ' ' << result.killed << ' ' << result.saved
        << ' ' << result.loaded << ' ' << result.violations.size() << '\n';
    for (const std::string& text : result.violations) out << text << '\n';
    for (const std::string& text : result.trace) out << (with_trace ? text + "\n" : "");
    const std::string bytes = out.str();
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t count = write(ends[1], bytes.data() + at, bytes.size() - at);
      if (count <= 0) break;
      at += static_cast<size_t>(count);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string bytes;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    bytes.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int state = 0;
  waitpid(child, &state, 0);
  Report report;
  if (WIFSIGNALED(state)) report.violation = "crash: signal " + std::to_string(WTERMSIG(state));
  std::istringstream in(bytes);
  size_t violations = 0;
  in >> report.numbers.hash >> report.numbers.switches >> report.numbers.killed >>
      report.numbers.saved >> report.numbers.loaded >> violations;
  std::string line;
  std::getline(in, line);
  if (violations > 0 && std::getline(in, line)) report.violation = line;
  report.text = report.violation + "\n";
  while (std::getline(in, line)) report.text += line + "\n";
  return report;
}

// Returns what violations of one fault have in common: the words before the first colon.
std::string KindOf(const std::string& violation) {
  return violation.substr(0, violation.find(':'));
}

// Removes steps, and whole jobs, as long as the story fails in the same way.
Story Shrunk(Story story, const std::string& kind, int attempts) {
  const auto fails = [&](const Story& smaller) {
    return !smaller.steps.empty() && smaller.steps[0].call == "job" && attempts-- > 0 &&
           KindOf(RunInChild(smaller, false).violation) == kind;
  };
  for (bool has_shrunk = true; has_shrunk && attempts > 0;) {
    has_shrunk = false;
    for (size_t length = story.steps.size() / 2; length > 0; length /= 2) {
      for (size_t at = 0; at + length <= story.steps.size();) {
        Story smaller = story;
        const auto begin = smaller.steps.begin() + static_cast<ptrdiff_t>(at);
        smaller.steps.erase(begin, begin + static_cast<ptrdiff_t>(length));
        if (fails(smaller)) {
          story = smaller;
          has_shrunk = true;
        } else {
          at += length;
        }
      }
    }
  }
  return story;
}

// Runs the story in a file. Returns an exit code.
int RunFile(const std::string& path, bool is_verbose) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  Story story;
  std::string error;
  if (!ParseStory(text.str(), &story, &error)) {
    std::printf("%s: %s\n", path.c_str(), error.c_str());
    return 2;
  }
  const Report report = RunInChild(story, true);
  const bool failed = !report.violation.empty();
  std::printf("%s%s: %s\n", is_verbose || failed ? report.text.c_str() : "", path.c_str(),
              failed ? "VIOLATION" : "ok");
  return failed ? 1 : 0;
}

}  // namespace

int StoriesMain(int argc, char** argv) {
  (void)multiverso::CheckFitsInMemory(1 << 24);  // fills a variable of this thread, once
  setenv("MULTIVERSO_LOG", "off", 0);
  Wishes wishes;
  std::vector<std::string> places;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      places.push_back(word);
    } else {
      wishes[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  const bool is_verbose = wishes.count("verbose") != 0;
  const bool are_files =
      !places.empty() && places[0].find_first_not_of("0123456789") != std::string::npos;
  if (are_files) {
    int result = 0;
    for (const std::string& place : places) result = std::max(result, RunFile(place, is_verbose));
    return result;
  }
  const uint64_t first = places.empty() ? 1 : std::strtoull(places[0].c_str(), nullptr, 10);
  const uint64_t count = places.size() < 2 ? 1 : std::strtoull(places[1].c_str(), nullptr, 10);
  uint64_t bad = 0;
  StoryResult sum;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Story story = DrawStory(seed, wishes);
    const Report report = RunInChild(story, is_verbose);
    sum.killed += report.numbers.killed;
    sum.saved += report.numbers.saved;
    sum.switches += report.numbers.switches;
    if (is_verbose) std::printf("%s%s", story.Text().c_str(), report.text.c_str());
    if (wishes.count("repeat") != 0 &&
        RunInChild(story, false).numbers.hash != report.numbers.hash) {
      std::printf("seed %llu: NOT REPEATABLE\n", static_cast<unsigned long long>(seed));
      ++bad;
    }
    std::fflush(stdout);
    if (report.violation.empty()) continue;
    ++bad;
    std::printf("seed %llu: VIOLATION %s\n", static_cast<unsigned long long>(seed),
                report.violation.c_str());
    if (wishes.count("first") != 0) return 1;
    if (wishes.count("shrink") == 0) continue;
    const Story small = Shrunk(story, KindOf(report.violation), std::stoi(wishes.at("shrink")));
    std::printf("%s%s", small.Text().c_str(), RunInChild(small, true).text.c_str());
  }
  std::printf("%llu stories, %llu bad, %d kills, %d saves, %.3g switches\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(bad),
              sum.killed, sum.saved, static_cast<double>(sum.switches));
  return bad > 0 ? 1 : 0;
}

}  // namespace sim
