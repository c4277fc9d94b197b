// get(sync=True): all workers get the same bits, with every earlier add included.
#ifndef MULTIVERSO_TABLE_COLLECTIVE_GET_H_
#define MULTIVERSO_TABLE_COLLECTIVE_GET_H_

#include "base/clock.h"
#include "base/status.h"
#include "shard/request.h"
#include "table/table.h"

namespace multiverso {

// The workers wait for each other, read, and wait again: no worker adds in between. The request has
// been checked.
Status CollectiveGet(Table* table, const Request& get, const WaitLimit& limit);

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_COLLECTIVE_GET_H_
