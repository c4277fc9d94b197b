// CRC32C (Castagnoli): the checksum of checkpoints, as in iSCSI (RFC 3720), ext4 and LevelDB.
#ifndef MULTIVERSO_BASE_CRC_H_
#define MULTIVERSO_BASE_CRC_H_

#include <cstdint>

namespace multiverso {

// Returns the checksum after `bytes` more bytes, where `before` is the checksum so far, 0 at the
// start. Uses the processor's CRC instruction if there is one.
uint32_t Crc32c(const void* data, int64_t bytes, uint32_t before = 0);

// Computes Crc32c with tables, on any processor.
uint32_t PortableCrc32c(const void* data, int64_t bytes, uint32_t before = 0);

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_CRC_H_
