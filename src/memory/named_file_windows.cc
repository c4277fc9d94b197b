#include <atomic>

#include "base/process.h"
#include "base/text.h"
#include "base/windows.h"
#include "memory/named_file.h"

namespace multiverso {

Result<NamedFile> CreateNamedFile(int64_t bytes) {
  wchar_t folder[MAX_PATH + 2] = {};
  if (GetTempPathW(static_cast<DWORD>(sizeof(folder) / sizeof(folder[0])), folder) == 0) {
    return Status(Code::kMemory, StrCat("no place for a shared segment of ", SizeText(bytes), ": ",
                                        windows::ErrorText(GetLastError())));
  }
  LARGE_INTEGER now{};
  QueryPerformanceCounter(&now);
  static std::atomic<int64_t> number{0};
  NamedFile file;
  file.path = StrCat(windows::ToUtf8(folder), "multiverso-", ProcessId(), "-", now.QuadPart, "-",
                     number.fetch_add(1));
  // The file stays in memory while there is room, and disappears with this handle even if the
  // process is killed.
  HANDLE const handle =
      CreateFileW(windows::ToUtf16(file.path).c_str(), GENERIC_READ | GENERIC_WRITE,
                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr, CREATE_NEW,
                  FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, nullptr);
  if (handle == INVALID_HANDLE_VALUE) {
    return Status(Code::kMemory,
                  StrCat("no place for a shared segment of ", SizeText(bytes), "; tried ",
                         file.path, ": ", windows::ErrorText(GetLastError())));
  }
  file.fd = windows::NumberOf(handle);
  return file;
}

}  // namespace multiverso
