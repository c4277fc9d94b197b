#include "session/checkpoint_votes.h"

#include <utility>

namespace multiverso {
namespace {

// The character that replaces the folder in a text. No error's text contains it.
constexpr char kFolderMark = '\x01';

std::string WithoutFolder(const std::string& text, const std::string& folder) {
  if (folder.empty() || text.compare(0, folder.size(), folder) != 0) return text;
  return kFolderMark + text.substr(folder.size());
}

std::string WithFolder(std::string text, const std::string& folder) {
  const size_t mark = text.find(kFolderMark);
  return mark == std::string::npos ? text : text.replace(mark, 1, folder);
}

// Returns the failure with `change` made to its text and to the path of its file.
template <class Change>
Status Changed(const Status& failure, const Change& change) {
  FileFault fault = failure.file() == nullptr ? FileFault() : *failure.file();
  fault.path = change(fault.path);
  const Status changed(failure.code(), change(failure.text()), std::move(fault));
  return failure.peer() == nullptr ? changed : changed.About(*failure.peer());
}

}  // namespace

Status ExchangeVotes(Group* world, CollectiveKind kind, const Status& mine,
                     const std::string& folder, const std::vector<int>& ranks,
                     const std::string& consequence, const WaitLimit& limit,
                     const MasterMessage& from_master) {
  const auto shorten = [&](const std::string& text) { return WithoutFolder(text, folder); };
  const auto lengthen = [&](const std::string& text) { return WithFolder(text, folder); };
  const Status status = world->Agree(kind, mine.ok() ? mine : Changed(mine, shorten), ranks,
                                     consequence, limit, &from_master, sizeof(from_master));
  return status.ok() || !world->IsCompleted() ? status : Changed(status, lengthen);
}

MasterMessage MasterMessageOf(const Group& world, int master) {
  return world.payload(master).Read<MasterMessage>();
}

}  // namespace multiverso
