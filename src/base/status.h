// Status and Result: how functions below the C API report failure. They throw only what the
// standard library throws, such as std::bad_alloc.
#pragma once

#include <cassert>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "multiverso/constants.h"

namespace multiverso {

// No call of the C API returns kPending.
enum class Code : int32_t {
  kOk = MV_OK,
  kOutdated = MV_OUTDATED,  // not an error: the caller begins again with the last version
  kPending = 2,             // not an error: more time is needed
  kValue = MV_ERR_VALUE,
  kType = MV_ERR_TYPE,
  kIndex = MV_ERR_INDEX,
  kMemory = MV_ERR_MEMORY,
  kState = MV_ERR_STATE,
  kHandle = MV_ERR_HANDLE,
  kForked = MV_ERR_FORKED,
  kMismatch = MV_ERR_MISMATCH,
  kTimeout = MV_ERR_TIMEOUT,
  kPeerLost = MV_ERR_PEER_LOST,
  kAborted = MV_ERR_ABORTED,
  kTransport = MV_ERR_TRANSPORT,
  kLauncher = MV_ERR_LAUNCHER,
  kUnsupported = MV_ERR_UNSUPPORTED,
  kInternal = MV_ERR_INTERNAL,
  kCheckpointIo = MV_ERR_CHECKPOINT_IO,
  kCheckpointCorrupt = MV_ERR_CHECKPOINT_CORRUPT,
};

// Returns the name of a code in the C API, such as "MV_ERR_TIMEOUT".
inline const char* NameOf(Code code) {
  // The codes are the numbers from kPending down.
  static constexpr const char* kNames[] = {"pending",
                                           "MV_OUTDATED",
                                           "MV_OK",
                                           "MV_ERR_VALUE",
                                           "MV_ERR_TYPE",
                                           "MV_ERR_INDEX",
                                           "MV_ERR_MEMORY",
                                           "MV_ERR_STATE",
                                           "MV_ERR_HANDLE",
                                           "MV_ERR_FORKED",
                                           "MV_ERR_MISMATCH",
                                           "MV_ERR_TIMEOUT",
                                           "MV_ERR_PEER_LOST",
                                           "MV_ERR_ABORTED",
                                           "MV_ERR_TRANSPORT",
                                           "MV_ERR_LAUNCHER",
                                           "MV_ERR_UNSUPPORTED",
                                           "MV_ERR_INTERNAL",
                                           "MV_ERR_CHECKPOINT_IO",
                                           "MV_ERR_CHECKPOINT_CORRUPT"};
  const int64_t index = int64_t{static_cast<int32_t>(Code::kPending)} - static_cast<int32_t>(code);
  const bool is_known = index >= 0 && index < static_cast<int64_t>(std::size(kNames));
  return is_known ? kNames[index] : "unknown";
}

// The file that an error is about.
struct FileFault {
  std::string path;
  int32_t error_number = 0;  // errno, or 0
  int64_t position = 0;      // bytes written before the error, or the offset of the fault
};

// The rank that an error is about, and the known facts about it.
struct PeerFault {
  int32_t rank = -1;
  double silent_for = -1;  // seconds since the rank's last heartbeat; negative if unknown
  // Empty if unknown:
  std::string host;
  std::string last_call;
  std::string table;       // the table of the call that failed here
  std::string checkpoint;  // the last completed checkpoint
};

// An ok status is cheap, because only errors allocate a text. A status is thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text)
      : code_(code), content_(std::make_shared<const Content>(Content{std::move(text), {}, {}})) {}
  Status(Code code, std::string text, FileFault file)
      : code_(code),
        content_(std::make_shared<const Content>(Content{std::move(text), std::move(file), {}})) {}

  static Status Ok() { return Status(); }
  static Status Pending() { return Status(Code::kPending); }
  static Status Outdated() { return Status(Code::kOutdated); }

  bool ok() const { return code_ == Code::kOk; }
  bool pending() const { return code_ == Code::kPending; }
  Code code() const { return code_; }
  const std::string& text() const {
    static const std::string empty;
    return content_ ? content_->text : empty;
  }
  // Returns null unless the error is about a file.
  const FileFault* file() const {
    return content_ && !content_->file.path.empty() ? &content_->file : nullptr;
  }

  // Returns null unless the error is about a rank.
  const PeerFault* peer() const {
    return content_ && content_->peer.rank >= 0 ? &content_->peer : nullptr;
  }

  // Returns an error with `context` in front of its text, and other statuses unchanged.
  Status In(const std::string& context) const {
    if (ok() || pending()) return *this;
    Content content = content_ ? *content_ : Content();
    content.text = context + ": " + content.text;
    return Status(code_, std::move(content));
  }

  // Returns an error marked as being about the rank in `peer`, and other statuses unchanged.
  Status About(PeerFault peer) const {
    if (ok() || pending()) return *this;
    Content content = content_ ? *content_ : Content();
    content.peer = std::move(peer);
    return Status(code_, std::move(content));
  }

 private:
  struct Content {
    std::string text;
    FileFault file;
    PeerFault peer;
  };

  explicit Status(Code code) : code_(code) {}
  Status(Code code, Content content)
      : code_(code), content_(std::make_shared<const Content>(std::move(content))) {}

  Code code_ = Code::kOk;
  std::shared_ptr<const Content> content_;
};

// A T, or the status (not ok) of the failure to produce one.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: meant to convert
  Result(Status status) : status_(std::move(status)) {  // NOLINT: meant to convert
    assert(!status_.ok());
  }

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T* operator->() { return &*value_; }
  // Moves the value to *out, unless there is none. Returns the status.
  Status StoreIn(T* out) {
    if (ok()) *out = std::move(*value_);
    return status_;
  }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace multiverso

// Returns from the enclosing function with the status of `expr` unless it is ok. Pending is not ok.
#define MV_RETURN_IF_NOT_OK(expr)             \
  do {                                        \
    ::multiverso::Status mv_status_ = (expr); \
    if (!mv_status_.ok()) return mv_status_;  \
  } while (false)

// Assigns the value of a Result to `target`, which may be a declaration, or returns from the
// enclosing function with the status of the Result. It is two statements.
//
//   MV_ASSIGN_OR_RETURN(const int64_t bytes, SizeOf(file));
#define MV_ASSIGN_OR_RETURN(target, ...) \
  MV_ASSIGN_OR_RETURN_FROM(target, MV_JOIN_NAMES(mv_result_, __LINE__), __VA_ARGS__)
#define MV_ASSIGN_OR_RETURN_FROM(target, result, ...) \
  auto result = (__VA_ARGS__);                        \
  if (!result.ok()) return result.status();           \
  target = std::move(result.value())
#define MV_JOIN_NAMES(first, second) MV_JOIN_EXPANDED(first, second)
#define MV_JOIN_EXPANDED(first, second) first##second
