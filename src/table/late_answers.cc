#include "table/late_answers.h"

#include <algorithm>
#include <utility>

#include "table/request_message.h"

namespace multiverso {

LateAnswers::~LateAnswers() {
  for (UnansweredCall& call : calls_) {
    for (auto arrival = call.arrivals.begin(); arrival != call.arrivals.end();) {
      const auto next = std::next(arrival);
      // The transport may still write to the bytes, so they are leaked rather than freed.
      if (messenger()->Withdraw(&arrival->ticket) == Messenger::Withdrawn::kArriving) {
        auto* const kept = new std::list<Arrival>;  // NOLINT: see above
        kept->splice(kept->end(), call.arrivals, arrival);
      }
      arrival = next;
    }
  }
}

void LateAnswers::Finish(std::vector<Part> parts) {
  UnansweredCall call{std::move(parts), {}};
  const bool any_missing = std::any_of(call.parts.begin(), call.parts.end(),
                                       [](const Part& part) { return part.missing > 0; });
  if (!any_missing) return Free(call);
  const std::lock_guard<std::mutex> guard(mutex_);
  calls_.push_back(std::move(call));
  any_.store(true);
}

void LateAnswers::Poll() {
  if (!any_.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  for (auto call = calls_.begin(); call != calls_.end();) {
    const bool is_over = Receive(&*call);
    if (is_over) Free(*call);
    call = is_over ? calls_.erase(call) : std::next(call);
  }
  any_.store(!calls_.empty());
}

bool LateAnswers::Receive(UnansweredCall* call) {
  bool is_over = true;
  for (Part& part : call->parts) {
    // A server whose end is recorded gets no further requests, so what it still answers meets no
    // other call.
    const RankSlot& server = rank_context_->memory()->slot(part.server);
    if (part.missing > 0 && server.state.load(std::memory_order_acquire) != RankSlot::kAbsent) {
      part.missing = 0;
      part.slot = -1;  // the server may still work on a request with one of the slot's numbers
    }
    for (bool got = true; got && part.missing > 0;) {
      Arrival& arrival = call->arrivals.emplace_back();
      const Status accepted = messenger()->Accept(part.server, part.tag, kMostAnswerBytes,
                                                  &arrival.bytes, &arrival.ticket, &got);
      got = got && accepted.ok();
      if (!got || !arrival.ticket.is_open) call->arrivals.pop_back();
      if (got) --part.missing;
    }
    is_over = is_over && part.missing == 0;
  }
  for (auto arrival = call->arrivals.begin(); arrival != call->arrivals.end();) {
    bool done = false;
    int64_t bytes = 0;
    const Status received = messenger()->Test(&arrival->ticket, &done, &bytes);
    arrival = done || !received.ok() ? call->arrivals.erase(arrival) : std::next(arrival);
  }
  return is_over && call->arrivals.empty();
}

void LateAnswers::Free(const UnansweredCall& call) {
  ControlChannel* const channel = rank_context_->control_channel();
  std::vector<int> tags;
  for (const Part& part : call.parts) {
    if (part.slot >= 0) channel->numbers()->GiveBack(part.node, part.slot);
    tags.push_back(part.tag);
  }
  // The parts may share a tag, which another call may take as soon as it is free.
  std::sort(tags.begin(), tags.end());
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  for (const int tag : tags) channel->tags()->GiveBack(tag);
}

}  // namespace multiverso
