#include "base/text.h"
#include "base/windows.h"
#include "memory/presence.h"

namespace multiverso {
namespace {

// IsPresent takes the lock for a moment, so MarkPresent repeats a failed attempt.
constexpr int kMaxAttempts = 100;

// Returns the place of the byte that stands for `index`. The byte is far beyond the end of the
// file, because on Windows other processes can neither read nor write a locked byte.
OVERLAPPED PlaceOf(int index) {
  OVERLAPPED place{};
  place.Offset = static_cast<DWORD>(index);
  place.OffsetHigh = 0x40000000;
  return place;
}

bool Lock(int fd, int index) {
  OVERLAPPED place = PlaceOf(index);
  return LockFileEx(windows::HandleOf(fd), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0,
                    1, 0, &place) != 0;
}

void Unlock(int fd, int index) {
  OVERLAPPED place = PlaceOf(index);
  UnlockFileEx(windows::HandleOf(fd), 0, 1, 0, &place);
}

}  // namespace

Status MarkPresent(int fd, int index) {
  for (int i = 0; i < kMaxAttempts; ++i) {
    if (Lock(fd, index)) return Status::Ok();
    Sleep(1);
  }
  return Status(Code::kInternal, StrCat("cannot lock byte ", index, " of the control segment: ",
                                        windows::ErrorText(GetLastError())));
}

void ClearPresent(int fd, int index) { Unlock(fd, index); }

bool IsPresent(int fd, int index) {
  if (!Lock(fd, index)) return true;
  Unlock(fd, index);
  return false;
}

}  // namespace multiverso
