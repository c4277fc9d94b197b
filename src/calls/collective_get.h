// get(sync=True): all workers get the same bits, with every earlier add included.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "calls/table.h"
#include "shard/request.h"

namespace multiverso {

// Runs a checked get. The workers wait for each other before the get, so that it includes all
// earlier adds, and after the get, so that no worker adds before all workers have read.
Status CollectiveGet(Table* table, const Request& get, const WaitLimit& limit);

}  // namespace multiverso
