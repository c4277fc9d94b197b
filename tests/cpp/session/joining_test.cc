#include "session/joining.h"

#include <gtest/gtest.h>

#include "group/collective_call.h"
#include "memory/segment.h"
#include "support/elastic.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kSize = 3000;

std::vector<float> Ones(float value = 1) { return std::vector<float>(kSize, value); }

class Joining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Segment::CanBeFound()) GTEST_SKIP() << "joiners cannot find a session";
  }
};

TEST_F(Joining, ShowsEarlierAddsToTheJoinerAndItsAddsToTheOthers) {
  const Sessions sessions = OpenElastic(2);
  OnAll(sessions, [](Session* session) { Add(ValueOf(Create(session, ArrayOf(kSize))), Ones()); });
  const auto joiner = ValueOf(Join());
  EXPECT_EQ(joiner->members().rank(), 2);
  EXPECT_EQ(joiner->members().worker_id(), 2);
  for (const auto& session : sessions) EXPECT_EQ(session->members().num_workers(), 3);
  Table* const table = ValueOf(Create(joiner.get(), ArrayOf(kSize)));
  EXPECT_EQ(Values<float>(table), Ones(2));
  Add(table, Ones());
  (void)ValueOf(Create(ValueOf(Join()).get(), ArrayOf(kSize)));
  EXPECT_EQ(Values<float>(table), Ones(3));
}

TEST_F(Joining, KeepsTablesWhoseCreatorsEndBeforeTheJoinerCreatesThem) {
  Sessions sessions = OpenElastic(2);
  OnAll(sessions, [](Session* session) {
    Add(ValueOf(Create(session, ArrayOf(kSize))), Ones());
    Add(ValueOf(Create(session, ArrayOf(kSize))), Ones(2));
  });
  const auto joiner = ValueOf(Join());
  OnAll(sessions, [](Session* session) { EXPECT_TRUE(IsOk(session->Close())); });
  sessions.clear();
  const auto later = ValueOf(Join());
  for (Session* const session : {later.get(), joiner.get()}) {
    EXPECT_EQ(Values<float>(ValueOf(Create(session, ArrayOf(kSize)))), Ones(2));
    EXPECT_EQ(Values<float>(ValueOf(Create(session, ArrayOf(kSize)))), Ones(4));
  }
}

TEST_F(Joining, GivesNoNumberTwice) {
  const Sessions sessions = OpenElastic(1);
  for (int rank = 1; rank < 20; ++rank) {
    const auto joiner = ValueOf(Join());
    EXPECT_EQ(joiner->members().rank(), rank);
    EXPECT_TRUE(IsOk(joiner->Close()));
  }
  EXPECT_EQ(sessions[0]->context()->peers()->EndedRanks().size(), 19U);
  EXPECT_TRUE(sessions[0]->context()->peers()->LostRanks().empty());
}

