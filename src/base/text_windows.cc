#include "base/text.h"
#include "base/windows.h"

namespace multiverso::windows {

std::wstring ToUtf16(const std::string& text) {
  const int length = static_cast<int>(text.size());
  const int needed = MultiByteToWideChar(CP_UTF8, 0, text.data(), length, nullptr, 0);
  std::wstring utf16(static_cast<size_t>(needed), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), length, utf16.data(), needed);
  return utf16;
}

std::string ToUtf8(const wchar_t* text) {
  // The size includes the final zero, which is not part of the string.
  const int needed = WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
  if (needed <= 1) return "";
  std::string utf8(static_cast<size_t>(needed), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text, -1, utf8.data(), needed, nullptr, nullptr);
  utf8.pop_back();
  return utf8;
}

std::string ErrorText(DWORD error) {
  wchar_t text[512] = {};
  const DWORD length =
      FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr, error, 0,
                     text, static_cast<DWORD>(sizeof(text) / sizeof(text[0])), nullptr);
  std::string reason = length == 0 ? "unknown" : ToUtf8(text);
  while (!reason.empty() && (reason.back() == '\n' || reason.back() == '\r')) {
    reason.pop_back();
  }
  return StrCat(reason, " (error ", error, ")");
}

}  // namespace multiverso::windows
