// AgreedOptions: the options of a session that all its ranks must give alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/supported.h"
#include "multiverso/constants.h"

namespace multiverso {

// The consistency mode of a session.
enum class Mode : int32_t { kAsync = MV_MODE_ASYNC, kSync = MV_MODE_SYNC, kStale = MV_MODE_STALE };

struct ModeOptions {
  Mode mode = Mode::kAsync;
  int64_t staleness = 0;  // in kStale: how many rounds a worker may be ahead of the slowest

  // Returns whether adds are summed in rounds, whose sums all workers see at the same time.
  // Tables, checkpoints and readers ask this instead of the mode.
  bool sums_in_rounds() const { return mode == Mode::kSync; }
  // Returns a name for messages.
  std::string Name() const;
  // Returns the mode, for CheckSupported.
  FeatureSet features() const;
};

// Whether a session ends when a rank is lost, or continues without the rank. The values are those
// of the C API (MV_LOSS_FAILS, ...).
enum class OnLoss : int32_t { kFail = MV_LOSS_FAILS, kContinue = MV_LOSS_CONTINUES };

// Ranks send these to each other as bytes.
struct AgreedOptions {
  ModeOptions mode;
  OnLoss on_loss = OnLoss::kFail;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  // of a call
  // Of waits for ranks of which nothing has been heard: in the opening, and at the end of the
  // process.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(2);
  // How long a rank may send no heartbeat before the others treat the rank as lost.
  std::chrono::milliseconds peer_timeout{30000};
  bool is_elastic = false;    // whether ranks may join later
  bool saves_at_end = false;  // whether ranks that leave together save before
  int32_t on_term = 0;        // an MV_TERM_ of the C API
  int32_t max_workers = 0;    // of an elastic session, at the same time; 0 for no bound
  char name[64] = {};         // by which readers find the session; empty for none

  // Returns what the session uses besides its mode, for CheckSupported.
  FeatureSet features() const;
  // Returns a mismatch that names the first option in which the options of two ranks differ, with
  // who has which value.
  Status Compare(const std::string& who, const AgreedOptions& other,
                 const std::string& other_who) const;
};

// Returns a timeout for messages, such as "500 ms".
std::string MillisecondsText(std::chrono::milliseconds timeout);

}  // namespace multiverso