TEST_F(Joining, LetsExactlyOneOfAllRanksThatLeaveBeTheLast) {
  const Sessions sessions = OpenElastic(3);
  std::vector<size_t> order = {0, 0, 1, 1, 2, 2};  // each rank says that it leaves, and then looks
  do {
    for (const auto& session : sessions) {
      session->context()->memory()->own_slot().leaves.store(0);
      session->context()->memory()->control()->joined.Start(3);
    }
    std::vector<bool> leaves(3);
    int last = 0;
    for (const size_t rank : order) {
      if (leaves[rank]) last += sessions[rank]->IsLastToLeave() ? 1 : 0;
      if (!leaves[rank]) sessions[rank]->SayThatItLeaves();
      leaves[rank] = true;
    }
    EXPECT_EQ(last, 1);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_TRUE(IsError(Join().status(), Code::kState, "its last worker was told to end"));
}

TEST_F(Joining, MakesTheJoinerAMemberOfLaterCalls) {
  Sessions sessions = OpenElastic(2);
  OnAll(sessions, [](Session* session) { EXPECT_TRUE(IsOk(session->Barrier())); });
  sessions.push_back(ValueOf(Join()));
  EXPECT_TRUE(IsOk(sessions[2]->Barrier()));  // that of the others, which is over
  for (int64_t round = 1; round < 30; ++round) {
    OnAll(sessions, [&](Session* session) {
      int64_t sum = session->members().rank();
      ASSERT_TRUE(IsOk(session->Aggregate({ReduceOp::kSum, DType::kInt64, &sum, 1})));
      EXPECT_EQ(sum, 3);
      std::vector<double> large(20'000, 1);
      ASSERT_TRUE(
          IsOk(session->Aggregate({ReduceOp::kSum, DType::kFloat64, large.data(), 20'000})));
      EXPECT_EQ(large, std::vector<double>(20'000, 3));
      ASSERT_TRUE(IsOk(session->Barrier()));
    });
  }
  OnAll(sessions, [](Session* session) {
    Table* const table = ValueOf(Create(session, ArrayOf(kSize)));
    Add(table, Ones());
    ASSERT_TRUE(IsOk(session->Barrier()));
    EXPECT_EQ(Values<float>(table), Ones(3));
  });
}

// Returns the result of a rank that joins two after their first call, which go on without it.
template <class First, class Joined>
Status ResultOfJoiner(const First& first, const Joined& joined) {
  const Sessions sessions = OpenElastic(2);
  OnAll(sessions, first);
  const auto joiner = ValueOf(Join());
  const Status result = joined(joiner.get());
  EXPECT_TRUE(IsOk(joiner->Close()));
  OnAll(sessions, [](Session* session) { EXPECT_TRUE(IsOk(session->Barrier())); });
  return result;
}

TEST_F(Joining, FailsOnlyForTheJoinerIfItsCallsDifferOrAreOver) {
  const auto create = [](Session* session) { return Create(session, ArrayOf(kSize)).status(); };
  const auto create_other = [](Session* s) { return Create(s, MatrixOf(4, 8)).status(); };
  EXPECT_TRUE(IsError(ResultOfJoiner(create, create_other), Code::kMismatch,
                      "the session has array 'table 0' of 3000 float32"));
  const auto barrier = [](Session* session) { return session->Barrier(); };
  EXPECT_TRUE(IsError(ResultOfJoiner(barrier, create), Code::kMismatch,
                      "call 1 of the session was barrier, rank 2, which joined later, called the "
                      "creation of a table"));
  const auto sum_up = [](Session* session) {
    int64_t sum = 1;
    return session->Aggregate({ReduceOp::kSum, DType::kInt64, &sum, 1});
  };
  EXPECT_TRUE(IsError(ResultOfJoiner(sum_up, sum_up), Code::kState, "rank 2 joined the session"));
}

// A program that repeats calls that have failed makes as many calls as the others.
TEST_F(Joining, FailsInAnEarlierCallThatHasFailedForTheOthers) {
  AgreedCall call;
  call.folder = "/proc/none";
  const auto save = [&](Session* session) { return session->Save(call); };
  const Status failure = ResultOfJoiner(save, save);
  EXPECT_TRUE(IsError(failure, Code::kCheckpointIo, "before rank 2 joined, has failed for them"));
  EXPECT_EQ(failure.file() == nullptr ? "" : failure.file()->path, call.folder);
}

TEST_F(Joining, LetsOnlyRanksThatStayEndACall) {
  const Sessions sessions = OpenElastic(3);
  OnAll(sessions, [&](Session* session) {
    const WaitLimit limit = WaitLimit::For(std::chrono::seconds(60));
    CollectiveCall call(session->context(), CollectiveKind::kSave);
    ASSERT_TRUE(ValueOf(call.Enter(limit)));
    for (int part = 0; part < 2; ++part) {
      if (part == 1 && session->members().rank() == 0) return session->Leave("in the call");
      EXPECT_TRUE(IsOk(session->context()->world()->Allgather(CollectiveKind::kSave, {}, limit)));
    }
  });
  RankContext* const context = sessions[1]->context();
  const uint64_t over = context->memory()->control()->calls.over.load();
  EXPECT_EQ(over & UINT32_MAX, context->world()->sequence());
}

TEST_F(Joining, FailsWithOtherOptions) {
  const Sessions sessions = OpenElastic(1, ElasticOptions({Mode::kStale, 3}));
  EXPECT_TRUE(IsError(Join().status(), Code::kMismatch,
                      "consistency mode: the session has staleness=3, this rank, which joins it, "
                      "has async"));
  SessionOptions options = ElasticOptions({Mode::kStale, 3});
  options.timeout += std::chrono::milliseconds(1);
  EXPECT_TRUE(IsError(Join(options).status(), Code::kMismatch, "timeout"));
  EXPECT_EQ(sessions[0]->members().size(), 1);
}

TEST_F(Joining, FailsWithoutAPlace) {
  SessionOptions options = ElasticOptions();
  options.max_workers = 2;
  const Sessions sessions = OpenElastic(1, options);
  {
    const auto second = ValueOf(Join());
    EXPECT_TRUE(IsError(Join().status(), Code::kState, "has no free place: it has 2 workers"));
  }
  EXPECT_TRUE(Join().ok());
}

TEST_F(Joining, FailsWithoutAnElasticSession) {
  EXPECT_TRUE(IsError(Join().status(), Code::kState, "expected the name of an elastic session"));
  const auto session =
      ValueOf(OpenSession(std::make_shared<ThreadHub>(1), 0, OptionsOf(Role::kAll)));
  EXPECT_TRUE(IsError(Join().status(), Code::kState, "is not elastic"));
}

TEST_F(Joining, StartsTheClockAtTheSlowestWorkers) {
  const Sessions sessions = OpenElastic(2, ElasticOptions({Mode::kStale, 2}));
  std::vector<Table*> tables(2);
  OnAll(sessions, [&](Session* session) {
    Table* const table = ValueOf(Create(session, ArrayOf(kSize)));
    for (int i = 0; i < 5; ++i) Add(table, Ones());
    tables[static_cast<size_t>(session->members().rank())] = table;
  });
  const auto joiner = ValueOf(Join(ElasticOptions({Mode::kStale, 2})));
  Table* const table = ValueOf(Create(joiner.get(), ArrayOf(kSize)));
  // Its first add is number 6, and number 8 is the last that the bound permits.
  for (int i = 0; i < 3; ++i) {
    Add(table, Ones());
    EXPECT_EQ(joiner->context()->state()->IsAborted(), false);
    for (size_t other = 0; i == 1 && other < 2; ++other) Add(tables[other], Ones());
  }
  EXPECT_EQ(Values<float>(table), Ones(15));
  // The others need not wait for a joiner that has ended.
  EXPECT_TRUE(IsOk(joiner->Close()));
  OnAll(sessions, [&](Session* session) {
    Table* const mine = tables[static_cast<size_t>(session->members().rank())];
    for (int i = 0; i < 20; ++i) Add(mine, Ones());
  });
  EXPECT_EQ(Values<float>(tables[0]), Ones(55));
}

TEST_F(Joining, DoesNotLetAWorkerInABarrierHoldUpAdds) {
  const Sessions sessions = OpenElastic(2, ElasticOptions({Mode::kStale, 1}));
  OnAll(sessions, [](Session* session) {
    Table* const table = ValueOf(Create(session, ArrayOf(kSize)));
    // Rank 1 makes fewer adds, as a worker that finds no more items of work does.
    for (int i = 0; i < (session->members().rank() == 0 ? 30 : 3); ++i) Add(table, Ones());
    EXPECT_TRUE(IsOk(session->Barrier()));
    EXPECT_EQ(Values<float>(table), Ones(33));
  });
}

}  // namespace
}  // namespace multiverso::testing
