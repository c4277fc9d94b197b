#include "sum/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <type_traits>
#include <utility>

#include "shard/half.h"
#include "support/jobs.h"

namespace multiverso::testing {
namespace {

using Array = std::vector<char>;  // the bytes of the elements
using Arrays = std::vector<Array>;
using Parts = std::vector<Transfer::Part>;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64,  DType::kInt32, DType::kInt64,
                            DType::kFloat16, DType::kBFloat16, DType::kInt8,  DType::kInt16,
                            DType::kUInt8,   DType::kBool};
size_t Bytes(DType dtype, int64_t count) { return static_cast<size_t>(count * SizeOf(dtype)); }

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

// Returns the number of elements that one worker sends to another at a time.
int64_t SlotOf(CollectiveKind kind, int workers, DType dtype) {
  const bool has_slots =
      kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kReduceScatter;
  const int64_t room = NodeMemory::kScratchAreaBytes - 64;
  return room / (has_slots ? workers : 1) / 64 * 64 / SizeOf(ValueType(dtype));
}

std::vector<int64_t> SizesOf(CollectiveKind kind, int workers, DType dtype) {
  std::vector<int64_t> sizes = {0, 1, 17};
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16) return sizes;
  const int64_t slot = SlotOf(kind, workers, dtype);
  sizes.insert(sizes.end(), {slot - 1, slot, slot + 1, 3 * slot + 5, 3});
  return sizes;
}

// Large arrays repeat so many elements, which no chunk is a multiple of.
constexpr int64_t kPeriod = 1021;

// Returns `count` elements, which repeat those of the array.
Array Repeat(DType dtype, Array array, int64_t count) {
  const size_t period = array.size();
  array.resize(Bytes(dtype, count));
  for (size_t at = period; at < array.size(); at += period) {
    std::memcpy(array.data() + at, array.data(), std::min(period, array.size() - at));
  }
  return array;
}

// Returns the array that worker `from` sends to worker `to`.
Array Random(DType dtype, int from, int to, int64_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(from * 1000 + to * 10) + 1);
  Array array(Bytes(dtype, std::min(count, kPeriod)));
  for (char& byte : array) byte = static_cast<char>(random());
  return Repeat(dtype, std::move(array), count);
}

void CheckBroadcast(Session* session, int me, int workers, DType dtype, int64_t count) {
  for (int root = 0; root < workers; ++root) {
    Array array(Bytes(dtype, count));
    if (me == root) array = Random(dtype, root, 0, count);
    ASSERT_TRUE(IsOk(session->Move(Broadcast(dtype, root, me, workers, &array))));
    ASSERT_EQ(array, Random(dtype, root, 0, count)) << count << " elements of worker " << root;
  }
}

void CheckGather(Session* session, int me, int workers, DType dtype, int64_t count, int64_t step) {
  Arrays expected;
  Arrays received;
  for (int from = 0; from < workers; ++from) {
    expected.push_back(Random(dtype, from, 0, count + from * step));
    received.emplace_back(expected.back().size());
  }
  Array* const mine = &received[static_cast<size_t>(me)];
  Array sent = expected[static_cast<size_t>(me)];
  ASSERT_TRUE(IsOk(session->Move(Gather(dtype, &sent, &received))));
  ASSERT_EQ(received, expected) << count << " elements, then " << step << " more for each worker";
  for (Array& array : received) {
    if (&array != mine) std::fill(array.begin(), array.end(), 0);
  }
  ASSERT_TRUE(IsOk(session->Move(Gather(dtype, mine, &received))));
  ASSERT_EQ(received, expected) << count << " elements in place";
  // What a worker sends may also be where it receives from another one.
  if (step != 0) return;
  const auto other = static_cast<size_t>((me + 1) % workers);
  std::copy(expected[static_cast<size_t>(me)].begin(), expected[static_cast<size_t>(me)].end(),
            received[other].begin());
  Transfer::Call call = Gather(dtype, mine, &received);
  call.sent[0].data = received[other].data();
  ASSERT_TRUE(IsOk(session->Move(call)));
  ASSERT_EQ(received, expected) << count << " elements in the place of worker " << other;
}

void CheckExchange(Session* session, int me, int workers, DType dtype, int64_t count,
                   int64_t step) {
  const auto size = [&](int from, int to) { return count + step * ((from + 2 * to) % 4); };
  Arrays sent;
  Arrays received;
  Arrays expected;
  for (int other = 0; other < workers; ++other) {
    sent.push_back(Random(dtype, me, other, size(me, other)));
    expected.push_back(Random(dtype, other, me, size(other, me)));
    received.emplace_back(expected.back().size());
  }
  const Arrays before = sent;
  ASSERT_TRUE(IsOk(session->Move(Exchange(dtype, &sent, &received))));
  ASSERT_EQ(received, expected) << count << " elements, or more by multiples of " << step;
  ASSERT_EQ(sent, before);
}

