// The part of the C API that saves and loads the tables of a session.
#include <string>

#include "base/text.h"
#include "c_api/call_recording.h"
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {
namespace {

// Returns the path without slashes at its end.
Result<std::string> FolderOf(const char* directory) {
  MV_RETURN_IF_NOT_OK(CheckPath(directory, "directory"));
  std::string folder = directory;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

Result<AgreedCall> RequestOf(const MV_SaveOptions* options) {
  MV_RETURN_IF_NOT_OK(CheckStruct(options, "MV_SaveOptions"));
  if (options->step < -1) {
    return Status(Code::kValue, StrCat("step: expected 0 or more, received ", options->step));
  }
  if (options->keep < 0) {
    return Status(Code::kValue, StrCat("keep: expected 1 or more, received ", options->keep));
  }
  AgreedCall request;
  MV_ASSIGN_OR_RETURN(request.folder, FolderOf(options->directory));
  request.step = options->step;
  request.keep = options->keep;
  request.in_background = options->background != 0;
  request.incremental = options->incremental != 0;
  return request;
}

// What a call saves or loads: the table of a session with that id, or all if it is -1.
struct Saved {
  MV_Session session;
  int64_t table = -1;
};

Result<Saved> SavedOf(MV_Table table) {
  MV_ASSIGN_OR_RETURN(const TableUse use, OpenTables().UsingOpen(table));
  return Saved{use->owner->handle, use->table->id()};
}

Status Save(const Result<Saved>& saved, const MV_SaveOptions* options) {
  MV_RETURN_IF_NOT_OK(saved.status());
  MV_ASSIGN_OR_RETURN(AgreedCall request, RequestOf(options));
  request.table = saved.value().table;
  return RunCollective(saved.value().session, CallKind::kSave, 0,
                       [&](SessionEntry* entry, Interrupt* interrupt) {
                         return entry->session->Save(request, interrupt);
                       });
}

Status Load(const Result<Saved>& saved, const char* directory, int32_t flags, int64_t* step) {
  MV_RETURN_IF_NOT_OK(saved.status());
  if (step == nullptr) return Status(Code::kValue, "load: expected a step, received null");
  if ((flags & ~MV_MISSING_OK) != 0) {
    return Status(Code::kValue, StrCat("flags: expected 0 or MV_MISSING_OK, received ", flags));
  }
  AgreedCall request;
  MV_ASSIGN_OR_RETURN(request.folder, FolderOf(directory));
  request.missing_ok = (flags & MV_MISSING_OK) != 0;
  request.table = saved.value().table;
  return RunCollective(saved.value().session, CallKind::kLoad, 0,
                       [&](SessionEntry* entry, Interrupt* interrupt) {
                         return entry->session->Load(request, interrupt).StoreIn(step);
                       });
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_SaveOptionsInit(MV_SaveOptions* options) {
  return Guard(NotNull(__func__, options), [&] {
    *options = MV_SaveOptions{};
    options->struct_size = sizeof(MV_SaveOptions);
    options->step = -1;
    return Status::Ok();
  });
}

int32_t MV_SessionSave(MV_Session session, const MV_SaveOptions* options) {
  return Guard([&] { return Save(Saved{session}, options); });
}

int32_t MV_SessionPublish(MV_Session session, int64_t step, int64_t* version) {
  return Guard(NotNull(__func__, version), [&]() -> Status {
    if (step < 0) {
      return Status(Code::kValue, StrCat("step: expected 0 or more, received ", step));
    }
    return RunCollective(session, CallKind::kPublish, 0,
                         [&](SessionEntry* entry, Interrupt* interrupt) -> Status {
                           return entry->session->Publish(step, interrupt).StoreIn(version);
                         });
  });
}

int32_t MV_SessionSaveWait(MV_Session session) {
  return Guard([&]() -> Status {
    return RunCollective(session, CallKind::kSaveWait, 0,
                         [](SessionEntry* entry, Interrupt* interrupt) {
                           return entry->session->SaveWait(interrupt);
                         });
  });
}

int32_t MV_SessionLoad(MV_Session session, const char* directory, int32_t flags, int64_t* step) {
  return Guard([&] { return Load(Saved{session}, directory, flags, step); });
}

int32_t MV_TableSave(MV_Table table, const MV_SaveOptions* options) {
  return Guard([&] { return Save(SavedOf(table), options); });
}

int32_t MV_TableLoad(MV_Table table, const char* directory, int32_t flags, int64_t* step) {
  return Guard([&] { return Load(SavedOf(table), directory, flags, step); });
}
