// Fuzz target for ShardService: the input is a request that another node sends.
//
// Two ranks of one process act as two nodes. The input is a request's header and payload, which the
// target sends to rank 1 as rank 0 would. A message without a valid header, or with a payload of
// another size than the header says, must be dropped. A model of the tables checks all else: a
// refused request must have changed nothing, and an accepted request exactly the requested
// elements.
#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "group/control_channel.h"
#include "session/session.h"
#include "session/session_opening.h"
#include "shard/shard_copies.h"
#include "support/thread_transport.h"
#include "table/request_message.h"
#include "target.h"

namespace multiverso::fuzz {
namespace {

// Rank 1 has the second half of each table. Smaller tables would be on one node.
constexpr int64_t kArraySize = 5000;
constexpr int64_t kRows = 2000;
constexpr int64_t kColumns = 3;
constexpr auto kPatience = std::chrono::seconds(60);

// A table of int64, whose sums are exact, with a model of the shard of rank 1.
struct ModeledTable {
  Table* tables[2] = {};
  int64_t first = 0;  // first element of rank 1's shard
  std::vector<int64_t> model;
};

class Job {
 public:
  Job() {
    setenv("MULTIVERSO_RANKS_PER_NODE", "1", 1);
    setenv("MULTIVERSO_LOG", "off", 1);
    const auto hub = std::make_shared<ThreadHub>(2);
    OnBothRanks([&](int rank) {
      auto session = OpenSession(SessionOptions(), std::make_unique<ThreadTransport>(hub, rank));
      Require(session.ok(), "a session", session.status().text());
      sessions_[rank] = std::move(session.value());
    });
    TableSpec spec;
    spec.dtype = static_cast<int32_t>(DType::kInt64);
    spec.num_row = kArraySize;
    Create(spec, array_.tables);
    spec.kind = static_cast<int32_t>(TableKind::kMatrix);
    spec.num_row = kRows;
    spec.num_col = kColumns;
    Create(spec, matrix_.tables);
    spec.dtype = static_cast<int32_t>(DType::kFloat32);
    spec.updater = static_cast<int32_t>(UpdaterKind::kAdagrad);
    SetDefaultHypers(UpdaterKind::kAdagrad, spec.hyper);
    spec.initializer.kind = static_cast<int32_t>(InitializerKind::kUniform);
    spec.initializer.second = 1;
    Create(spec, adagrad_);
  }

  int64_t array_id() const { return array_.tables[0]->id(); }
  int64_t matrix_id() const { return matrix_.tables[0]->id(); }
  int64_t adagrad_id() const { return adagrad_[0]->id(); }

  void Try(const std::string& bytes) {
    const auto header_size = static_cast<size_t>(kRequestBytes);
    RequestHeader header;
    const bool is_request = (DecodeRequest(bytes.substr(0, header_size), 2, &header) ||
                             DecodeRequest(bytes, 2, &header)) &&
                            header.sender == 0;
    if (!is_request) {
      const int64_t dropped = control_channel(1)->invalid_messages();
      Post(kRequestTag, bytes);
      WaitUntil([&] { return control_channel(1)->invalid_messages() > dropped; },
                "the message to be dropped");
    } else if (header.kind != RequestKind::kReleased) {  // kReleased may free the table
      SendAndCheck(header, bytes.substr(0, header_size), bytes.substr(header_size));
    }
    Require(!sessions_[0]->context()->state()->IsAborted() &&
                !sessions_[1]->context()->state()->IsAborted(),
            "the session to continue", "an abort");
    CheckModel(array_);
    CheckModel(matrix_);
  }

 private:
  template <class Body>
  static void OnBothRanks(const Body& body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  }

  Messenger* messenger() { return control_channel(0)->messenger(); }
  ControlChannel* control_channel(int rank) {
    return sessions_[rank]->context()->control_channel();
  }

  void Create(const TableSpec& spec, Table** tables) {
    OnBothRanks([&](int rank) {
      auto table = sessions_[rank]->CreateTable(spec, nullptr);
      Require(table.ok(), "a table", table.status().text());
      tables[rank] = sessions_[rank]->KeepTable(std::move(table.value()));
    });
  }

  void Post(int tag, const std::string& bytes) {
    const Status status = messenger()->Post(1, tag, bytes);
    Require(status.ok(), "a message to be sent", status.text());
  }

