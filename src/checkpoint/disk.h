// The calls of the operating system that std::filesystem does not have: files are read, written and
// flushed to the disk, and a folder is removed without following links.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace multiverso::disk {

// A file is a descriptor. A failure is -1 or false, with errno.

// Creates a file for WriteSome, or fails if it exists, or if the folder that has it is a link.
int Create(const std::string& path);
// Opens a file for ReadSome. Does not wait for the other end of a pipe.
int Open(const std::string& path);
void Close(int file);
// Returns the size of an ordinary file; -1 for a folder, a pipe or a device.
int64_t SizeOf(int file);
// Write and read at most `bytes` bytes, and return how many; ReadSome returns 0 at the end.
int64_t WriteSome(int file, const void* data, int64_t bytes);
int64_t ReadSome(int file, int64_t offset, void* out, int64_t bytes);
// Tells the system to start writing what was written from `offset` on. Flush reports failures.
void BeginFlush(int file, int64_t offset, int64_t bytes);
bool Flush(int file);

// FileSystem describes these functions.
Status Rename(const std::string& from, const std::string& to);
Status SyncFolder(const std::string& path);
Status RemoveFolder(const std::string& path, bool (*may_remove)(const std::string& name));

}  // namespace multiverso::disk
