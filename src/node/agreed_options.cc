#include "node/agreed_options.h"

#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "memory/segment.h"

namespace multiverso {
namespace {

// An option by the name that the user gives it, and its value as text.
struct ComparedOption {
  const char* name;
  std::string (*text)(const AgreedOptions& options);
};

// `max_workers` is that of rank 0.
const ComparedOption kComparedOptions[] = {
    {"the consistency mode", [](const AgreedOptions& o) { return o.mode.Name(); }},
    {"on_peer_lost",
     [](const AgreedOptions& o) {
       return std::string(o.on_loss == OnLoss::kFail ? "fail" : "continue");
     }},
    {"elastic",
     [](const AgreedOptions& o) { return std::string(o.is_elastic ? "True" : "False"); }},
    {"on_term",
     [](const AgreedOptions& o) {
       return std::string(o.on_term == MV_TERM_ENDS ? "end" : "leave");
     }},
    {"checkpoints",
     [](const AgreedOptions& o) { return std::string(o.saves_at_end ? "some" : "none"); }},
    {"timeout", [](const AgreedOptions& o) { return MillisecondsText(o.timeout); }},
    {"start_timeout", [](const AgreedOptions& o) { return MillisecondsText(o.start_timeout); }},
    {"name", [](const AgreedOptions& o) { return StrCat("'", o.name, "'"); }},
    {"peer_timeout", [](const AgreedOptions& o) { return MillisecondsText(o.peer_timeout); }},
};

}  // namespace

std::string ModeOptions::Name() const {
  if (mode == Mode::kAsync) return "async";
  return sums_in_rounds() ? "sync" : StrCat("staleness=", staleness);
}

FeatureSet ModeOptions::features() const {
  return FeatureSet()
      .With(Feature::kAsync, mode == Mode::kAsync)
      .With(Feature::kSync, mode == Mode::kSync)
      .With(Feature::kStaleness, mode == Mode::kStale);
}

FeatureSet AgreedOptions::features() const {
  const bool continues = on_loss == OnLoss::kContinue;
  return FeatureSet()
      .With(Feature::kFail, !continues && !is_elastic)
      .With(Feature::kContinue, continues && !is_elastic)
      .With(Feature::kElastic, is_elastic)
      .With(on_term == MV_TERM_LEAVES ? Feature::kLeaveOnTerm : Feature::kEndOnTerm)
      .With(Feature::kCheckpoints, saves_at_end)
      .With(Feature::kNotLinux, !Segment::CanBeFound());
}

std::string MillisecondsText(std::chrono::milliseconds timeout) {
  return timeout == kNoLimit ? "no limit" : StrCat(timeout.count(), " ms");
}

Status AgreedOptions::Compare(const std::string& who, const AgreedOptions& other,
                              const std::string& other_who) const {
  for (const ComparedOption& option : kComparedOptions) {
    const std::string mine = option.text(*this);
    const std::string theirs = option.text(other);
    if (mine == theirs) continue;
    return Status(Code::kMismatch, StrCat("the ranks differ in ", option.name, ": ", who, " has ",
                                          mine, ", ", other_who, " has ", theirs));
  }
  return Status::Ok();
}

}  // namespace multiverso
