// get(sync=True): all workers get the same bits, with every add before it.
#ifndef MULTIVERSO_TABLE_COLLECTIVE_GET_H_
#define MULTIVERSO_TABLE_COLLECTIVE_GET_H_

#include "base/clock.h"
#include "base/status.h"
#include "shard/request.h"
#include "table/table.h"

namespace multiverso {

// Runs a checked get between two barriers of the workers, so that no worker adds meanwhile.
Status CollectiveGet(Table* table, const Request& get, const WaitLimit& limit);

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_COLLECTIVE_GET_H_
