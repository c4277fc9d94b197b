// Calls that move arrays between workers: disagreements, and workers that are slow or missing. The
// model of all calls, types and operations is tests/mpi/programs/torch_distributed.py.
#include "sum/transfer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

using Array = std::vector<char>;  // the bytes of the elements
using Arrays = std::vector<Array>;
using Parts = std::vector<Transfer::Part>;

Transfer::Part PartOf(DType dtype, Array* array) {
  return {array->data(), static_cast<int64_t>(array->size()) / SizeOf(dtype)};
}

Parts PartsOf(DType dtype, Arrays* arrays) {
  Parts parts;
  for (Array& array : *arrays) parts.push_back(PartOf(dtype, &array));
  return parts;
}

// Returns the call of worker `me` that broadcasts the array.
Transfer::Call Broadcast(DType dtype, int root, int me, int workers, Array* array) {
  Parts received(static_cast<size_t>(workers));
  received[static_cast<size_t>(root)] = PartOf(dtype, array);
  const Parts sent = {me == root ? PartOf(dtype, array) : Transfer::Part{}};
  return {CollectiveKind::kBroadcast, ReduceOp::kSum, dtype, root, sent, received};
}

Transfer::Call Gather(DType dtype, Array* sent, Arrays* received) {
  const Parts part = {PartOf(dtype, sent)};
  return {CollectiveKind::kAllGather, ReduceOp::kSum, dtype, 0, part, PartsOf(dtype, received)};
}

Transfer::Call Exchange(DType dtype, Arrays* sent, Arrays* received) {
  const Parts parts = PartsOf(dtype, sent);
  return {CollectiveKind::kAllToAll, ReduceOp::kSum, dtype, 0, parts, PartsOf(dtype, received)};
}

Transfer::Call Scatter(ReduceOp op, DType dtype, Arrays* sent, Array* received) {
  const Parts part = {PartOf(dtype, received)};
  return {CollectiveKind::kReduceScatter, op, dtype, 0, PartsOf(dtype, sent), part};
}

// Returns the array that worker `from` sends to worker `to` in a round.
Array BytesOf(int from, int to, int round, size_t bytes) {
  Array array(bytes);
  std::iota(array.begin(), array.end(), static_cast<char>(31 * from + 7 * to + round));
  return array;
}

// Moves arrays that grow by `step` bytes with the number of their sender.
void CheckMoves(Session* session, int me, int workers, int round, size_t bytes, size_t step) {
  const auto make = [&](int from, int to) {
    return BytesOf(from, to, round, bytes + step * static_cast<size_t>(from));
  };
  Arrays all;
  Arrays sent;
  Arrays mine;
  Arrays received;
  for (int other = 0; other < workers; ++other) {
    all.push_back(make(other, 0));
    sent.push_back(make(me, other));
    mine.push_back(make(other, me));
    received.emplace_back(mine.back().size());
  }
  ASSERT_TRUE(IsOk(session->Move(Gather(DType::kInt8, &sent[0], &received))));
  ASSERT_EQ(received, all);
  ASSERT_TRUE(IsOk(session->Move(Exchange(DType::kInt8, &sent, &received))));
  ASSERT_EQ(received, mine);
  for (int root = 0; root < workers; ++root) {
    Array* const array = &received[static_cast<size_t>(root)];
    if (me == root) *array = make(root, 0);
    ASSERT_TRUE(IsOk(session->Move(Broadcast(DType::kInt8, root, me, workers, array))));
  }
  ASSERT_EQ(received, all);
}

TEST(Transfer, DoesNotOverwriteWhatASlowWorkerStillReads) {
  RunJob(AllOf(3), [](Session* session, int me) {
    for (int round = 0; round < 300; ++round) {
      const size_t count = round % 3 == 0 ? 5000 : 10;
      CheckMoves(session, me, 3, round, 2 * count, static_cast<size_t>(round % 2));
      for (const size_t size : {count, size_t{10}}) {
        std::vector<int32_t> sum(size, round + me);
        const auto elements = static_cast<int64_t>(size);
        ASSERT_TRUE(
            IsOk(session->Aggregate({ReduceOp::kSum, DType::kInt32, sum.data(), elements})));
        ASSERT_EQ(sum, std::vector<int32_t>(sum.size(), 3 * round + 3));
      }
    }
  });
}

TEST(Transfer, MovesArraysOfSeveralChunks) {
  constexpr auto kRoom = static_cast<size_t>(NodeMemory::kScratchAreaBytes);
  for (int workers = 1; workers <= 4; ++workers) {
    RunJob(AllOf(workers), [&](Session* session, int me) {
      for (const size_t bytes : {kRoom - 64, 3 * kRoom + 5}) {
        CheckMoves(session, me, workers, 0, bytes, 3);
      }
      // Only some workers know from their own arrays how many chunks there are.
      CheckMoves(session, me, workers, 0, 5, kRoom);
    });
  }
}

