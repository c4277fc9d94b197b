#include "group/late_inquiry.h"

#include <algorithm>

namespace multiverso {
namespace {

constexpr auto kAnswerTimeout = std::chrono::seconds(1);

}  // namespace

LateInquiry::LateInquiry(ControlChannel* channel, int group, uint64_t sequence)
    : channel_(channel),
      group_(group),
      sequence_(sequence),
      deadline_(Clock::now() + kAnswerTimeout) {
  const Membership& members = channel->members();
  for (int node = 0; node < members.num_nodes(); ++node) {
    if (node == members.node()) continue;
    unanswered_nodes_.push_back(node);
    channel->SendTo(node, LateQuestion(group, sequence, members));
  }
}

bool LateInquiry::Collect() {
  Messenger* const messenger = channel_->messenger();
  const int size = channel_->members().size();
  messenger->Advance();
  for (bool got = true; got;) {
    std::string bytes;
    const Status taken =
        messenger->Take(Messenger::kAnyRank, kAnswerTag, MaxLateAnswerBytes(size), &bytes, &got);
    if (!taken.ok() || !got) break;
    const LateAnswer answer = ReadLateAnswer(bytes, size);
    // An answer to an earlier question may still arrive, and is ignored.
    if (answer.group != group_ || answer.sequence != sequence_) continue;
    const auto end = unanswered_nodes_.end();
    const auto found = std::find(unanswered_nodes_.begin(), end, answer.node);
    if (found == end) continue;
    unanswered_nodes_.erase(found);
    last_calls_.insert(answer.last_calls.begin(), answer.last_calls.end());
  }
  return unanswered_nodes_.empty();
}

std::string LateInquiry::LastCallOf(int rank) const {
  const auto found = last_calls_.find(rank);
  return found == last_calls_.end() ? "" : found->second;
}

}  // namespace multiverso
