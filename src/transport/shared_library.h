// Shared libraries at run time: which MPI is loaded, how to load one, and the addresses of symbols.
#ifndef MULTIVERSO_TRANSPORT_SHARED_LIBRARY_H_
#define MULTIVERSO_TRANSPORT_SHARED_LIBRARY_H_

#include <string>
#include <vector>

namespace multiverso {

// Returns the paths of the MPI libraries that this process has loaded.
std::vector<std::string> LoadedMpiLibraries();

// Returns the usual file names of MPI libraries on this platform, the most likely first.
std::vector<std::string> MpiLibraryNames();

// Returns null if the library cannot be opened. Handles are never closed.
void* OpenLibrary(const std::string& path);
// Returns null if the library is not loaded yet.
void* FindLoadedLibrary(const std::string& path);
// Returns null if the library has no such symbol.
void* SymbolOf(void* library, const char* name);

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_SHARED_LIBRARY_H_
