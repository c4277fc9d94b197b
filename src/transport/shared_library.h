// The shared libraries of this process, as the platform's loader knows them.
#ifndef MULTIVERSO_TRANSPORT_SHARED_LIBRARY_H_
#define MULTIVERSO_TRANSPORT_SHARED_LIBRARY_H_

#include <string>
#include <vector>

namespace multiverso {

// The files of the MPI libraries that are loaded.
std::vector<std::string> LoadedMpis();

// What an MPI library is called here, the likeliest first.
std::vector<std::string> MpiNames();

// Handles are never closed. Null if it cannot be opened.
void* OpenLibrary(const std::string& path);
// Returns null if it is not loaded yet.
void* FindLoadedLibrary(const std::string& path);
// Returns null if it has no such symbol.
void* SymbolOf(void* library, const char* name);

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_SHARED_LIBRARY_H_
