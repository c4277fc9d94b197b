// CRC32C (Castagnoli): the checksum of checkpoints. The one of iSCSI (RFC 3720), ext4 and LevelDB.
#ifndef MULTIVERSO_BASE_CRC_H_
#define MULTIVERSO_BASE_CRC_H_

#include <cstdint>

namespace multiverso {

// Of `bytes` bytes that follow others whose checksum is `before`; 0 before the first. By the
// processor's own instruction where there is one.
uint32_t Crc32c(const void* data, int64_t bytes, uint32_t before = 0);

// The same by table, whatever the processor can do.
uint32_t PortableCrc32c(const void* data, int64_t bytes, uint32_t before = 0);

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_CRC_H_
