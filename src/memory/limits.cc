#include "memory/limits.h"

#include "base/text.h"

namespace multiverso {

Status CheckFitsInMemory(int64_t bytes) {
  // A machine with less memory could not run this process. Looking up the ceiling reads files,
  // which takes about as long as all else in the creation of a small table.
  constexpr int64_t kAlwaysFits = int64_t{1} << 20;
  if (bytes <= kAlwaysFits) return Status::Ok();
  const int64_t ceiling = MemoryCeiling();
  if (bytes <= ceiling) return Status::Ok();
  return Status(Code::kMemory,
                StrCat("cannot hold ", SizeText(bytes), ": this machine has ", SizeText(ceiling),
                       " of memory and swap in all, or may use no more of it"));
}

Status CheckIsFree(int64_t bytes) {
  MV_RETURN_IF_NOT_OK(CheckFitsInMemory(bytes));
  const int64_t available = FreeMemory();
  if (bytes <= available) return Status::Ok();
  return Status(Code::kMemory, StrCat("cannot hold ", SizeText(bytes),
                                      " more: ", SizeText(available), " are free on this machine"));
}

}  // namespace multiverso
