#include "base/supported.h"

#include <iterator>
#include <vector>

#include "base/json.h"

namespace multiverso {
namespace {

using F = Feature;

constexpr FeatureInfo kFeatures[] = {
    {"async", "a session in async mode, the default"},
    {"sync", "`sync=True`, or `staleness=0`"},
    {"staleness", "`staleness=` of 1 or more"},
    {"several nodes", "ranks on several machines, or `MULTIVERSO_RANKS_PER_NODE`"},
    {"roles", "`role=\"worker\"` or `role=\"server\"` on some ranks"},
    {"fail", "`on_peer_lost=\"fail\"`, the default"},
    {"continue", "`on_peer_lost=\"continue\"`"},
    {"elastic", "`elastic=True`, `multiverso run --elastic`, or `multiverso join`"},
    {"end on SIGTERM", "`on_term=\"end\"`, the default"},
    {"leave on SIGTERM", "`on_term=\"leave\"`"},
    {"checkpoints", "`checkpoints=`, the folder for the save after SIGTERM"},
    {"not Linux", "another system than Linux"},

    {"array", "`ArrayTable`"},
    {"matrix", "`MatrixTable`"},
    {"dense", "a table whose rows all exist from the start: no initializer and no keys"},
    {"lazy", "an array or a matrix with an initializer"},
    {"lazy rows", "a matrix with an initializer"},
    {"keys", "`HashTable`"},
    {"on disk", "`backing=`"},
    {"max_bytes", "`max_bytes=`"},
    {"evict", "`evict=` or `admit=`"},
    {"integers", "`dtype=` of integers"},
    {"float64", "`dtype=\"float64\"`"},
    {"16 bit", "`dtype=\"float16\"` or `\"bfloat16\"`"},
    {"random", "an initializer that draws, such as `Normal`"},
    {"wire", "`wire=` other than `\"float32\"`, of a table, `ParamSync` or an adapter"},
    {"wire of calls", "the same of a table in Python, for its calls"},
    {"add", "`updater=\"add\"`, the default"},
    {"updater", "any other updater"},
    {"counting updater", "`updater=` `\"adam\"`, `\"adamw\"`, `\"amsgrad\"` or `\"rowwise_adam\"`"},
    {"row-wise updater", "`updater=\"rowwise_adagrad\"` or `\"rowwise_adam\"`"},
    {"dcasgd", "`updater=\"dcasgd\"` or `\"dcasgda\"`"},
    {"easgd", "`updater=\"easgd\"`"},
    {"clipnorm", "`clipnorm=` other than 0"},

    {"add to a part of rows", "`add(index=)` of some columns"},
    {"add to a part of an array", "`add(index=)` of an `ArrayTable`"},
    {"fetch_add", "`fetch_add` and `compare_swap`"},
    {"live view", "`view(live=True)`"},
    {"fresh", "`get_async(fresh=True)`"},
    {"attach", "`mv.attach`, `multiverso top` and other readers of a running job"},
    {"current values", "`mv.attach` to a session that publishes nothing"},
    {"publish", "`mv.publish(step)`, in memory"},
    {"publish to a folder", "`mv.publish(step, to=)`"},
    {"checkpoints at an address",
     "`mv.save`, `mv.load` and `checkpoints=` with an address such as `s3://bucket/run`"},
    {"Work", "`mv.Work`"},
    {"membership", "`Session.membership` and `Session.on_membership`"},
    {"leave", "`Session.leave`"},
    {"sent arrays",
     "`torch.distributed` on one node, and the calls of `MV_SessionRun` that send arrays"},

    {"ParamSync", "`ParamSync` and the adapters of the frameworks"},
    {"average", "`average=True`"},
    {"weight", "`weight=`"},
    {"fragment_sync_delay", "`fragment_sync_delay=` or `fragment_update_alpha=`"},
    {"overlap", "`overlap=True`"},
    {"layers", "`Embedding` and the other layers for PyTorch, Keras and JAX"},
    {"layers of a view", "the same with a table of `mv.attach` or `mv.follow`"},
    {"training rows", "backward passes through the layers"},
    {"export", "`torch.export` or `torch.jit.trace` of a module with the layers"},
    {"prefetch", "`prefetch` of the layers"},
    {"shard", "`multiverso.keras_ext.shard`"},
    {"learn", "`multiverso.learn`"},
};
static_assert(std::size(kFeatures) == static_cast<size_t>(F::kEnd));

struct Group {
  Feature first;
  const char* name;
};

constexpr Group kGroups[] = {
    {F::kAsync, "session"},
    {F::kArray, "table"},
    {F::kPartOfRow, "call"},
    {F::kParamSync, "ParamSync and adapters"},
};

// Rows of the table, by the error that a refusal is.
constexpr Refusal Value(FeatureSet features, const char* sentence) {
  return {features, Code::kValue, sentence};
}
constexpr Refusal Type(FeatureSet features, const char* sentence) {
  return {features, Code::kType, sentence};
}
constexpr Refusal State(FeatureSet features, const char* sentence) {
  return {features, Code::kState, sentence};
}
constexpr Refusal Lacks(FeatureSet features, const char* sentence) {
  return {features, Code::kUnsupported, sentence};
}

constexpr Refusal kRefusals[] = {
    // ---- Sessions.
    Value({F::kSync, F::kStaleness},
          "staleness: expected 0 or None with sync=True, received 1 or more; pass one of them"),
    Value({F::kContinue, F::kSync},
          "on_peer_lost: expected 'fail' with sync=True, whose rounds need every worker, received "
          "'continue'; use async mode"),
    Value({F::kContinue, F::kStaleness},
          "on_peer_lost: expected 'fail' with staleness, whose rounds need every worker, received "
          "'continue'; use async mode, or elastic=True on one machine"),
    Value({F::kContinue, F::kNodes},
          "on_peer_lost: expected 'fail' in a session on several nodes, received 'continue'; let "
          "the scheduler, or a loop around mpirun, start the job again from its last checkpoint "
          "(docs/cluster.md)"),
    Value({F::kElastic, F::kSync},
          "sync: expected async mode or a staleness of 1 or more in an elastic session "
          "(elastic=True, or MULTIVERSO_ELASTIC or MULTIVERSO_JOIN in the environment), whose "
          "workers come and go, received sync mode"),
    Value({F::kElastic, F::kRoles},
          "role: expected 'all' in an elastic session (elastic=True, or MULTIVERSO_ELASTIC or "
          "MULTIVERSO_JOIN in the environment), whose workers come and go, received another role"),
    Value({F::kElastic, F::kNodes},
          "elastic: expected ranks of one machine, received several nodes; use elastic=False on "
          "several machines"),
    Lacks({F::kElastic, F::kNotLinux},
          "elastic: expected Linux, where processes that join can find the session, received "
          "another system; use elastic=False"),
    Value({F::kLeaveOnTerm, F::kRoles},
          "role: expected 'all' with on_term='leave', received another role; use on_term='end'"),
    Value({F::kLeaveOnTerm, F::kStaleness, F::kFail},
          "on_term: expected 'end' with staleness, unless the session is elastic: workers that "
          "wait to leave would hold up those that still train; received 'leave'"),
    Value({F::kCheckpoints, F::kEndOnTerm},
          "checkpoints: expected on_term='leave', with which the ranks save, received 'end'"),

    // ---- Tables.
    Type({F::kInteger, F::kUpdater},
         "updater: expected 'add' for a table of integers, which allows only adds, received "
         "another one; use a table of floating-point numbers"),
    Type({F::kInteger, F::kRandom},
         "init_value: expected no random values for a table of integers, received an initializer "
         "that draws them; use a table of floating-point numbers"),
    Type({F::kInteger, F::kWire},
         "wire: expected 'float32' or None for a table of integers, received a format for "
         "float32 values only"),
    Type({F::kFloat64, F::kWire},
         "wire: expected 'float32' or None for a table of float64, received a format for float32 "
         "values only"),
    Value({F::kKeys, F::kWire},
          "wire: expected 'float32' or None for a hash table, whose rows travel as they are, "
          "received another format"),
    Value({F::kAsync, F::kWireOfCalls},
          "wire: expected a session in sync mode, received another format than 'float32' in async "
          "mode; let multiverso.sync.ParamSync exchange the parameters, which takes wire in each "
          "mode"),
    Value({F::kStaleness, F::kWireOfCalls},
          "wire: expected a session in sync mode, received another format than 'float32' with "
          "staleness; let multiverso.sync.ParamSync exchange the parameters, which takes wire in "
          "each mode"),
    Value({F::kDense, F::kMaxBytes},
          "max_bytes: expected a table with an initializer, whose rows take memory when they are "
          "first changed, received one without"),
    Value({F::kArray, F::kRowState},
          "updater: expected a matrix with an updater that has state per row, received an array; "
          "use MatrixTable, or 'adagrad' or 'adam'"),
    Value({F::kSync, F::kOnDisk},
          "backing: expected a session in async mode or with staleness, received sync mode"),
    Value({F::kElastic, F::kOnDisk},
          "backing: expected a session whose ranks stay, received an elastic one; use "
          "on_peer_lost='continue', or an initializer with max_bytes"),
    Lacks({F::kOnDisk, F::kNotLinux},
          "backing: expected Linux, where room on a disk can be reserved, received another "
          "system; use a table in memory"),
    Value({F::kSync, F::kEvict},
          "evict, admit: expected none in sync mode, because they depend on the order of the "
          "workers' calls, received some; use async mode or staleness"),
    Value({F::kSync, F::kNodes, F::kKeys},
          "HashTable: expected async mode or a staleness of 1 or more in a session on several "
          "nodes, received sync mode"),
    Value({F::kSync, F::kClips},
          "clipnorm: expected 0 in sync mode, where no rank knows the norm of the sum of the "
          "workers' gradients, received another norm; use clipvalue, or clip each gradient before "
          "its add"),
    Value({F::kSync, F::kDelayCompensation},
          "updater: expected async mode with 'dcasgd' or 'dcasgda', which compensate the delay "
          "between a get and an add, received sync mode, which has none; use 'sgd' or 'rmsprop'"),
    Value({F::kStaleness, F::kDelayCompensation},
          "updater: expected async mode with 'dcasgd' or 'dcasgda', received a session with "
          "staleness; use 'sgd' or 'rmsprop'"),
    Value({F::kNodes, F::kDelayCompensation},
          "updater: expected one node with 'dcasgd' or 'dcasgda', whose servers keep what each "
          "worker has got, received several nodes; use 'sgd' or 'rmsprop'"),
    Value({F::kElastic, F::kDelayCompensation},
          "updater: expected one without state for each worker in an elastic session, received "
          "'dcasgd' or 'dcasgda'; use 'sgd' or 'rmsprop'"),
    Value({F::kMatrix, F::kDelayCompensation},
          "updater: expected an array with 'dcasgd' or 'dcasgda', which note what each worker "
          "receives, received a matrix; use an ArrayTable, or 'sgd' or 'adagrad'"),
    Value({F::kKeys, F::kDelayCompensation},
          "updater: expected an array with 'dcasgd' or 'dcasgda', which note what each worker "
          "receives, received a hash table; use 'sgd' or 'adagrad'"),
    Value({F::kLazy, F::kDelayCompensation},
          "updater: expected an array without an initializer with 'dcasgd' or 'dcasgda', received "
          "one with an initializer; pass the values instead"),
    Value({F::kOnDisk, F::kDelayCompensation},
          "updater: expected an array in memory with 'dcasgd' or 'dcasgda', received one with "
          "backing; use 'sgd' or 'adagrad'"),

    // ---- Calls.
    Lacks({F::kCountsSteps, F::kPartOfRow},
          "index: expected whole rows with an updater that counts its updates, such as 'adam', "
          "received some columns; add to whole rows"),
    Lacks({F::kHalf, F::kPartOfRow},
          "index: expected whole rows in 16 bits, where the table counts its updates to round, "
          "received some columns; add to whole rows"),
    Lacks({F::kCountsSteps, F::kPartOfArray},
          "index: expected the whole array with an updater that counts its updates, such as "
          "'adam', received a part; add to the whole array, or to whole rows of a matrix"),
    Lacks({F::kHalf, F::kPartOfArray},
          "index: expected the whole array in 16 bits, where the table counts its updates to "
          "round, received a part; add to the whole array, or to whole rows of a matrix"),
    Lacks({F::kRowState, F::kPartOfRow},
          "index: expected whole rows with an updater that has state per row, received some "
          "columns; add to whole rows"),
    Lacks({F::kSync, F::kUpdater, F::kPartOfRow},
          "index: expected whole rows in sync mode with an updater other than 'add', received "
          "some columns; add to whole rows"),
    Lacks({F::kUpdater, F::kAtomics},
          "fetch_add, compare_swap: expected a table with updater 'add', received another "
          "updater, through which all changes must go; use a separate table"),
    Lacks({F::kHalf, F::kAtomics},
          "fetch_add, compare_swap: expected a table of 32 or 64 bits, received one in 16 bits; "
          "use a separate table"),
    Lacks({F::kSync, F::kAtomics},
          "fetch_add, compare_swap: expected async mode or a staleness of 1 or more, received "
          "sync mode, in which elements change in rounds; use add and get"),
    Lacks({F::kLazy, F::kLiveView},
          "view: expected live=False for a table with an initializer, whose rows may not be in "
          "memory, received True; call get, or create it without an initializer"),
    Lacks({F::kKeys, F::kLiveView},
          "view: expected live=False for a hash table, whose rows may not be in memory, received "
          "True; call get"),
    Lacks({F::kNodes, F::kLiveView},
          "view: expected live=False for a table on several nodes, received True; call get, also "
          "of a part (index=)"),
    Lacks({F::kSync, F::kLiveView},
          "view: expected live=False in sync mode, in which the table changes in rounds, received "
          "True; call view() without live, which copies nothing either"),
    Value({F::kSync, F::kFresh},
          "fresh: expected False outside async mode, where the gets of workers are counted, "
          "received True in sync mode"),
    Value({F::kStaleness, F::kFresh},
          "fresh: expected False outside async mode, where the gets of workers are counted, "
          "received True with staleness"),
    State({F::kSync, F::kReadCurrent},
          "attach: expected a session that publishes, since current values belong to rounds in "
          "sync mode, received one without a publication; call publish in the session"),
    State({F::kNodes, F::kReadCurrent},
          "attach: expected a session that publishes, since the table is on several nodes, "
          "received one without a publication; call publish in the session"),
    Lacks({F::kNotLinux, F::kAttach},
          "attach: expected Linux, where readers can find a session, received another system; use "
          "publish(to=) and follow"),
    State({F::kOnDisk, F::kPublish},
          "publish: expected tables in memory, received one with backing; use publish in a "
          "session without such tables"),
    State({F::kElastic, F::kPublishTo},
          "publish: expected no folder (to=) in an elastic session, whose ranks come and go, "
          "received one; publish in memory, and read it with attach"),
    State({F::kContinue, F::kPublishTo},
          "publish: expected no folder (to=) with on_peer_lost='continue', with which ranks may "
          "end, received one; publish in memory, and read it with attach"),
    State({F::kSync, F::kLazyRows, F::kPublishTo},
          "publish: expected no folder (to=) in sync mode with a matrix that has an initializer, "
          "because listing its changed rows is a get, received one; publish in memory, or use "
          "another mode"),
    State({F::kRoles, F::kLazyRows, F::kPublishTo},
          "publish: expected no folder (to=) with ranks that are only servers and a matrix that "
          "has an initializer, because listing its changed rows is a get, received one; publish "
          "in memory, or use role='all'"),
    State({F::kNodes, F::kSaveAt},
          "checkpoints at an address: expected one node, whose ranks write to one folder before "
          "it is sent, received several; save to a folder that all nodes see, and copy it"),
    State({F::kElastic, F::kSaveAt},
          "checkpoints at an address: expected a session whose ranks stay, of which one sends, "
          "received an elastic one; save to a folder of this machine, and copy it"),
    State({F::kContinue, F::kSaveAt},
          "checkpoints at an address: expected on_peer_lost='fail', since one of the ranks sends, "
          "received 'continue'; save to a folder of this machine, and copy it"),
    Lacks({F::kSync, F::kWork},
          "Work: expected async mode or a staleness of 1 or more, received sync mode, whose "
          "workers must make the same calls; divide the items by worker_id"),
    State({F::kFail, F::kMembership},
          "membership: expected elastic=True, received a session that nobody joins; "
          "Session.lost_ranks() lists who has left"),
    State({F::kContinue, F::kMembership},
          "membership: expected elastic=True, received on_peer_lost='continue', with which nobody "
          "joins; Session.lost_ranks() lists who has left"),
    State({F::kFail, F::kLeave},
          "leave: expected elastic=True or on_peer_lost='continue', with which the others "
          "continue without this rank, received on_peer_lost='fail'; call mv.shutdown() on all "
          "ranks"),
    Lacks({F::kNodes, F::kMove},
          "expected one node for calls that send arrays to single workers, received several; use "
          "aggregate, or another library for these calls"),
    Lacks({F::kContinue, F::kMove},
          "expected on_peer_lost='fail' (MV_LOSS_FAILS) for calls that send arrays to single "
          "workers, received 'continue'; use aggregate"),
    Lacks({F::kElastic, F::kMove},
          "expected elastic=False for calls that send arrays to single workers, received an "
          "elastic session; use aggregate"),

    // ---- ParamSync and the adapters.
    Value({F::kRowState, F::kParamSync},
          "updater: expected one without state per row for ParamSync, whose tensors may end in "
          "the middle of a row, received a row-wise one; use 'adagrad' or 'adam'"),
    Value({F::kClips, F::kParamSync},
          "clipnorm: expected 0 for a sync, since its tensors, which travel as one delta, have "
          "norms of their own, received another norm; use clipvalue"),
    Value({F::kUpdater, F::kAverage},
          "average: expected the updater 'add', received another one; to average with an "
          "optimizer, divide its learning rate by the number of workers"),
    Value({F::kInteger, F::kWeight},
          "weight: expected parameters of floats, received integers, which cannot be weighted; "
          "omit weight"),
    Value({F::kEasgd, F::kWeight},
          "weight: expected an updater of deltas, received 'easgd', which gets positions; use "
          "'add' or an optimizer"),
    Value({F::kMerge, F::kOverlap},
          "fragment_sync_delay, fragment_update_alpha: expected deltas in exchanges of their own, "
          "received overlap=True; use overlap=False"),
    Value({F::kEasgd, F::kMerge},
          "fragment_sync_delay, fragment_update_alpha: expected an updater of deltas, received "
          "'easgd'; use 'add' or an optimizer"),
    Value({F::kInteger, F::kLayer},
          "table: expected a float table whose updater takes gradients, such as 'sgd' or "
          "'rowwise_adagrad', received one of integers"),
    Value({F::kAdd, F::kLayer},
          "table: expected a float table whose updater takes gradients, such as 'sgd' or "
          "'rowwise_adagrad', received one with 'add'"),
    Value({F::kEasgd, F::kLayer},
          "table: expected a float table whose updater takes gradients, such as 'sgd' or "
          "'rowwise_adagrad', received one with 'easgd'"),
    Lacks({F::kViewLayer, F::kTrainRows},
          "table: expected one of this session to train its rows, received one of a view, which "
          "can only be read; train in the job, and look rows up without gradients here"),
    Lacks({F::kLayer, F::kExport},
          "export: expected a module without rows of a table, which no file can contain, received "
          "a layer that looks them up; export the module that takes the rows as an argument"),
    Value({F::kElastic, F::kPrefetch},
          "prefetch: expected a session whose ranks stay, received an elastic one; look the rows "
          "up in forward"),
    State({F::kElastic, F::kShard},
          "shard: expected a fixed number of workers, received an elastic session; let its "
          "workers share the samples with mv.Work"),
    Value({F::kElastic, F::kLearn},
          "learn: expected a session whose ranks stay, received an elastic one; use "
          "elastic=False, or mv.Work and an adapter"),
};

constexpr bool AllHaveTexts() {
  for (const FeatureInfo& feature : kFeatures) {
    if (feature.name[0] == '\0' || feature.meaning[0] == '\0') return false;
  }
  for (const Refusal& refusal : kRefusals) {
    if (refusal.sentence[0] == '\0' || refusal.code == Code::kOk) return false;
  }
  return true;
}
static_assert(AllHaveTexts());

// A page can show two or three features.
constexpr bool AllAreOfTwoOrThree() {
  for (const Refusal& refusal : kRefusals) {
    if (refusal.features.count() < 2 || refusal.features.count() > 3) return false;
  }
  return true;
}
static_assert(AllAreOfTwoOrThree());

// The wider of two refusals would never be the first that is found, or would say what is not so.
constexpr bool NoneContainsAnother() {
  for (const Refusal& refusal : kRefusals) {
    for (const Refusal& other : kRefusals) {
      if (&other != &refusal && refusal.features.Contains(other.features)) return false;
    }
  }
  return true;
}
static_assert(NoneContainsAnother());

const char* GroupOf(Feature feature) {
  const char* name = "";
  for (const Group& group : kGroups) {
    if (group.first <= feature) name = group.name;
  }
  return name;
}

std::vector<Feature> AllFeatures() {
  std::vector<Feature> all;
  for (size_t i = 0; i < std::size(kFeatures); ++i) all.push_back(static_cast<Feature>(i));
  return all;
}

}  // namespace

const FeatureInfo& InfoOf(Feature feature) { return kFeatures[static_cast<size_t>(feature)]; }

size_t NumRefusals() { return std::size(kRefusals); }
const Refusal& RefusalAt(size_t number) { return kRefusals[number]; }

const Refusal* FindRefusal(FeatureSet in_use) {
  for (const Refusal& refusal : kRefusals) {
    if (in_use.Contains(refusal.features)) return &refusal;
  }
  return nullptr;
}

Status CheckSupported(FeatureSet in_use) {
  const Refusal* const refusal = FindRefusal(in_use);
  return refusal == nullptr ? Status::Ok() : refusal->status();
}

std::string SupportedAsJson() {
  const std::vector<Feature> all = AllFeatures();
  const JsonValue features = JsonList(all, [](Feature feature) {
    return JsonObject()
        .Add("group", GroupOf(feature))
        .Add("name", InfoOf(feature).name)
        .Add("meaning", InfoOf(feature).meaning)
        .Take();
  });
  const JsonValue refusals = JsonList(kRefusals, [&all](const Refusal& refusal) {
    std::vector<Feature> used;
    for (const Feature feature : all) {
      if (refusal.features.Has(feature)) used.push_back(feature);
    }
    return JsonObject()
        .Add("features", JsonList(used, [](Feature feature) { return InfoOf(feature).name; }))
        .Add("code", static_cast<int32_t>(refusal.code))
        .Add("sentence", refusal.sentence)
        .Take();
  });
  return JsonObject().Add("features", features).Add("refusals", refusals).Take().text;
}

}  // namespace multiverso
