#include "remote/shard_service.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "group/control_channel.h"
#include "support/jobs.h"

namespace multiverso::testing {
namespace {

// Sends the header of a get to rank 1. Returns ok if all values arrive, and otherwise the status in
// the Reply that rank 1 sends instead.
Status SendGet(Messenger* messenger, const RequestHeader& header) {
  std::vector<char> values(static_cast<size_t>(header.bytes));
  Messenger::Ticket ticket;
  MV_RETURN_IF_NOT_OK(messenger->Receive(1, header.tag, values.data(), header.bytes, &ticket));
  MV_RETURN_IF_NOT_OK(messenger->Post(1, kRequestTag, EncodeRequest(header)));
  int64_t received = 0;
  for (bool done = false; !done;) {
    messenger->Advance();
    MV_RETURN_IF_NOT_OK(messenger->Test(&ticket, &done, &received));
    std::this_thread::yield();
  }
  if (received == header.bytes) return Status::Ok();
  std::string bytes;
  for (bool got = false; !got;) {
    MV_RETURN_IF_NOT_OK(messenger->Take(1, ErrorTag(header.tag), sizeof(Reply), &bytes, &got));
  }
  Reply error;
  std::memcpy(&error, bytes.data(), sizeof(error));
  EXPECT_EQ(error.call, header.call);
  return error.status();
}

TEST(ShardService, RejectsRequestsThatDoNotFitTheTable) {
  RunSpanningJob(AllOf(2), /*ranks_per_node=*/1, /*delay=*/0, 1, [&](Session* session, int rank) {
    // Rank 1 serves elements 5 000 to 9 999.
    ASSERT_TRUE(IsOk(Create(session, ArrayOf(10'000))));
    if (rank == 0) {
      Messenger* const messenger = session->context()->control_channel()->messenger();
      RequestHeader header;
      header.kind = RequestKind::kGet;
      header.tag = kLastCallTag;
      header.call = 7;
      header.table = 0;
      header.first = 5'000;
      header.count = 5;
      header.bytes = 20;
      EXPECT_TRUE(SendGet(messenger, header).ok());
      // Element 4 999 belongs to rank 0, 9 996 + 5 exceeds the table, and INT64_MAX + 5 overflows.
      for (const int64_t first : {int64_t{4'999}, int64_t{9'996}, INT64_MAX}) {
        header.first = first;
        EXPECT_EQ(SendGet(messenger, header).code(), Code::kTransport) << first;
      }
      header.first = 5'000;
      header.bytes = 24;  // of 5 elements of 4 bytes
      EXPECT_EQ(SendGet(messenger, header).code(), Code::kTransport);
      header.bytes = 20;
      header.version = INT64_MAX;  // The versions after it would overflow.
      EXPECT_EQ(SendGet(messenger, header).code(), Code::kTransport);
      header.version = 0;
      header.table = 77;  // does not exist
      EXPECT_EQ(SendGet(messenger, header).code(), Code::kTransport);
    }
    ASSERT_TRUE(Barrier(session).ok());
  });
}

TEST(ShardService, DropsGarbageAndContinues) {
  RunSpanningJob(AllOf(2), /*ranks_per_node=*/1, /*delay=*/2, 2, [&](Session* session, int rank) {
    Table* const table = ValueOf(Create(session, ArrayOf(10'000, DType::kInt64)));
    setenv("MULTIVERSO_LOG", "off", 1);  // hides the warning of an invalid message
    ControlChannel* const control_channel = session->context()->control_channel();
    if (rank == 0) {
      std::mt19937_64 random(3);
      for (int i = 0; i < 200; ++i) {
        std::string bytes(random() % 200, '\0');
        for (char& byte : bytes) byte = static_cast<char>(random());
        const int tag = i % 3 == 0 ? kControlTag : kRequestTag;
        ASSERT_TRUE(control_channel->messenger()->Post(1, tag, bytes).ok());
      }
    }
    ASSERT_TRUE(Barrier(session).ok());
    std::vector<int64_t> ones(10'000, 1);
    ASSERT_TRUE(Call(table, Request::Add(ones.data())).ok());
    ASSERT_TRUE(Barrier(session).ok());
    std::vector<int64_t> out(10'000);
    ASSERT_TRUE(Call(table, Request::Get(out.data())).ok());
    EXPECT_EQ(out, std::vector<int64_t>(10'000, 2));
    EXPECT_EQ(control_channel->invalid_messages() > 0, rank == 1);
    ASSERT_TRUE(Barrier(session).ok());
  });
  unsetenv("MULTIVERSO_LOG");
}

TEST(ShardService, KeepsATableUntilEveryNodeHasReleasedIt) {
  RunSpanningJob(AllOf(4), /*ranks_per_node=*/2, /*delay=*/2, 4, [&](Session* session, int rank) {
    Table* const table = ValueOf(Create(session, ArrayOf(10'000)));
    ShardService* const service = table->service();
    if (rank < 3) session->ReleaseTable(table);
    ASSERT_TRUE(Barrier(session).ok());
    EXPECT_EQ(service->num_tables(), 1U);  // rank 3 has not released the table
    ASSERT_TRUE(Barrier(session).ok());
    if (rank == 3) {
      std::vector<float> out(10'000);
      ASSERT_TRUE(Call(table, Request::Get(out.data())).ok());
      session->ReleaseTable(table);
    }
    EXPECT_TRUE(Eventually([&] { return service->num_tables() == 0; }));
    ASSERT_TRUE(Barrier(session).ok());
  });
}

}  // namespace
}  // namespace multiverso::testing
