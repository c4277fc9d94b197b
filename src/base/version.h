// The version of this library.
#pragma once

// The build system takes MULTIVERSO_VERSION from multiverso/_version.py.
#ifndef MULTIVERSO_VERSION
#error "MULTIVERSO_VERSION is not defined: build with CMakeLists.txt"
#endif

namespace multiverso {

constexpr char kVersion[] = MULTIVERSO_VERSION;

}  // namespace multiverso
