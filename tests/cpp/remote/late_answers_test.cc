// Each call gets its own answer although those of earlier calls, which ended without them, come
// later. Rank 0 makes the calls; the other ranks, each a node of its own, serve them.
#include "remote/late_answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

// The elements of the tables on each server: fewer than a header has room for, more, and so many
// that an answer has several chunks.
constexpr int64_t kSizes[] = {3, 5000, 3 * kChunkBytes / 8 + 100};

// Rank 0's view of the job, and what the tables should contain.
class Caller {
 public:
  Caller(Session* session, std::shared_ptr<ThreadHub> hub, int servers)
      : session_(session), hub_(std::move(hub)), servers_(servers) {
    int64_t first = 1;
    for (const int64_t size : kSizes) {
      model_.emplace_back(static_cast<size_t>(size * servers), first);
      first = first * 10 + 7;  // no table has the values of another
    }
  }

  // Creates the tables, together with the servers, which have no model.
  static std::vector<Table*> CreateTables(Session* session, int servers, const Caller* caller) {
    std::vector<Table*> tables;
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      const void* const initial = caller == nullptr ? nullptr : caller->model_[i].data();
      tables.push_back(
          ValueOf(Create(session, MatrixOf(kSizes[i] * servers, 1, DType::kInt64), initial)));
    }
    return tables;
  }
  void Take(std::vector<Table*> tables) { tables_ = std::move(tables); }
  void TakeOfServer(std::vector<Table*> tables) { of_server_ = std::move(tables); }
  // Lets a server refuse requests for the table.
  void Forget(int table) {
    Table* const served = of_server_[static_cast<size_t>(table)];
    served->service()->Forget(served->id());
  }

  void Hold(int server, bool hold) { hub_->mail()->HoldCalls(server, hold); }
  void HoldAll(bool hold) {
    for (int server = 1; server <= servers_; ++server) Hold(server, hold);
  }

  const std::vector<Table*>& tables() const { return tables_; }
  int num_tables() const { return static_cast<int>(tables_.size()); }
  int64_t size(int table) const {
    return static_cast<int64_t>(model_[static_cast<size_t>(table)].size());
  }

  // Gets the whole table, and checks the values unless the call fails.
  Status Get(int table, const WaitLimit& limit) {
    std::vector<int64_t>& out = Memory(size(table));
    const Status status =
        Call(tables_[static_cast<size_t>(table)], Request::Get(out.data()), limit);
    if (status.ok()) Compare(table, out, 0);
    return status;
  }
  Status GetPart(int table, int64_t first, int64_t count, const WaitLimit& limit) {
    std::vector<int64_t>& out = Memory(count);
    Request get = Request::Get(out.data());
    get.first = first;
    get.count = count;
    const Status status = Call(tables_[static_cast<size_t>(table)], get, limit);
    if (status.ok()) Compare(table, out, first);
    return status;
  }
  Status GetRows(int table, const std::vector<int64_t>& ids, const WaitLimit& limit) {
    std::vector<int64_t>& out = Memory(static_cast<int64_t>(ids.size()));
    const Status status = Call(tables_[static_cast<size_t>(table)], GetRowsOf(ids, &out), limit);
    for (size_t i = 0; status.ok() && i < ids.size(); ++i) {
      EXPECT_EQ(out[i], At(table, ids[i])) << "row " << ids[i] << " of table " << table;
    }
    return status;
  }
  // An add that fails is made, or parts of it, as far as the servers have received it.
  Status Add(int table, int64_t value, const WaitLimit& limit) {
    std::vector<int64_t>& delta = Memory(size(table), value);
    for (int64_t& element : model_[static_cast<size_t>(table)]) element += value;
    const Status status =
        Call(tables_[static_cast<size_t>(table)], Request::Add(delta.data()), limit);
    if (!status.ok()) unsure_[table] = value;
    return status;
  }
  Status AddGet(int table, int64_t value, const WaitLimit& limit) {
    std::vector<int64_t>& delta = Memory(size(table), value);
    std::vector<int64_t>& out = Memory(size(table));
    for (int64_t& element : model_[static_cast<size_t>(table)]) element += value;
    const Request request = Request::AddGet(delta.data(), out.data());
    const Status status = Call(tables_[static_cast<size_t>(table)], request, limit);
    if (status.ok()) Compare(table, out, 0);
    if (!status.ok()) unsure_[table] = value;
    return status;
  }
  Status AddRows(int table, const std::vector<int64_t>& ids, int64_t value,
                 const WaitLimit& limit) {
    std::vector<int64_t>& delta = Memory(static_cast<int64_t>(ids.size()), value);
    for (const int64_t id : ids) At(table, id) += value;
    return Call(tables_[static_cast<size_t>(table)], AddRowsOf(ids, delta), limit);
  }
  Status FetchAdd(int table, int64_t element, int64_t value, const WaitLimit& limit) {
    std::vector<int64_t>& delta = Memory(1, value);
    std::vector<int64_t>& out = Memory(1);
    Request request = Request::AddGet(delta.data(), out.data());
    request.kind = RequestKind::kFetchAdd;
    request.first = element;
    request.count = 1;
    const int64_t before = At(table, element);
    At(table, element) += value;
    const Status status = Call(tables_[static_cast<size_t>(table)], request, limit);
    if (status.ok()) {
      EXPECT_EQ(out[0], before) << "element " << element << " of table " << table;
    }
    return status;
  }

  // Makes an add that fails, and then changes the delta.
  void AddAndChangeTheDelta(int table, int64_t value, const WaitLimit& limit) {
    EXPECT_EQ(Add(table, value, limit).code(), Code::kTimeout);
    std::fill(memory_.back().begin(), memory_.back().end(), int64_t{1} << 40);
  }

  // Waits until the servers have answered all calls that have failed, and finds out which parts of
  // their adds have been made.
  void Settle(int table) {
    ExpectAllTagsFree();
    std::vector<int64_t>& expected = model_[static_cast<size_t>(table)];
    const auto out = Values<int64_t>(tables_[static_cast<size_t>(table)]);
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i] == expected[i] - unsure_[table]) expected[i] = out[i];
    }
    unsure_[table] = 0;
    Compare(table, out, 0);
  }

  // Expects that a tag is free for every call: no answer is missing.
  void ExpectAllTagsFree() {
    CallTags* const tags = session_->context()->control_channel()->tags();
    EXPECT_TRUE(Eventually([&] {
      std::vector<int> taken;
      for (int tag = tags->Take().tag; tag >= 0; tag = tags->Take().tag) taken.push_back(tag);
      for (const int tag : taken) tags->GiveBack(tag);
      return taken.size() == kLastCallTag - kFirstCallTag + 1;
    }));
  }

 private:
  int64_t& At(int table, int64_t element) {
    return model_[static_cast<size_t>(table)][static_cast<size_t>(element)];
  }
  // Returns memory that outlives the calls, since the messages of a failed call may still use it.
  std::vector<int64_t>& Memory(int64_t count, int64_t value = -1) {
    return memory_.emplace_back(static_cast<size_t>(count), value);
  }
  void Compare(int table, const std::vector<int64_t>& out, int64_t first) {
    const auto from = model_[static_cast<size_t>(table)].begin() + first;
    const auto wrong = std::mismatch(out.begin(), out.end(), from);
    if (wrong.first == out.end()) return;
    ADD_FAILURE() << "element " << first + (wrong.first - out.begin()) << " of table " << table
                  << " is " << *wrong.first << ", expected " << *wrong.second;
  }

  Session* session_;
  std::shared_ptr<ThreadHub> hub_;
  int servers_;
  std::vector<std::vector<int64_t>> model_;
  std::vector<Table*> tables_;
  std::vector<Table*> of_server_;
  std::map<int, int64_t> unsure_;  // by table, the value that a failed call added to all elements
  std::deque<std::vector<int64_t>> memory_;
};

