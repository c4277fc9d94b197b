#include "base/descriptor.h"

namespace multiverso {

// What a program without streams prints on Windows goes to no file, whatever its number.
StreamNumbersTaken::StreamNumbersTaken() = default;
StreamNumbersTaken::~StreamNumbersTaken() = default;

}  // namespace multiverso