TEST(Transfer, ThatDoesNotFitIsAMismatchForAllAndTheSessionContinues) {
  RunJob(AllOf(3), [](Session* session, int me) {
    constexpr DType kType = DType::kInt16;
    Array array(20);
    Array other(40);
    Arrays arrays(3, array);
    Arrays others(3, other);
    const auto expect = [&](const Transfer::Call& call, const char* text) {
      EXPECT_TRUE(IsError(session->Move(call), Code::kMismatch, text));
      CheckMoves(session, me, 3, 0, 10, 1);
    };
    expect(me == 1 ? Gather(kType, &array, &arrays) : Broadcast(kType, 0, me, 3, &array),
           "rank 0 called broadcast, rank 1 called all_gather");
    expect(Broadcast(me == 2 ? DType::kUInt8 : kType, 0, me, 3, &array),
           "worker 0 called broadcast of 10 int16 of worker 0, worker 2 of 20 uint8 of worker 0");
    expect(Broadcast(kType, me == 1 ? 1 : 0, me, 3, &array),
           "worker 0 called broadcast of 10 int16 of worker 0, worker 1 of 10 int16 of worker 1");
    expect(Broadcast(kType, 0, me, 3, me == 1 ? &other : &array),
           "worker 0 called broadcast of 10 int16 of worker 0, worker 1 of 20 int16 of worker 0");
    expect(Gather(kType, me == 1 ? &other : &array, me == 1 ? &others : &arrays),
           "worker 0 called all_gather of 10 int16, worker 1 of 20 int16");
    expect(Scatter(me == 2 ? ReduceOp::kMax : ReduceOp::kSum, kType, &arrays, &array),
           "worker 0 called reduce_scatter of 10 int16, op sum, worker 2 of 10 int16, op max");
    expect(Scatter(ReduceOp::kSum, kType, &arrays, me == 2 ? &other : &array),
           "in reduce_scatter, worker 2 expected 20 elements from worker 0, which sent 10");
    if (me == 1) arrays[2] = other;
    expect(Exchange(me == 2 ? DType::kUInt8 : kType, &arrays, &others),
           "all_to_all of up to 20 int16, worker 2 of up to 40 uint8");
    Arrays received(3, array);
    expect(Exchange(kType, &arrays, &received),
           "in all_to_all, worker 2 expected 10 elements from worker 1, which sent 20");
  });
}

TEST(Transfer, ComparesTheSizesOfAMismatchBeforeAFastWorkerBeginsTheNextCall) {
  RunJob(AllOf(4), [](Session* session, int me) {
    for (int round = 0; round < 300; ++round) {
      Arrays received(4, Array(6));
      received[3].resize(4);
      Array sent(me == 3 ? 5 : 6);
      ASSERT_TRUE(IsError(session->Move(Gather(DType::kInt8, &sent, &received)), Code::kMismatch,
                          "worker 0 expected 4 elements from worker 3, which sent 5"));
      CheckMoves(session, me, 4, round, 4, 1);
    }
  });
}

// Calls body(call) for a call of each kind on two workers.
template <class Body>
void ForEachKind(int me, const Body& body) {
  Array array(8);
  Arrays sent(2, array);
  Arrays received(2, array);
  body(Broadcast(DType::kInt8, 0, me, 2, &array));
  body(Gather(DType::kInt8, &array, &received));
  body(Exchange(DType::kInt8, &sent, &received));
  body(Scatter(ReduceOp::kSum, DType::kInt8, &sent, &array));
}

TEST(Transfer, NamesTheMissingWorkerAtTheDeadlineOrWhenItLeaves) {
  ForEachKind(0, [](const Transfer::Call& call) {
    const std::string name = NameOf(call.kind);
    const auto late = OpenAll(2, std::chrono::milliseconds(200));
    EXPECT_TRUE(IsError(late[0]->Move(call), Code::kTimeout, "in " + name + " for rank 1"));
    const auto left = OpenAll(2);
    left[1]->Leave("it has had enough");
    EXPECT_TRUE(IsError(left[0]->Move(call), Code::kPeerLost, name, "rank 1", "had enough"));
  });
}

TEST(Transfer, IsForWorkersOnly) {
  RunJob({Role::kServer, Role::kWorker, Role::kAll}, [](Session* session, int rank) {
    if (rank == 0) {
      ForEachKind(0, [&](const Transfer::Call& call) {
        EXPECT_TRUE(IsError(session->Move(call), Code::kState, "this rank is a server"));
      });
      return;
    }
    CheckMoves(session, rank - 1, 2, 0, 100, 3);
  });
}

}  // namespace
}  // namespace multiverso::testing
