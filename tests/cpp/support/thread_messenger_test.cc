#include "support/thread_messenger.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

namespace multiverso {
namespace {

bool IsOver(Messenger* messenger, Messenger::Ticket* ticket) {
  bool done = false;
  int64_t bytes = 0;
  EXPECT_TRUE(messenger->Test(ticket, &done, &bytes).ok());
  return done;
}

TEST(ThreadMessenger, KeepsTheOrderPerSenderAndTagOnly) {
  const auto room = std::make_shared<MailRoom>(/*ranks=*/2, /*delay=*/5, /*seed=*/1);
  ThreadMessenger sender(room, 0);
  ThreadMessenger receiver(room, 1);
  constexpr int kMessages = 50;
  std::vector<int> sent(2 * kMessages);
  std::iota(sent.begin(), sent.end(), 0);
  std::vector<Messenger::Ticket> tickets(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    const int tag = kFirstCallTag + sent[i] % 2;
    ASSERT_TRUE(sender.Send(1, tag, &sent[i], sizeof(int), &tickets[i]).ok());
  }
  int next[2] = {0, 1};
  bool overtaken = false;
  while (next[0] < 2 * kMessages || next[1] < 2 * kMessages) {
    for (int stream = 0; stream < 2; ++stream) {
      std::string bytes;
      bool is_found = false;
      ASSERT_TRUE(
          receiver.Take(Messenger::kAnyRank, kFirstCallTag + stream, 4, &bytes, &is_found).ok());
      if (!is_found) continue;
      EXPECT_EQ(*reinterpret_cast<const int*>(bytes.data()), next[stream]);
      next[stream] += 2;
      overtaken = overtaken || next[1] < next[0] - 1 || next[0] < next[1] - 1;
    }
  }
  EXPECT_TRUE(overtaken);
  for (Messenger::Ticket& ticket : tickets) EXPECT_TRUE(IsOver(&sender, &ticket));
}

}  // namespace
}  // namespace multiverso
