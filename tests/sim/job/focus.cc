#include "job/focus.h"

#include <iterator>

namespace sim {
namespace {

struct Focus {
  const char* name;
  Wishes wishes;
};

const Focus* FocusOf(uint64_t seed, const Wishes& wishes) {
  static const Focus kFocuses[] = {
      // Ranks write to and read the same row, with a switch at nearly each store.
      {"rows",
       {{"ranks", "3"},
        {"nodes", "1"},
        {"mode", "async"},
        {"rows", "1"},
        {"columns", "9"},
        {"calls", "120"},
        {"reorders", "1"},
        {"writes", "1"},
        {"mean_run", "3"},
        {"kills", "0"},
        {"suspends", "0"}}},
      // Ranks are suspended while they hold a lock, for which the others then sleep.
      {"locks",
       {{"mode", "async"},
        {"ranks", "4"},
        {"nodes", "1"},
        {"updater", "add"},
        {"rows", "1"},
        {"columns", "900"},
        {"calls", "120"},
        {"writes", "1"},
        {"kills", "0"},
        {"suspends", "3"},
        {"long", "0"}}},
      // Ranks lose their turn while they hold one of several locks that a call needs.
      {"stripes",
       {{"mode", "async"},
        {"ranks", "4"},
        {"nodes", "2"},
        {"kind", "matrix"},
        {"dtype", "float64"},
        {"rows", "6"},
        {"columns", "9000"},
        {"calls", "60"},
        {"large", "1"},
        {"writes", "1"},
        {"mean_run", "100"},
        {"kills", "0"}}},
      // Servers wait for a lock of a suspended rank in the middle of an add.
      {"held",
       {{"mode", "async"},
        {"ranks", "4"},
        {"nodes", "2"},
        {"kind", "matrix"},
        {"dtype", "float64"},
        {"updater", "add"},
        {"rows", "16"},
        {"columns", "9000"},
        {"calls", "30"},
        {"large", "1"},
        {"writes", "1"},
        {"mean_run", "100"},
        {"kills", "0"},
        {"suspends", "2"},
        {"long", "0"}}},
      // Calls have several requests to a server, of which the last is short and overtakes others.
      {"chunks",
       {{"mode", "async"},
        {"ranks", "3"},
        {"nodes", "3"},
        {"tables", "1"},
        {"kind", "matrix"},
        {"dtype", "float64"},
        {"rows", "3"},
        {"columns", "67000"},
        {"calls", "20"},
        {"large", "1"},
        {"kills", "0"}}},
      // More requests wait for a round than a server takes up at a time.
      {"waiting",
       {{"mode", "sync"},
        {"ranks", "5"},
        {"per_node", "3"},
        {"nodes", "2"},
        {"servers", "1"},
        {"kind", "matrix"},
        {"rows", "3"},
        {"columns", "67000"},
        {"large", "1"},
        {"calls", "12"},
        {"kills", "0"}}},
      // Calls end without their answers, which later calls must not take.
      {"late",
       {{"mode", "async"},
        {"ranks", "3"},
        {"nodes", "3"},
        {"rows", "8"},
        {"calls", "120"},
        {"limits", "4"},
        {"latency_us", "3000"},
        {"kills", "0"}}},
      // Ranks resume at about the moment at which the others exclude them.
      {"late_heartbeat",
       {{"nodes", "2"},
        {"suspends", "2"},
        {"suspend_ms", "1000"},
        {"peer_timeout_ms", "1000"},
        {"latency_us", "30000"},
        {"kills", "0"},
        {"after_error", "go_on"}}},
      // The others continue without a rank whose process they cannot end, and which goes on.
      {"excluded",
       {{"on_loss", "continue"},
        {"nodes", "1"},
        {"ranks", "4"},
        {"suspends", "1"},
        {"long", "1"},
        {"kills", "0"},
        {"signals", "0"}}},
      // It goes on with all of its calls, while the others still make theirs.
      {"excluded_goes_on",
       {{"on_loss", "continue"},
        {"nodes", "1"},
        {"ranks", "4"},
        {"suspends", "1"},
        {"long", "1"},
        {"kills", "0"},
        {"signals", "0"},
        {"sleeps", "6"},
        {"sleep_us", "1000000"},
        {"after_error", "go_on"}}},
      // A node is silent, and its rank resumes while the others go on.
      {"silent_node", {{"on_loss", "fail"},     {"mode", "async"},
                       {"nodes", "3"},          {"ranks", "3"},
                       {"servers", "0"},        {"kind", "matrix"},
                       {"updater", "add"},      {"rows", "6"},
                       {"columns", "20000"},    {"large", "1"},
                       {"calls", "40"},         {"suspends", "1"},
                       {"suspend_ms", "5000"},  {"peer_timeout_ms", "1000"},
                       {"timeout_ms", "20000"}, {"kills", "0"},
                       {"opening", "0"},        {"sleeps", "4"},
                       {"sleep_us", "1000000"}, {"after_error", "go_on"}}},
      // Ranks are killed while they wait for late ranks of their nodes.
      {"late_ranks",
       {{"nodes", "2"},
        {"ranks", "4"},
        {"calls", "30"},
        {"kills", "1"},
        {"suspends", "0"},
        {"sleeps", "4"},
        {"sleep_us", "1000000"}}},
      // Workers sum small rounds that follow each other, each in a copy of its own.
      {"small_rounds",
       {{"mode", "sync"},
        {"nodes", "1"},
        {"ranks", "3"},
        {"kind", "array"},
        {"updater", "add"},
        {"rows", "9"},
        {"add_gets", "1"},
        {"calls", "120"},
        {"writes", "1"},
        {"mean_run", "30"},
        {"kills", "0"},
        {"suspends", "0"}}},
      // One rank makes another call than the others, of few.
      {"disagree", {{"disagree", "1"}, {"calls", "10"}, {"kills", "0"}, {"suspends", "0"}}},
      // Aggregates follow each other, and ranks that took part in one die before the next.
      {"aggregates",
       {{"mode", "async"},
        {"on_loss", "continue"},
        {"nodes", "1"},
        {"ranks", "4"},
        {"collective", "aggregate"},
        {"steps_per_collective", "2"},
        {"calls", "40"},
        {"kills", "1"},
        {"suspends", "0"}}},
      // Some workers still read together while others go on to their next adds.
      {"together",
       {{"mode", "async"},
        {"ranks", "4"},
        {"nodes", "2"},
        {"collective", "get_together"},
        {"steps_per_collective", "3"},
        {"calls", "60"},
        {"kills", "0"},
        {"suspends", "0"}}},
      // A rank is suspended longer than calls may wait, but not so long that it counts as silent.
      {"deadlines",
       {{"mode", "async"},
        {"ranks", "4"},
        {"nodes", "2"},
        {"on_loss", "fail"},
        {"timeout_ms", "8000"},
        {"limits", "4"},
        {"peer_timeout_ms", "30000"},
        {"kills", "0"},
        {"suspends", "1"},
        {"long", "1"},
        {"suspend_ms", "20000"}}},
      // A rank is silent while the others of its node live, who speak for the node.
      {"silent",
       {{"ranks", "4"},
        {"nodes", "2"},
        {"on_loss", "fail"},
        {"kills", "0"},
        {"suspends", "1"},
        {"long", "1"},
        {"suspend_ms", "8500"},
        {"timeout_ms", "20000"},
        {"peer_timeout_ms", "2000"},
        {"after_error", "close"}}},
  };
  constexpr uint64_t kOneIn = 5;
  const auto named = wishes.find("focus");
  if (named == wishes.end()) {
    // A choice that the caller fixes may not go with those of a focus.
    return wishes.empty() && seed % kOneIn == 0 ? &kFocuses[seed / kOneIn % std::size(kFocuses)]
                                                : nullptr;
  }
  for (const Focus& focus : kFocuses) {
    if (named->second == focus.name) return &focus;
  }
  return nullptr;
}

}  // namespace

Wishes WithFocus(uint64_t seed, const Wishes& wishes) {
  Wishes all = wishes;
  if (const Focus* const focus = FocusOf(seed, wishes)) {
    all.insert(focus->wishes.begin(), focus->wishes.end());
  }
  return all;
}

}  // namespace sim