// Runs body(caller) on rank 0 of a job whose other ranks are `servers` nodes.
void RunCaller(int servers, int delay, uint64_t seed, const std::function<void(Caller*)>& body) {
  const VirtualNodes nodes(1);
  Roles roles(static_cast<size_t>(servers) + 1, Role::kServer);
  roles[0] = Role::kWorker;
  const auto hub = std::make_shared<ThreadHub>(servers + 1, delay, seed);
  std::vector<Table*> of_server;  // of rank 1
  RunOn(hub, roles, OptionsOf(Role::kAll), [&](Session* session, int rank) {
    Caller caller(session, hub, servers);
    caller.Take(Caller::CreateTables(session, servers, rank == 0 ? &caller : nullptr));
    if (rank == 1) of_server = caller.tables();
    EXPECT_TRUE(IsOk(Barrier(session)));
    if (rank == 0) {
      caller.TakeOfServer(of_server);
      body(&caller);
      caller.HoldAll(false);
      caller.ExpectAllTagsFree();
    }
    EXPECT_TRUE(IsOk(Barrier(session)));
    EXPECT_TRUE(IsOk(session->Close()));
  });
}

TEST(LateAnswers, AreNotTakenForThoseOfLaterCalls) {
  RunCaller(1, /*delay=*/2, 1, [](Caller* caller) {
    using Kind = std::function<Status(int, const WaitLimit&)>;
    const std::vector<Kind> kinds = {
        [&](int table, const WaitLimit& limit) { return caller->Get(table, limit); },
        [&](int table, const WaitLimit& limit) { return caller->Add(table, 3, limit); },
        [&](int table, const WaitLimit& limit) { return caller->AddGet(table, 5, limit); },
        [&](int table, const WaitLimit& limit) { return caller->GetRows(table, {2, 0, 2}, limit); },
        [&](int table, const WaitLimit& limit) { return caller->AddRows(table, {1, 2}, 7, limit); },
        [&](int table, const WaitLimit& limit) { return caller->GetPart(table, 1, 2, limit); },
        [&](int table, const WaitLimit& limit) { return caller->FetchAdd(table, 1, 9, limit); },
    };
    for (int table = 0; table < caller->num_tables(); ++table) {
      for (const Kind& kind : kinds) {
        caller->HoldAll(true);
        EXPECT_EQ(kind(table, Shortly()).code(), Code::kTimeout);
        caller->HoldAll(false);
        // Calls of every kind follow, on each of the tables.
        for (int next = 0; next < caller->num_tables(); ++next) {
          if (next == table) caller->Settle(table);
          for (const Kind& other : kinds) EXPECT_TRUE(IsOk(other(next, Patiently())));
        }
      }
    }
  });
}

