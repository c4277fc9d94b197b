#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "base/windows.h"
#include "checkpoint/file_system.h"

namespace multiverso {
namespace {

namespace fs = std::filesystem;

// The most bytes of one call, which takes a 32-bit count.
constexpr int64_t kMaxBytesPerCall = int64_t{1} << 30;

// Convert between UTF-8, which this library uses for paths, and UTF-16, which Windows uses.
std::wstring ToUtf16(const std::string& text) {
  const int length = static_cast<int>(text.size());
  const int needed = MultiByteToWideChar(CP_UTF8, 0, text.data(), length, nullptr, 0);
  std::wstring utf16(static_cast<size_t>(needed), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), length, utf16.data(), needed);
  return utf16;
}

std::string ToUtf8(const std::wstring& text) {
  const int length = static_cast<int>(text.size());
  const int needed =
      WideCharToMultiByte(CP_UTF8, 0, text.data(), length, nullptr, 0, nullptr, nullptr);
  std::string utf8(static_cast<size_t>(needed), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text.data(), length, utf8.data(), needed, nullptr, nullptr);
  return utf8;
}

fs::path PathOf(const std::string& path) { return fs::path(ToUtf16(path)); }

// Returns the errno that is closest to an error of Windows.
int ErrnoOf(const std::error_code& error) {
  const std::error_condition condition = error.default_error_condition();
  return condition.category() == std::generic_category() ? condition.value() : EIO;
}

int LastErrno() {
  return ErrnoOf(std::error_code(static_cast<int>(GetLastError()), std::system_category()));
}

class WindowsWritableFile final : public WritableFile {
 public:
  WindowsWritableFile(std::string path, HANDLE file) : path_(std::move(path)), file_(file) {}
  ~WindowsWritableFile() override { CloseHandle(file_); }

  Status Write(const void* data, int64_t bytes) override {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      DWORD count = 0;
      if (WriteFile(file_, next, static_cast<DWORD>(std::min(bytes, kMaxBytesPerCall)), &count,
                    nullptr) == 0) {
        return IoFailure(path_, "write", LastErrno(), written_);
      }
      next += count;
      bytes -= count;
      written_ += count;
    }
    return Status::Ok();
  }

  Status Sync() override {
    if (FlushFileBuffers(file_) == 0) return IoFailure(path_, "sync", LastErrno(), written_);
    return Status::Ok();
  }

 private:
  std::string path_;
  HANDLE file_;
  int64_t written_ = 0;
};

class WindowsReadableFile final : public ReadableFile {
 public:
  WindowsReadableFile(std::string path, HANDLE file, int64_t bytes)
      : path_(std::move(path)), file_(file), bytes_(bytes) {}
  ~WindowsReadableFile() override { CloseHandle(file_); }

  const std::string& path() const override { return path_; }
  int64_t bytes() const override { return bytes_; }

  Status Read(int64_t offset, void* out, int64_t bytes) override {
    char* next = static_cast<char*>(out);
    while (bytes > 0) {
      OVERLAPPED position{};
      position.Offset = static_cast<DWORD>(offset);
      position.OffsetHigh = static_cast<DWORD>(offset >> 32);
      DWORD count = 0;
      const bool read = ReadFile(file_, next, static_cast<DWORD>(std::min(bytes, kMaxBytesPerCall)),
                                 &count, &position) != 0;
      if (!read && GetLastError() != ERROR_HANDLE_EOF) return IoFailure(path_, "read", LastErrno());
      if (count == 0) return CorruptionFailure(path_, offset, "the file ends here");
      next += count;
      bytes -= count;
      offset += count;
    }
    return Status::Ok();
  }

 private:
  std::string path_;
  HANDLE file_;
  int64_t bytes_;
};

class WindowsFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    HANDLE const file =
        CreateFileW(ToUtf16(path).c_str(), GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_DELETE,
                    nullptr, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file == INVALID_HANDLE_VALUE) return IoFailure(path, "create", LastErrno());
    return std::unique_ptr<WritableFile>(std::make_unique<WindowsWritableFile>(path, file));
  }

  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    std::error_code error;
    if (fs::is_directory(PathOf(path), error)) return IoFailure(path, "read", EISDIR);
    HANDLE const file =
        CreateFileW(ToUtf16(path).c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE,
                    nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file == INVALID_HANDLE_VALUE) return IoFailure(path, "open", LastErrno());
    LARGE_INTEGER size{};
    if (GetFileType(file) != FILE_TYPE_DISK || GetFileSizeEx(file, &size) == 0) {
      CloseHandle(file);
      return IoFailure(path, "read", EINVAL);
    }
    return std::unique_ptr<ReadableFile>(
        std::make_unique<WindowsReadableFile>(path, file, static_cast<int64_t>(size.QuadPart)));
  }

  Result<EntryKind> Look(const std::string& path) override {
    std::error_code error;
    const fs::file_status info = fs::status(PathOf(path), error);
    if (info.type() == fs::file_type::not_found) return EntryKind::kNone;
    if (error) return IoFailure(path, "look at", ErrnoOf(error));
    if (fs::is_regular_file(info)) return EntryKind::kFile;
    return fs::is_directory(info) ? EntryKind::kFolder : EntryKind::kOther;
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    std::vector<std::string> names;
    std::error_code error;
    fs::directory_iterator entry(PathOf(path), error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      names.push_back(ToUtf8(entry->path().filename().wstring()));
    }
    if (error) return IoFailure(path, "list", ErrnoOf(error));
    return names;
  }

  Status MakeFolders(const std::string& path) override {
    std::error_code error;
    fs::create_directories(PathOf(path), error);
    if (error && !fs::is_directory(PathOf(path))) {
      return IoFailure(path, "make folder", ErrnoOf(error));
    }
    return Status::Ok();
  }

  Status MakeFolder(const std::string& path) override {
    std::error_code error;
    const bool made = fs::create_directory(PathOf(path), error);
    if (error) return IoFailure(path, "make folder", ErrnoOf(error));
    return made ? Status::Ok() : IoFailure(path, "make folder", EEXIST);
  }

  Status Rename(const std::string& from, const std::string& to) override {
    // MOVEFILE_WRITE_THROUGH makes the call return only when the rename is on the disk.
    if (MoveFileExW(ToUtf16(from).c_str(), ToUtf16(to).c_str(), MOVEFILE_WRITE_THROUGH) == 0) {
      return IoFailure(to, "rename to", LastErrno());
    }
    return Status::Ok();
  }

  // Windows cannot sync a folder, but the file system's journal writes the names.
  Status SyncFolder(const std::string& /*path*/) override { return Status::Ok(); }

  Status Remove(const std::string& path) override {
    std::error_code error;
    if (!fs::remove(PathOf(path), error)) {
      return IoFailure(path, "remove", error ? ErrnoOf(error) : ENOENT);
    }
    return Status::Ok();
  }

  Status RemoveFolder(const std::string& path,
                      bool (*is_removed)(const std::string& name)) override {
    const DWORD attributes = GetFileAttributesW(ToUtf16(path).c_str());
    if (attributes == INVALID_FILE_ATTRIBUTES) {
      const int error_number = LastErrno();
      return error_number == ENOENT ? Status::Ok() : IoFailure(path, "remove", error_number);
    }
    // Links and junctions are reparse points, which Remove does not follow.
    if ((attributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0) return Remove(path);
    const auto entries = List(path);
    if (!entries.ok()) return entries.status();
    // A failure does not keep the other files, whose space is freed.
    Status status;
    for (const std::string& entry : entries.value()) {
      const Status removed =
          is_removed(entry) ? Remove(StrCat(path, "/", entry)) : ForeignEntryFailure(path, entry);
      if (status.ok()) status = removed;
    }
    return status.ok() ? Remove(path) : status;
  }
};

}  // namespace

FileSystem* LocalFileSystem() {
  // The object is never destroyed: a thread may still be writing when the process exits.
  static auto* const files = new WindowsFileSystem;
  return files;
}

}  // namespace multiverso
