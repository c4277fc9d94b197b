#include "engine/raw_call.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

namespace sim {

void* FindInLibrary(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found != nullptr) return found;
  fprintf(stderr, "simulation: the C library has no function %s\n", name);
  abort();
}

}  // namespace sim