TEST(LateAnswers, OfAnInterruptedCallAreDroppedToo) {
  RunCaller(1, /*delay=*/2, 2, [](Caller* caller) {
    caller->HoldAll(true);
    auto interrupt = InterruptAtOnce();
    EXPECT_EQ(caller->Get(1, WaitLimit::Until(Instant::max(), &interrupt)).code(), Code::kAborted);
    caller->HoldAll(false);
    EXPECT_TRUE(IsOk(caller->Get(2, Patiently())));
    EXPECT_TRUE(IsOk(caller->Get(0, Patiently())));
  });
}

TEST(LateAnswers, OfRefusedCallsAreDroppedWithTheirReasons) {
  RunCaller(1, /*delay=*/2, 3, [](Caller* caller) {
    caller->HoldAll(true);
    caller->Forget(1);
    EXPECT_EQ(caller->Get(1, Shortly()).code(), Code::kTimeout);
    EXPECT_EQ(caller->GetRows(1, {4}, Shortly()).code(), Code::kTimeout);
    caller->HoldAll(false);
    EXPECT_TRUE(IsOk(caller->Get(2, Patiently())));
    EXPECT_TRUE(IsError(caller->Get(1, Patiently()), Code::kTransport, "no table number"));
    EXPECT_TRUE(IsOk(caller->Get(0, Patiently())));
  });
}

TEST(LateAnswers, LeaveRoomForOtherCallers) {
  // More answers than a server has in work at a time: it would wait for ever for the first to
  // leave.
  RunCaller(2, /*delay=*/1, 4, [](Caller* caller) {
    caller->Hold(1, true);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(caller->Get(2, Shortly()).code(), Code::kTimeout);
    caller->Hold(1, false);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(IsOk(caller->Get(2, Patiently())));
  });
}

TEST(LateAnswers, ValuesThatAreSentAfterTheCallAreNotAdded) {
  RunCaller(1, /*delay=*/1, 5, [](Caller* caller) {
    for (int i = 0; i < 4; ++i) {
      caller->Hold(0, true);
      caller->AddAndChangeTheDelta(2, 5, Shortly());
      caller->Hold(0, false);
      caller->Settle(2);
    }
  });
}

void RunRandomCalls(uint64_t seed, int servers) {
  SCOPED_TRACE(StrCat("seed ", seed, ", ", servers, " servers"));
  RunCaller(servers, /*delay=*/3, seed, [&](Caller* caller) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t below) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
    };
    std::vector<bool> is_settled(static_cast<size_t>(caller->num_tables()), true);
    for (int step = 0; step < 40; ++step) {
      // A held server stays so for some calls.
      const bool holds = draw(3) == 0;
      if (holds) caller->Hold(1 + static_cast<int>(draw(servers)), true);
      for (int i = static_cast<int>(draw(4)); i >= 0; --i) {
        const int table = static_cast<int>(draw(caller->num_tables()));
        const WaitLimit limit = holds ? Shortly() : Patiently();
        std::vector<int64_t> ids;
        for (int64_t count = 1 + draw(40); count > 0; --count) {
          ids.push_back(draw(caller->size(table)));
        }
        const int64_t first = std::min(ids[0], caller->size(table) - 1);
        if (!is_settled[static_cast<size_t>(table)]) {
          if (holds) continue;
          caller->Settle(table);
          is_settled[static_cast<size_t>(table)] = true;
        }
        const int64_t kind = draw(7);
        const Status status =
            kind == 0   ? caller->Get(table, limit)
            : kind == 1 ? caller->Add(table, draw(100), limit)
            : kind == 2 ? caller->AddGet(table, draw(100), limit)
            : kind == 3 ? caller->GetRows(table, ids, limit)
            : kind == 4 ? caller->AddRows(table, ids, draw(100), limit)
            : kind == 5 ? caller->GetPart(table, first, caller->size(table) - first, limit)
                        : caller->FetchAdd(table, first, draw(100), limit);
        if (!holds) {
          EXPECT_TRUE(IsOk(status));
        } else if (!status.ok()) {
          EXPECT_EQ(status.code(), Code::kTimeout) << status.text();
          is_settled[static_cast<size_t>(table)] = false;
        }
      }
      caller->HoldAll(false);
    }
    for (int table = 0; table < caller->num_tables(); ++table) caller->Settle(table);
  });
}

TEST(LateAnswers, RandomCallsMatchAModel) {
  for (uint64_t seed = 20261125; seed < 20261128; ++seed) {
    RunRandomCalls(seed, 1 + static_cast<int>(seed % 3));
  }
}

}  // namespace
}  // namespace multiverso::testing
