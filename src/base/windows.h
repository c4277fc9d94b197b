// The interface of Windows, without the names that are in everybody's way, and what its callers
// here share. Only for files whose names end in _windows.
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

// Handles have 32 significant bits, in processes of 32 and of 64 bits.
inline int NumberOf(HANDLE handle) { return static_cast<int>(reinterpret_cast<intptr_t>(handle)); }
inline HANDLE HandleOf(int number) {
  return reinterpret_cast<HANDLE>(static_cast<intptr_t>(number));
}

// UTF-8, as paths are everywhere in this library, to what Windows wants, and back.
std::wstring Wide(const std::string& text);
std::string Narrow(const wchar_t* text);

// "Access is denied. (error 5)".
std::string ErrorText(DWORD error);

}  // namespace multiverso::windows

#endif  // MULTIVERSO_BASE_WINDOWS_H_
