// get(sync=True): all workers get the same bits, with every earlier add included.
#ifndef MULTIVERSO_TABLE_COLLECTIVE_GET_H_
#define MULTIVERSO_TABLE_COLLECTIVE_GET_H_

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "table/table.h"

namespace multiverso {

// The workers wait for each other, read, and wait again: no worker adds in between. The arguments
// have been checked. `row_ids` is null for the whole table.
Status CollectiveGet(Table* table, const int64_t* row_ids, int64_t num_ids, void* out,
                     const WaitLimit& limit);

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_COLLECTIVE_GET_H_
