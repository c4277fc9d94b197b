#include "session/publishing.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/failpoint.h"
#include "base/text.h"
#include "calls/publication.h"
#include "memory/futex.h"
#include "node/buffer_pins.h"

namespace multiverso {

Result<int64_t> Publish(RankContext* context, int64_t step, Tables tables, int64_t num_created,
                        const WaitLimit& limit) {
  Group* const world = context->world();
  const Membership& members = context->members();
  NodeControl* const control = context->memory()->control();
  const uint64_t number = control->published.load() + 1;
  AgreedCall request;
  request.step = step;
  MV_ASSIGN_OR_RETURN(Tables covered, Negotiate(context, CollectiveKind::kPublish, request,
                                                std::move(tables), num_created, limit));
  for (const auto& table : covered) {
    MV_RETURN_IF_NOT_OK(
        CheckSupported(table->features().With(Feature::kPublish))
            .In(StrCat("rank ", members.rank(), ", table '", table->spec().name, "'")));
  }
  const std::vector<int> copiers = world->participants();
  const std::vector<int> here = world->participants_here();
  Status status;
  for (const auto& table : covered) {
    if (status.ok()) status = table->consistency()->Settle(limit);
  }
  int32_t buffer = -1;  // which the first rank of each node chooses
  if (status.ok() && members.rank() == here.front()) {
    status = TakeBuffer(control, context->memory()->segment().fd()).StoreIn(&buffer);
    (void)MV_FAILPOINT("publish.chosen");
  }
  // After this allgather, all nodes have applied the rounds. No rank changes a buffer before.
  MV_RETURN_IF_NOT_OK(world->Agree(CollectiveKind::kPublish, status, copiers,
                                   " before it had applied the rounds", limit, &buffer,
                                   sizeof(buffer)));
  buffer = world->payload(here.front()).Read<int32_t>();
  const auto share = std::find(here.begin(), here.end(), members.rank()) - here.begin();
  std::vector<Publication> publications;
  for (const auto& table : covered) {
    publications.emplace_back(table.get(), number, buffer);
    if (status.ok()) {
      status =
          publications.back().Copy(static_cast<int>(share), static_cast<int>(here.size()), limit);
    }
  }
  MV_RETURN_IF_NOT_OK(world->Agree(CollectiveKind::kPublish, status, copiers,
                                   " before it had copied the tables", limit));
  // Every rank does this, since one of them may die before it. All ranks of the node have copied to
  // the same buffers, and no later publication begins before this rank takes part in it. All nodes
  // complete the same publications, so the numbers agree.
  if (control->published.load() < number) {
    for (Publication& publication : publications) publication.Complete();
    (void)MV_FAILPOINT("publish.complete");
    control->content_of(/*is_lazy=*/false, buffer).store(number);
    control->content_of(/*is_lazy=*/true, static_cast<int>(number % 2)).store(number);
    control->steps[number % 2].store(step);
    control->published.store(number);
    // After `published`, since a reader that has seen the new word sleeps until the next one.
    control->publications.store(static_cast<uint32_t>(number));
    WakeWord(&control->publications, kWakeAll);
  }
  return static_cast<int64_t>(number);
}

}  // namespace multiverso
