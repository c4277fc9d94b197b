#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/text.h"
#include "base/windows.h"
#include "checkpoint/disk.h"
#include "checkpoint/file_system.h"

namespace multiverso::disk {
namespace {

std::wstring ToUtf16(const std::string& path) { return std::filesystem::u8path(path).wstring(); }

// One call takes a 32-bit count.
unsigned CountFor(int64_t bytes) {
  return static_cast<unsigned>(std::min(bytes, int64_t{1} << 30));
}

}  // namespace

int Create(const std::string& path) {
  constexpr int kFlags = _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT;
  return _wopen(ToUtf16(path).c_str(), kFlags, _S_IREAD | _S_IWRITE);
}

int Open(const std::string& path) {
  return _wopen(ToUtf16(path).c_str(), _O_RDONLY | _O_BINARY | _O_NOINHERIT);
}

void Close(int file) { _close(file); }

int64_t SizeOf(int file) { return _lseeki64(file, 0, SEEK_END); }

int64_t WriteSome(int file, const void* data, int64_t bytes) {
  return _write(file, data, CountFor(bytes));
}

int64_t ReadSome(int file, int64_t offset, void* out, int64_t bytes) {
  if (_lseeki64(file, offset, SEEK_SET) != offset) return -1;
  return _read(file, out, CountFor(bytes));
}

void BeginFlush(int /*file*/, int64_t /*offset*/, int64_t /*bytes*/) {}

bool Flush(int file) { return _commit(file) == 0; }

Status Rename(const std::string& from, const std::string& to) {
  // MOVEFILE_WRITE_THROUGH makes the call return only when the rename is on the disk.
  if (MoveFileExW(ToUtf16(from).c_str(), ToUtf16(to).c_str(), MOVEFILE_WRITE_THROUGH) != 0) {
    return Status::Ok();
  }
  const std::error_code error(static_cast<int>(GetLastError()), std::system_category());
  return IoFailure(to, "rename to", error);
}

// Windows cannot sync a folder, but the file system's journal writes the names.
Status SyncFolder(const std::string& /*path*/) { return Status::Ok(); }

Status RemoveFolder(const std::string& path, bool (*may_remove)(const std::string& name)) {
  FileSystem* const files = LocalFileSystem();
  const DWORD attributes = GetFileAttributesW(ToUtf16(path).c_str());
  if (attributes == INVALID_FILE_ATTRIBUTES) return files->KindOf(path).status();
  // Links and junctions are reparse points, which Remove does not follow.
  if ((attributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0) return files->Remove(path);
  MV_ASSIGN_OR_RETURN(const auto entries, files->List(path));
  // A failure does not keep the other files, whose space is freed.
  Status status;
  for (const std::string& entry : entries) {
    const Status removed = may_remove(entry) ? files->Remove(StrCat(path, "/", entry))
                                             : ForeignEntryFailure(path, entry);
    if (status.ok()) status = removed;
  }
  return status.ok() ? files->Remove(path) : status;
}

}  // namespace multiverso::disk
