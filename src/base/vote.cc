#include "base/vote.h"

#include "base/text.h"

namespace multiverso {
namespace {

// Replaces the folder at the beginning of a text. No error's text contains it.
constexpr char kHere = '\x01';

std::string WithoutFolder(const std::string& text, const std::string& folder) {
  if (folder.empty() || text.compare(0, folder.size(), folder) != 0) return text;
  return kHere + text.substr(folder.size());
}

std::string WithFolder(const std::string& text, const std::string& folder) {
  return !text.empty() && text[0] == kHere ? folder + text.substr(1) : text;
}

}  // namespace

Vote Vote::Of(const Status& status, const std::string& folder) {
  Vote vote;
  vote.code = static_cast<int32_t>(status.code());
  CopyText(vote.text, WithoutFolder(status.text(), folder));
  if (const FileFault* fault = status.file()) {
    vote.error_number = fault->error_number;
    vote.position = fault->position;
    CopyText(vote.path, WithoutFolder(fault->path, folder));
  }
  return vote;
}

Status Vote::ToStatus(const std::string& context, const std::string& folder) const {
  if (code == 0) return Status::Ok();
  return Status(static_cast<Code>(code), StrCat(context, ": ", WithFolder(text, folder)),
                FileFault{WithFolder(path, folder), error_number, position});
}

}  // namespace multiverso
