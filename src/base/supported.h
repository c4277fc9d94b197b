// What goes with what: the features of sessions, tables and calls, and the combinations of them
// that are refused. Everything that the table (supported.cc) does not refuse, goes.
//
// A place where features meet puts those in use into a FeatureSet, and asks the table, when a
// session is opened, when a table is created, and at the start of calls that are features
// themselves. No other place refuses a combination. The page docs/supported.md, Python
// (multiverso/_native/supported.py) and the tests read the same table through MV_Supported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/status.h"

namespace multiverso {

// In the order of the page. kFeatures (supported.cc) has their names.
enum class Feature : int {
  // Of a session.
  kAsync,
  kSync,
  kStaleness,
  kNodes,
  kRoles,
  kFail,
  kContinue,
  kElastic,
  kEndOnTerm,
  kLeaveOnTerm,
  kCheckpoints,
  kNotLinux,
  // Of a table.
  kArray,
  kMatrix,
  kDense,
  kLazy,
  kLazyRows,
  kKeys,
  kOnDisk,
  kMaxBytes,
  kEvict,
  kInteger,
  kFloat64,
  kHalf,
  kRandom,
  kWire,
  kWireOfCalls,
  kAdd,
  kUpdater,
  kCountsSteps,
  kRowState,
  kDelayCompensation,
  kEasgd,
  kClips,
  // Of calls.
  kPartOfRow,
  kPartOfArray,
  kAtomics,
  kLiveView,
  kFresh,
  kAttach,
  kReadCurrent,
  kPublish,
  kPublishTo,
  kSaveAt,
  kWork,
  kMembership,
  kLeave,
  kMove,
  // Of ParamSync and the adapters.
  kParamSync,
  kAverage,
  kWeight,
  kMerge,
  kOverlap,
  kLayer,
  kViewLayer,
  kTrainRows,
  kExport,
  kPrefetch,
  kShard,
  kLearn,
  kEnd
};

class FeatureSet {
 public:
  constexpr FeatureSet() = default;
  constexpr FeatureSet(std::initializer_list<Feature> features) {
    for (const Feature feature : features) bits_ |= BitOf(feature);
  }

  // Returns the set with the feature too if `is_used`.
  constexpr FeatureSet With(Feature feature, bool is_used = true) const {
    return FeatureSet(is_used ? bits_ | BitOf(feature) : bits_);
  }
  constexpr FeatureSet Without(Feature feature) const {
    return FeatureSet(bits_ & ~BitOf(feature));
  }
  constexpr FeatureSet operator|(FeatureSet other) const { return FeatureSet(bits_ | other.bits_); }
  constexpr bool Has(Feature feature) const { return (bits_ & BitOf(feature)) != 0; }
  constexpr bool Contains(FeatureSet other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr int count() const {
    int count = 0;
    for (uint64_t rest = bits_; rest != 0; rest &= rest - 1) ++count;
    return count;
  }

 private:
  static_assert(static_cast<int>(Feature::kEnd) <= 64);

  static constexpr uint64_t BitOf(Feature feature) {
    return uint64_t{1} << static_cast<int>(feature);
  }
  explicit constexpr FeatureSet(uint64_t bits) : bits_(bits) {}

  uint64_t bits_ = 0;
};

struct FeatureInfo {
  const char* name;     // in Python, in tests, and at the rows and columns of the page
  const char* meaning;  // how a program uses the feature, in Markdown
};

// Features that do not go together, and what the error says: what was expected, what was received,
// and what to use instead.
struct Refusal {
  FeatureSet features;
  Code code;
  const char* sentence;

  Status status() const { return Status(code, sentence); }
};

const FeatureInfo& InfoOf(Feature feature);
// Returns the number of refusals, and the refusal with a number from 0 on.
size_t NumRefusals();
const Refusal& RefusalAt(size_t number);

// Returns the first refusal whose features are all in use, or null if these features go together.
const Refusal* FindRefusal(FeatureSet in_use);
// Returns its error, or ok.
Status CheckSupported(FeatureSet in_use);

// Returns the table as a JSON object: "features", each with a "group", a "name" and a "meaning",
// and "refusals", each with its "features" by name, the "code" of the C API, and the "sentence".
std::string SupportedAsJson();

}  // namespace multiverso
