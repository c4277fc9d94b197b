// The Windows API, without the macros that clash with other names, and conversions for its callers.
// Only files that end in _windows.cc include this file.
#ifndef MULTIVERSO_BASE_WINDOWS_H_
#define MULTIVERSO_BASE_WINDOWS_H_

#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>

#include <cstdint>
#include <string>

namespace multiverso::windows {

// Convert a handle to a number and back; 64-bit processes, too, use only 32 bits of a handle.
inline int NumberOf(HANDLE handle) { return static_cast<int>(reinterpret_cast<intptr_t>(handle)); }
inline HANDLE HandleOf(int number) {
  return reinterpret_cast<HANDLE>(static_cast<intptr_t>(number));
}

// Convert between UTF-8, which this library uses for paths, and UTF-16, which Windows uses.
std::wstring ToUtf16(const std::string& text);
std::string ToUtf8(const wchar_t* text);

// Returns a text such as "Access is denied. (error 5)".
std::string ErrorText(DWORD error);

}  // namespace multiverso::windows

#endif  // MULTIVERSO_BASE_WINDOWS_H_