TEST(Transfer, MovesArraysOfAnySizeAndType) {
  for (int workers = 1; workers <= 4; ++workers) {
    RunJob(AllOf(workers), [&](Session* session, int me) {
      for (const DType dtype : kTypes) {
        for (const int64_t count : SizesOf(CollectiveKind::kAllGather, workers, dtype)) {
          CheckBroadcast(session, me, workers, dtype, count);
          for (const int64_t step : {0, 3}) CheckGather(session, me, workers, dtype, count, step);
        }
        for (const int64_t count : SizesOf(CollectiveKind::kAllToAll, workers, dtype)) {
          for (const int64_t step : {0, 3}) CheckExchange(session, me, workers, dtype, count, step);
        }
        // Only some workers know from their own arrays how many chunks there are.
        const int64_t slot = SlotOf(CollectiveKind::kAllToAll, workers, dtype);
        CheckExchange(session, me, workers, dtype, 5, slot);
      }
    });
  }
}

template <class V>
V Load(DType dtype, const Array& array, int64_t i) {
  V value;
  const char* const from = array.data() + i * SizeOf(dtype);
  if constexpr (std::is_same_v<V, float>) {
    if (IsHalf(dtype)) {
      half::ToFloat(dtype, reinterpret_cast<const uint16_t*>(from), 1, &value);
      return value;
    }
  }
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <class V>
void Store(DType dtype, V value, Array* array, int64_t i) {
  char* const to = array->data() + i * SizeOf(dtype);
  if constexpr (std::is_same_v<V, float>) {
    if (IsHalf(dtype)) {
      return half::RoundToNearest(dtype, &value, 1, reinterpret_cast<uint16_t*>(to));
    }
  }
  std::memcpy(to, &value, sizeof(value));
}

// Returns what worker `from` sends to worker `to`. The sums of these floats depend on their order.
template <class V>
Array Terms(DType dtype, int from, int to, int64_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(from * 1000 + to * 10) + 1);
  Array array(Bytes(dtype, std::min(count, kPeriod)));
  for (int64_t i = 0; i < std::min(count, kPeriod); ++i) {
    const uint64_t bits = random() >> 40;
    if constexpr (std::is_integral_v<V>) {
      Store(dtype, static_cast<V>(std::is_same_v<V, bool> ? bits % 2 : bits % 16 + 1), &array, i);
    } else {
      Store(dtype, static_cast<V>(bits) / 3000 - 2500, &array, i);
    }
  }
  return Repeat(dtype, std::move(array), count);
}

template <class V>
V Combine(ReduceOp op, V a, V b) {
  if (op == ReduceOp::kProduct) return static_cast<V>(a * b);
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  if constexpr (std::is_integral_v<V>) {
    if (op == ReduceOp::kAnd) return static_cast<V>(a & b);
    if (op == ReduceOp::kOr) return static_cast<V>(a | b);
    if (op == ReduceOp::kXor) return static_cast<V>(a ^ b);
  }
  return static_cast<V>(a + b);
}

// Combines the values in the order of PairwiseSum.
template <class V>
V CombineAll(ReduceOp op, const std::vector<V>& values) {
  if (values.size() == 1) return values[0];
  size_t half = 1;
  while (2 * half < values.size()) half *= 2;
  const auto middle = values.begin() + static_cast<int64_t>(half);
  return Combine<V>(op, CombineAll<V>(op, {values.begin(), middle}),
                    CombineAll<V>(op, {middle, values.end()}));
}

