// The shared libraries of this process, as the platform's loader knows them.
#ifndef MULTIVERSO_TRANSPORT_SHARED_LIBRARY_H_
#define MULTIVERSO_TRANSPORT_SHARED_LIBRARY_H_

#include <string>
#include <vector>

namespace multiverso {

// Returns the files of the MPI libraries that this process has loaded.
std::vector<std::string> LoadedMpis();

// Returns the usual file names of MPI libraries on this platform, the likeliest first.
std::vector<std::string> MpiNames();

// Returns null if the library cannot be opened. Handles are never closed.
void* OpenLibrary(const std::string& path);
// Returns null if the library is not loaded yet.
void* FindLoadedLibrary(const std::string& path);
// Returns null if the library has no such symbol.
void* SymbolOf(void* library, const char* name);

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_SHARED_LIBRARY_H_
