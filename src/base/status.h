// Status: how every function below the C API says that it failed. No exceptions cross a layer.
#ifndef MULTIVERSO_BASE_STATUS_H_
#define MULTIVERSO_BASE_STATUS_H_

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace multiverso {

// The numbers are those of the C API (MV_OK, MV_PENDING, MV_ERR_...), which checks that they agree.
enum class Code : int32_t {
  kOk = 0,
  kPending = 1,  // not an error: the operation is to be stepped again
  kValue = -1,
  kType = -2,
  kIndex = -3,
  kMemory = -4,
  kState = -5,
  kHandle = -6,
  kForked = -7,
  kMismatch = -8,
  kTimeout = -9,
  kPeerLost = -10,
  kAborted = -11,
  kTransport = -12,
  kLauncher = -13,
  kUnsupported = -14,
  kInternal = -15,
};

// Cheap when ok: the text is allocated for errors only. Copyable; thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text)
      : code_(code), text_(std::make_shared<const std::string>(std::move(text))) {}

  static Status Ok() { return Status(); }
  static Status Pending() {
    Status status;
    status.code_ = Code::kPending;
    return status;
  }

  bool ok() const { return code_ == Code::kOk; }
  bool pending() const { return code_ == Code::kPending; }
  Code code() const { return code_; }
  const std::string& text() const {
    static const std::string empty;
    return text_ ? *text_ : empty;
  }

  // The same error with what was being done in front of its text.
  Status In(const std::string& context) const {
    return (ok() || pending()) ? *this : Status(code_, context + ": " + text());
  }

 private:
  Code code_ = Code::kOk;
  std::shared_ptr<const std::string> text_;
};

// A T or the Status that says why there is none.
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

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace multiverso

// Returns from the calling function unless `expr` is ok. A pending status returns too.
#define MV_RETURN_IF_NOT_OK(expr)             \
  do {                                        \
    ::multiverso::Status mv_status_ = (expr); \
    if (!mv_status_.ok()) return mv_status_;  \
  } while (false)

#endif  // MULTIVERSO_BASE_STATUS_H_
