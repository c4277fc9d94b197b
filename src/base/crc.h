// CRC-32C (Castagnoli): the checksum of checkpoints, as in iSCSI (RFC 3720), ext4 and LevelDB.
#pragma once

#include <cstdint>

namespace multiverso {

// Returns the checksum of `data` appended to earlier bytes, whose checksum is `crc` (0 if there are
// none). Uses the processor's CRC instruction if there is one.
uint32_t Crc32c(const void* data, int64_t bytes, uint32_t crc = 0);

// Returns the same as Crc32c, computed with tables on any processor.
uint32_t PortableCrc32c(const void* data, int64_t bytes, uint32_t crc = 0);

}  // namespace multiverso
