// The part of the C API that shows the memory of a table, and keeps it mapped.
#include <memory>
#include <utility>

#include "c_api/guard.h"
#include "c_api/registry.h"
#include "memory/segment.h"
#include "multiverso/c_api.h"

namespace multiverso::c_api {
namespace {

struct MemoryEntry {
  std::shared_ptr<Segment> memory;
};

using MemoryHandles = HandleTable<MV_Memory, MemoryEntry>;

MemoryHandles& Memories() {
  return HandlesOf<MemoryHandles>("memory",
                                  [](MemoryEntry* entry) { entry->memory->ForgetInChild(); });
}

}  // namespace

Status KeepMemory(std::shared_ptr<Segment> memory, MV_Memory* handle) {
  return Memories().Open(std::make_unique<MemoryEntry>(MemoryEntry{std::move(memory)}), handle);
}

}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_TableMemory(MV_Table table, const void** memory) {
  return OpenTables().With(table, NotNull(__func__, memory), [&](TableEntry* entry) {
    return entry->table->Memory().StoreIn(memory);
  });
}

int32_t MV_TableKeepMemory(MV_Table table, MV_Memory* memory) {
  return OpenTables().With(table, NotNull(__func__, memory), [&](TableEntry* entry) {
    return KeepMemory(entry->table->here()->segment(), memory);
  });
}

int32_t MV_MemoryRelease(MV_Memory memory) { return Memories().Release(memory); }