template <class V>
void CheckScatter(Session* session, int me, int workers, DType dtype, ReduceOp op, int64_t count,
                  int64_t step) {
  Arrays sent;
  Arrays terms;
  for (int other = 0; other < workers; ++other) {
    sent.push_back(Terms<V>(dtype, me, other, count + step * other));
    terms.push_back(Terms<V>(dtype, other, me, count + step * me));
  }
  const int64_t my_count = count + step * me;
  Array expected(Bytes(dtype, std::min(my_count, kPeriod)));
  for (int64_t i = 0; i < std::min(my_count, kPeriod); ++i) {
    std::vector<V> values;
    for (const Array& array : terms) values.push_back(Load<V>(dtype, array, i));
    V result = CombineAll(op, values);
    if (op == ReduceOp::kMean) result = static_cast<V>(result / static_cast<V>(workers));
    Store(dtype, result, &expected, i);
  }
  expected = Repeat(dtype, std::move(expected), my_count);
  Arrays after = sent;
  Array received(expected.size());
  ASSERT_TRUE(IsOk(session->Move(Scatter(op, dtype, &sent, &received))));
  ASSERT_EQ(received, expected) << NameOf(op) << " of " << count << " " << NameOf(dtype);
  ASSERT_EQ(sent, after);
  Array* const mine = &sent[static_cast<size_t>(me)];
  ASSERT_TRUE(IsOk(session->Move(Scatter(op, dtype, &sent, mine))));
  after[static_cast<size_t>(me)] = expected;
  ASSERT_EQ(sent, after) << NameOf(op) << " of " << count << " " << NameOf(dtype) << " in place";
  // The result may share a part of the memory of other sent elements.
  Arrays again;
  for (int other = 0; other < workers; ++other) {
    again.push_back(Terms<V>(dtype, me, other, count + step * other));
  }
  const auto place = static_cast<size_t>((me + 1) % workers);
  Array longer = again[place];
  const auto offset = static_cast<int64_t>(expected.size() / 2);
  longer.resize(longer.size() + 2 * expected.size());
  Transfer::Call call = Scatter(op, dtype, &again, &received);
  call.sent[place].data = longer.data();
  call.received[0].data = longer.data() + offset / SizeOf(dtype) * SizeOf(dtype);
  ASSERT_TRUE(IsOk(session->Move(call)));
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), call.received[0].data))
      << NameOf(op) << " of " << count << " " << NameOf(dtype) << " over sent elements";
}

template <class V>
void CheckScatterOf(Session* session, int me, int workers, DType dtype) {
  for (int32_t op = MV_OP_SUM; op <= MV_OP_XOR; ++op) {
    const auto wanted = static_cast<ReduceOp>(op);
    if (!IsDefined(wanted, dtype)) continue;
    CheckScatter<V>(session, me, workers, dtype, wanted, 17, 3);
  }
  for (const int64_t count : SizesOf(CollectiveKind::kReduceScatter, workers, dtype)) {
    const ReduceOp op = IsFloating(dtype) ? ReduceOp::kMean : ReduceOp::kSum;
    for (const int64_t step : {0, 3}) {
      CheckScatter<V>(session, me, workers, dtype, op, count, step);
    }
  }
}

TEST(Transfer, CombinesThePartsOfAllWorkersPairwise) {
  for (int workers = 1; workers <= 4; ++workers) {
    RunJob(AllOf(workers), [&](Session* session, int me) {
      CheckScatterOf<float>(session, me, workers, DType::kFloat32);
      CheckScatterOf<float>(session, me, workers, DType::kFloat16);
      CheckScatterOf<float>(session, me, workers, DType::kBFloat16);
      CheckScatterOf<double>(session, me, workers, DType::kFloat64);
      CheckScatterOf<int32_t>(session, me, workers, DType::kInt32);
      CheckScatterOf<int64_t>(session, me, workers, DType::kInt64);
      CheckScatterOf<int8_t>(session, me, workers, DType::kInt8);
      CheckScatterOf<int16_t>(session, me, workers, DType::kInt16);
      CheckScatterOf<uint8_t>(session, me, workers, DType::kUInt8);
      CheckScatterOf<bool>(session, me, workers, DType::kBool);
    });
  }
}

TEST(Transfer, DoesNotOverwriteWhatASlowWorkerStillReads) {
  RunJob(AllOf(3), [](Session* session, int me) {
    for (int round = 0; round < 300; ++round) {
      const int64_t count = round % 3 == 0 ? 5000 : 10;
      CheckGather(session, me, 3, DType::kInt16, count, round % 2);
      CheckExchange(session, me, 3, DType::kInt16, count, round % 2);
      for (const int64_t size : {count, int64_t{10}}) {
        std::vector<int32_t> sum(static_cast<size_t>(size), round + me);
        ASSERT_TRUE(IsOk(session->Aggregate({ReduceOp::kSum, DType::kInt32, sum.data(), size})));
        ASSERT_EQ(sum, std::vector<int32_t>(sum.size(), 3 * round + 3));
      }
      CheckBroadcast(session, me, 3, DType::kInt16, count);
    }
  });
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
      CheckGather(session, me, 3, kType, 10, 1);
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
      CheckGather(session, me, 4, DType::kInt8, 4, 1);
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
    CheckBroadcast(session, rank - 1, 2, DType::kInt32, 100);
    CheckGather(session, rank - 1, 2, DType::kInt32, 100, 3);
    CheckExchange(session, rank - 1, 2, DType::kInt32, 100, 3);
    CheckScatter<int32_t>(session, rank - 1, 2, DType::kInt32, ReduceOp::kSum, 100, 3);
  });
}

}  // namespace
}  // namespace multiverso::testing
