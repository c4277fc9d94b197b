// The version of this library.
#ifndef MULTIVERSO_SESSION_VERSION_H_
#define MULTIVERSO_SESSION_VERSION_H_

// The build system takes MULTIVERSO_VERSION from multiverso/_version.py.
#ifndef MULTIVERSO_VERSION
#error "MULTIVERSO_VERSION is not defined: build with CMakeLists.txt"
#endif

namespace multiverso {

constexpr char kVersion[] = MULTIVERSO_VERSION;

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_VERSION_H_
