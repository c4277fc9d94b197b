// Segments that are files on a disk: the memory of tables that may be larger than the machine's
// memory, and that outlive their session. The kernel reads their pages when they are needed, and
// writes changed pages back when it needs their memory.
//
// A page of a file without a place on the disk would end the process with SIGBUS when it is
// written. So a place is reserved before. Only file systems are accepted where this is a promise:
// those that copy on write take new room for each change. Only on Linux.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "memory/segment.h"

namespace multiverso {

// Opens a file of at least `least_bytes` bytes, or, if these are 0, creates one for this user alone
// or opens an empty one or one of `bytes` bytes. Makes it `bytes` bytes long, without touching its
// content. Returns CheckpointCorruptError if the file has another size, ValueError if it belongs to
// somebody else or has another name, where the content would change too, and UnsupportedError for a
// file system on which tables cannot lie. The segment's destructor leaves the file.
Result<Segment> OpenFileSegment(const std::string& path, int64_t bytes, int64_t least_bytes = 0);

// Returns the bytes for which the disk has room.
int64_t BytesOnDisk(const Segment& file);

// Takes the lock of a file, which this process has until the segment is destroyed. Returns
// StateError if another segment has it.
Status LockFile(const Segment& file, const std::string& path);

// Returns CheckpointIOError unless `path` still leads to the file. Somebody may have removed it, as
// jobs that clean /tmp do, or put another file in its place; its rows then end with this process.
Status CheckInPlace(const Segment& file, const std::string& path);

// Makes sure that the disk has room for a part of a file. Returns MemoryError if it has not.
Status ReserveOnDisk(const Segment& file, int64_t offset, int64_t bytes);

// Tells the kernel that the pages of this mapping are used in no order.
void ExpectRandomUse(const Segment& file);

// Asks the kernel to read a part of a file into memory, without waiting for it.
void ReadAhead(const Segment& file, int64_t offset, int64_t bytes);

// Writes what has changed, and waits until it is on the disk.
Status WriteBack(const Segment& file);

}  // namespace multiverso
