// An exchange with the servers of other nodes that transfers only what has changed since the last
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "shard/request.h"
#include "table/partition.h"
#include "table/table_spec.h"

namespace multiverso {

// Returns whether ExchangeChanges does what an exchange of all rows would: the updater ignores
// zeros, and has no state.
bool MayExchangeChanges(const TableSpec& spec);

// Runs a Request::Exchange for the whole table. Rows that this worker has changed are exchanged.
// Rows that only others have changed are got. `exchange.since` points to the version of the last
// exchange, or to 0 before the first, and gets the version of this one.
//
// If this worker has changed most rows, all are exchanged, and the servers are not asked what else
// has changed. `list` lists the rows that have changed in the table (Table::ListChanges). `run`
// runs a request on the given rows; an empty list means all rows.
Status ExchangeChanges(
    const TableSpec& spec, const Request& exchange,
    const std::function<Result<int64_t>(int64_t since, std::vector<RowRange>* rows)>& list,
    const std::function<Status(const Request& request, const std::vector<RowRange>& rows)>& run);

}  // namespace multiverso
