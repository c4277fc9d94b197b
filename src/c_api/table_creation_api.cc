// The part of the C API that creates tables from their options.
#include <cstring>
#include <utility>

#include "base/text.h"
#include "c_api/call_recording.h"
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "multiverso/c_api.h"
#include "numbers/make_updater.h"

namespace multiverso::c_api {
namespace {

Status SetInitializer(const MV_TableOptions& options, TableSpec* spec) {
  if (options.seed < -1) {
    return Status(Code::kValue, StrCat("seed: expected -1 or more, received ", options.seed));
  }
  if (options.initializer != MV_INITIALIZER_NONE && options.init_value != nullptr) {
    return Status(Code::kValue, "init_value: expected an initializer or values, received both");
  }
  InitializerSpec* const initializer = &spec->initializer;
  initializer->kind = options.initializer;
  initializer->seed =
      options.seed < 0 ? InitializerSpec::kSeedOfTable : static_cast<uint64_t>(options.seed);
  initializer->first = options.initializer_values[0];
  initializer->second = options.initializer_values[1];
  return Status::Ok();
}

Result<TableSpec> SpecOf(const MV_TableOptions* options) {
  MV_RETURN_IF_NOT_OK(CheckStruct(options, "MV_TableOptions"));
  TableSpec spec;
  spec.kind = options->kind;
  spec.dtype = options->dtype;
  spec.updater = options->updater;
  spec.num_row = options->num_row;
  spec.num_col = options->num_col;
  std::memcpy(spec.hyper, options->hyper, sizeof(spec.hyper));
  ClearUnusedHypers(spec.updater_kind(), spec.hyper);
  MV_RETURN_IF_NOT_OK(SetInitializer(*options, &spec));
  spec.numa = options->numa;
  spec.wire = options->wire;
  spec.max_bytes = options->max_bytes;
  spec.keys.capacity = options->capacity;
  spec.keys.evict = options->evict;
  spec.keys.admit = options->admit;
  if (options->name != nullptr) {
    const size_t length = std::strlen(options->name);
    if (length >= sizeof(spec.name)) {
      return Status(Code::kValue, StrCat("name: expected at most ", sizeof(spec.name) - 1,
                                         " bytes, received ", length, ": ", options->name));
    }
    CopyText(spec.name, options->name);
  }
  return spec;
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_TableOptionsInit(MV_TableOptions* options) {
  return Guard(NotNull(__func__, options), [&] {
    *options = MV_TableOptions{};
    options->struct_size = sizeof(MV_TableOptions);
    options->num_col = 1;
    options->hyper[MV_HYPER_LEARNING_RATE] = 0.01;
    options->seed = -1;
    return Status::Ok();
  });
}

int32_t MV_TableOptionsSetUpdater(MV_TableOptions* options, int32_t updater) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckStruct(options, "MV_TableOptions"));
    const auto kind = static_cast<UpdaterKind>(updater);
    MV_RETURN_IF_NOT_OK(MakeUpdater(kind, DType::kFloat32).status());
    options->updater = updater;
    SetDefaultHypers(kind, options->hyper);
    return Status::Ok();
  });
}

int32_t MV_TableCreate(MV_Session session, const MV_TableOptions* options, MV_Table* table) {
  return Guard(NotNull(__func__, table), [&]() -> Status {
    MV_ASSIGN_OR_RETURN(const TableSpec spec, SpecOf(options));
    const std::string folder = options->backing == nullptr ? "" : options->backing;
    if (!folder.empty()) MV_RETURN_IF_NOT_OK(CheckPath(options->backing, "backing"));
    return RunCollective(
        session, CallKind::kCreateTable, 0,
        [&](SessionEntry* entry, Interrupt* interrupt) -> Status {
          MV_ASSIGN_OR_RETURN(
              auto made, entry->session->CreateTable(spec, options->init_value, interrupt, folder));
          return OpenHandle(entry, std::move(made), table);
        });
  });
}
