#include "saves/negotiation.h"

#include <algorithm>
#include <cstring>

#include "base/crc.h"
#include "base/text.h"
#include "group/group.h"

namespace multiverso {
namespace {

// As many as fit into an exchange slot, with one bit each.
constexpr int64_t kTablesPerExchange = 8 * 320;

struct CallProposal {
  uint32_t folder_crc = 0;
  uint8_t in_background = 0;
  uint8_t missing_ok = 0;
  uint8_t incremental = 0;
  uint8_t unused = 0;
  int64_t step = 0;
  int64_t keep = 0;
  int64_t table = 0;
  char folder[128] = {};  // the end of the path, for messages
  unsigned char has_table[kTablesPerExchange / 8] = {};
};

static_assert(sizeof(CallProposal) <= ExchangeSlot::kMaxBytes);

CallProposal ReadProposal(const Group& world, int rank) {
  return world.payload(rank).Read<CallProposal>();
}

bool Has(const CallProposal& proposal, int64_t bit) {
  return (proposal.has_table[bit / 8] >> (bit % 8) & 1) != 0;
}

std::string Describe(const CallProposal& request) {
  std::string text = StrCat("'", request.folder, "'");
  if (request.table >= 0) text += StrCat(", table number ", request.table);
  if (request.step >= 0) text += StrCat(", step ", request.step);
  if (request.keep > 0) text += StrCat(", keep ", request.keep);
  if (request.in_background != 0) text += ", in the background";
  if (request.incremental != 0) text += ", incremental";
  return text + (request.missing_ok != 0 ? ", missing_ok" : "");
}

bool IsSame(const CallProposal& a, const CallProposal& b) {
  return a.folder_crc == b.folder_crc && a.in_background == b.in_background &&
         a.missing_ok == b.missing_ok && a.incremental == b.incremental && a.step == b.step &&
         a.keep == b.keep && a.table == b.table;
}

CallProposal ProposalOf(const AgreedCall& request) {
  CallProposal proposal;
  const std::string& folder = request.folder;
  proposal.folder_crc = Crc32c(folder.data(), static_cast<int64_t>(folder.size()));
  proposal.in_background = request.in_background ? 1 : 0;
  proposal.missing_ok = request.missing_ok ? 1 : 0;
  proposal.incremental = request.incremental ? 1 : 0;
  proposal.step = request.step;
  proposal.keep = request.keep;
  proposal.table = request.table;
  constexpr size_t kMaxLength = sizeof(proposal.folder) - 1;
  CopyText(proposal.folder,
           folder.substr(folder.size() > kMaxLength ? folder.size() - kMaxLength : 0));
  return proposal;
}

Status Compare(const Group& world, CollectiveKind kind) {
  const std::vector<int> participants = world.participants();
  const int first_rank = participants.front();
  const CallProposal expected = ReadProposal(world, first_rank);
  for (const int rank : participants) {
    const CallProposal other = ReadProposal(world, rank);
    if (IsSame(expected, other)) continue;
    return world.Mismatch(StrCat("the ranks did not make the same call: rank ", first_rank,
                                 " called ", NameOf(kind), " of ", Describe(expected), ", rank ",
                                 rank, " of ", Describe(other)));
  }
  return Status::Ok();
}

template <class Predicate>
void RemoveIf(Tables* tables, Predicate predicate) {
  tables->erase(std::remove_if(tables->begin(), tables->end(), predicate), tables->end());
}

}  // namespace

Result<Tables> Negotiate(RankContext* context, CollectiveKind kind, const AgreedCall& request,
                         Tables tables, int64_t num_created, const WaitLimit& limit) {
  Group* const world = context->world();
  CallProposal proposal = ProposalOf(request);
  int64_t first_table = 0;  // of this exchange
  do {
    // Negative for tables that another exchange covers.
    const auto bit_of = [first_table](const std::shared_ptr<Table>& table) {
      const int64_t bit = table->id() - first_table;
      return bit < kTablesPerExchange ? bit : -1;
    };
    std::memset(proposal.has_table, 0, sizeof(proposal.has_table));
    for (const auto& table : tables) {
      const int64_t bit = bit_of(table);
      if (bit >= 0) proposal.has_table[bit / 8] |= static_cast<unsigned char>(1U << (bit % 8));
    }
    MV_RETURN_IF_NOT_OK(world->Allgather(kind, Status::Ok(), limit, &proposal, sizeof(proposal)));
    MV_RETURN_IF_NOT_OK(Compare(*world, kind));
    for (const int rank : world->participants()) {
      const CallProposal other = ReadProposal(*world, rank);
      RemoveIf(&tables, [&](const std::shared_ptr<Table>& table) {
        const int64_t bit = bit_of(table);
        return bit >= 0 && !Has(other, bit);
      });
    }
    first_table += kTablesPerExchange;
  } while (first_table < num_created);
  if (request.table >= 0) {
    RemoveIf(&tables, [&](const auto& table) { return table->id() != request.table; });
  }
  return tables;
}

}  // namespace multiverso
