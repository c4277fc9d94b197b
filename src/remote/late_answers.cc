#include "remote/late_answers.h"

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

void LateAnswers::Finish(int tag, std::vector<Part> parts) {
  UnansweredCall call{tag, std::move(parts), {}};
  const bool any_missing = std::any_of(call.parts.begin(), call.parts.end(),
                                       [](const Part& part) { return part.missing > 0; });
  if (!any_missing) return Free(tag);
  const std::lock_guard<std::mutex> guard(mutex_);
  calls_.push_back(std::move(call));
  any_.store(true);
}

void LateAnswers::Poll() {
  if (!any_.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  for (auto call = calls_.begin(); call != calls_.end();) {
    const bool is_over = Receive(&*call);
    if (is_over) Free(call->tag);
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
    }
    for (bool got = true; got && part.missing > 0;) {
      Arrival& arrival = call->arrivals.emplace_back();
      const Status accepted = messenger()->Accept(part.server, call->tag, kMostAnswerBytes,
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

}  // namespace multiverso
