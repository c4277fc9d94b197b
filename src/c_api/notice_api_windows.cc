// On Windows no process receives SIGTERM from another one, so there is nothing to ignore.
#include "multiverso/c_api.h"

int32_t MV_IgnoreNotice(int64_t /*parent*/) { return MV_OK; }