  template <class Done>
  void WaitUntil(const Done& done, const char* what) {
    const Instant deadline = Clock::now() + kPatience;
    while (!done()) {
      Require(Clock::now() < deadline, what, "nothing");
      messenger()->Advance();
      std::this_thread::yield();
    }
  }

  void SendAndCheck(const RequestHeader& header, const std::string& header_bytes,
                    const std::string& payload) {
    const bool returns = ReturnsData(header.kind);
    std::vector<char> answer(returns ? static_cast<size_t>(header.bytes) : sizeof(Reply));
    Messenger::Ticket ticket;
    (void)messenger()->Receive(1, header.tag, answer.data(), static_cast<int64_t>(answer.size()),
                               &ticket);
    const bool is_inline = header.inline_bytes() > 0;
    Post(kRequestTag, is_inline ? header_bytes + payload : header_bytes);
    const size_t id_bytes = std::min(payload.size(), static_cast<size_t>(header.id_bytes()));
    const std::string ids = payload.substr(0, id_bytes);
    const std::string values = payload.substr(id_bytes);
    if (!is_inline && HasIds(header.kind)) Post(ValuesTag(header.tag), ids);
    if (!is_inline && CarriesData(header.kind)) Post(ValuesTag(header.tag), values);
    int64_t received = 0;
    WaitUntil(
        [&] {
          bool done = false;
          const Status status = messenger()->Test(&ticket, &done, &received);
          Require(status.ok(), "an answer", status.text());
          return done;
        },
        "an answer");
    if (!returns) {
      Reply reply;
      std::memcpy(&reply, answer.data(), sizeof(reply));
      if (reply.status().ok()) Apply(header, ids, values, nullptr);
    } else if (received == header.bytes) {
      Apply(header, ids, values, answer.data());
    } else {
      Require(received == 0, "an empty refusal or all values", std::to_string(received));
      std::string reason;
      bool has_arrived = false;
      WaitUntil(
          [&] {
            (void)messenger()->Take(1, ErrorTag(header.tag), sizeof(Reply), &reason, &has_arrived);
            return has_arrived;
          },
          "the reason for a refusal");
      Reply reply;
      Require(reason.size() == sizeof(reply), "a Reply", std::to_string(reason.size()));
      std::memcpy(&reply, reason.data(), sizeof(reply));
      Require(reply.call == header.call, "the number of the call", std::to_string(reply.call));
    }
  }

  // Applies an accepted request to the model, and compares the answer with the model.
  void Apply(const RequestHeader& header, const std::string& ids, const std::string& values,
             const char* answer) {
    ModeledTable* table = nullptr;
    if (header.table == array_id()) table = &array_;
    if (header.table == matrix_id()) table = &matrix_;
    if (table == nullptr) {
      Require(header.table == adagrad_id(), "an answer about an existing table", "another");
      return;
    }
    Require(header.kind != RequestKind::kSetHyper, "an error", "a hyperparameter of updater add");
    if (IsTouch(header.kind)) return;  // changes no values
    const int64_t row_elements = table == &matrix_ && HasIds(header.kind) ? kColumns : 1;
    for (int64_t i = 0; i < header.count * row_elements; ++i) {
      int64_t element_number = header.first + i;
      if (header.width > 0) {
        const int64_t columns = table == &matrix_ ? kColumns : 1;
        element_number = header.first + i / header.width * columns + i % header.width;
      }
      if (HasIds(header.kind)) {
        int64_t row = 0;
        std::memcpy(&row, ids.data() + i / row_elements * 8, 8);
        element_number = row * row_elements + i % row_elements;
      }
      const int64_t index = element_number - table->first;
      Require(index >= 0 && index < static_cast<int64_t>(table->model.size()),
              "elements of rank 1's shard", std::to_string(element_number));
      auto& element = table->model[static_cast<size_t>(index)];
      uint64_t value = 0;
      if (CarriesData(header.kind)) {
        Require(values.size() == static_cast<size_t>(header.count * row_elements) * 8,
                "as many values as were announced", std::to_string(values.size()) + " bytes");
        std::memcpy(&value, values.data() + i * 8, 8);
      }
      const int64_t before = element;
      if (header.kind == RequestKind::kCompareSwap &&
          static_cast<uint64_t>(before) != header.expected) {
        value = static_cast<uint64_t>(before);
      }
      const bool stores =
          header.kind == RequestKind::kStore || header.kind == RequestKind::kCompareSwap;
      element = static_cast<int64_t>(stores ? value : static_cast<uint64_t>(element) + value);
      if (answer != nullptr) {
        const int64_t* const expected = IsAtomic(header.kind) ? &before : &element;
        Require(std::memcmp(answer + i * 8, expected, 8) == 0, "the values of the table", "others");
      }
    }
  }

