// The name of a checkpoint's folder, and its manifest. Reading refuses increments of 0.2.0.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "checkpoint/file_system.h"
#include "checkpoint/format.h"

namespace multiverso {

constexpr char kManifestName[] = "manifest.mv";

struct CheckpointName {
  int64_t number = 0;  // place in the order of saving
  int64_t step = 0;    // the user's count

  std::string text() const;
  // Returns false if `text` is not the name of a checkpoint.
  static bool Parse(const std::string& text, CheckpointName* name);
};

// Returns the path of the manifest of a checkpoint, of which `checkpoint` is the path.
std::string ManifestPath(const std::string& checkpoint);
// Reads the manifest of a checkpoint. `bytes`, unless null, gets the size of the file. Returns
// CheckpointCorruptError if the folder has the name of another checkpoint.
Result<Manifest> ReadManifest(FileSystem* files, const std::string& checkpoint,
                              int64_t* bytes = nullptr);

}  // namespace multiverso
