// Finds the shared segments of other processes of this user (Segment), which have no names: they
// are among the open files of the processes, which only Linux lists.
#ifndef MULTIVERSO_READER_FIND_SEGMENTS_H_
#define MULTIVERSO_READER_FIND_SEGMENTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace multiverso {

// Returns the other processes of this user. The list is empty except on Linux.
std::vector<int64_t> OtherProcesses();

// Returns paths of the segments that a process has open and whose first bytes are the number
// `magic`, or the bytes from `offset` on.
std::vector<std::string> SegmentsOf(int64_t pid, uint64_t magic, int64_t offset = 0);

}  // namespace multiverso

#endif  // MULTIVERSO_READER_FIND_SEGMENTS_H_