  void CheckModel(const ModeledTable& table) {
    std::vector<int64_t> now(table.model.size());
    const ShardCopies copies(table.tables[1]->shard());
    const Status status =
        copies.CopyOut(ShardCopies::kParameters, table.first, static_cast<int64_t>(now.size()),
                       now.data(), NextRead::kSoon, WaitLimit::For(kPatience));
    Require(status.ok(), "the table's values", status.text());
    Require(now == table.model, "the values of the model", "other values");
  }

  std::unique_ptr<Session> sessions_[2];
  ModeledTable array_{{}, kArraySize / 2, std::vector<int64_t>(kArraySize / 2)};
  ModeledTable matrix_{{}, kRows / 2 * kColumns, std::vector<int64_t>(kRows / 2 * kColumns)};
  Table* adagrad_[2] = {};  // has no model, since the results in float32 are not exact
};

// Returns the job, which is never destroyed, so that a crash occurs at the input that caused it.
Job* TheJob() {
  static auto* const job = new Job;
  return job;
}

std::string SeedOf(RequestKind kind, int64_t table_id, int64_t first, int64_t count,
                   int64_t row_elements, int64_t element_bytes, int64_t width = 0) {
  RequestHeader header;
  header.width = width;
  header.kind = kind;
  header.tag = kLastCallTag;
  header.table = table_id;
  header.first = first;
  header.count = count;
  const bool has_bytes = kind != RequestKind::kSetHyper && kind != RequestKind::kTouch;
  header.bytes = has_bytes ? count * row_elements * element_bytes : 0;
  header.value = 0.5;
  std::string seed = EncodeRequest(header);
  for (int64_t row = kRows / 2; HasIds(kind) && row < kRows / 2 + count; ++row) {
    seed.append(reinterpret_cast<const char*>(&row), 8);
  }
  if (CarriesData(kind)) seed.append(static_cast<size_t>(header.bytes), '\1');
  return seed;
}

}  // namespace

std::vector<std::string> Seeds() {
  Job* const job = TheJob();
  constexpr int64_t kElement = kArraySize / 2;
  constexpr int64_t kOfRow = kRows / 2 * kColumns;
  return {
      // kind, table_id, first, count, row_elements, element_bytes
      SeedOf(RequestKind::kGet, job->array_id(), kElement, 5, 1, 8),
      SeedOf(RequestKind::kAdd, job->array_id(), kElement + 1, 3, 1, 8),
      SeedOf(RequestKind::kAddGet, job->array_id(), kElement, 5, 1, 8),
      SeedOf(RequestKind::kStore, job->matrix_id(), kOfRow, 12, 1, 8),
      SeedOf(RequestKind::kGetRows, job->matrix_id(), 0, 4, kColumns, 8),
      SeedOf(RequestKind::kAddRows, job->matrix_id(), 0, 3, kColumns, 8),
      SeedOf(RequestKind::kAddRows, job->adagrad_id(), 0, 2, kColumns, 4),
      SeedOf(RequestKind::kSetHyper, job->adagrad_id(), 0, 0, 1, 4),
      SeedOf(RequestKind::kTouch, job->adagrad_id(), kOfRow, kColumns, 1, 4),
      SeedOf(RequestKind::kTouchRows, job->adagrad_id(), 0, 2, 1, 8),
      SeedOf(RequestKind::kGet, job->matrix_id(), kOfRow + 1, 4, 1, 8, /*width=*/2),
      SeedOf(RequestKind::kAdd, job->matrix_id(), kOfRow, 8, 1, 8, /*width=*/2),
      SeedOf(RequestKind::kFetchAdd, job->array_id(), kElement + 2, 1, 1, 8),
      SeedOf(RequestKind::kCompareSwap, job->matrix_id(), kOfRow + 2, 1, 1, 8),
  };
}

}  // namespace multiverso::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  multiverso::fuzz::TheJob()->Try(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
