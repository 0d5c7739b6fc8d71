// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/gradient_state.h"
#include "lockstep/hash.h"
#include "lockstep/timeline.h"

namespace lockstep {

/// The arithmetic in which a parameter was replayed.
enum class Arithmetic { bfloat16, float16, float32, float64, prime61 };
std::string_view name_of(Arithmetic arithmetic);

struct HostOptions {
  /// Replay every element, whatever it costs. Otherwise, above 2·10⁹ element-steps, blocks around
  /// cuts and at places drawn with `seed`; and where the steps of all buffers together would take
  /// too long to plan, those of some buffers of each kind. A sample's cost is bounded.
  bool force_all = false;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: all cores
  bool hashes = true;  ///< without them HostBuffer and HostResult::reference have none
  /// On a GPU: at most so many elements of each buffer in its memory at once; 0: as many as fit.
  std::int64_t block_elements = 0;
  /// Called now and then with the elements done and the elements in all; from one thread at a time.
  std::function<void(std::int64_t done, std::int64_t all)> progress;
};

/// The host engine's finding for one buffer of one rank.
struct HostBuffer {
  int rank = 0;
  int buffer = 0;
  bool right = true;
  bool replayed = true;  ///< false: nothing of it was, and it only counts as right
  Arithmetic arithmetic = Arithmetic::float32;
  /// Hashes of the owned elements (of the replayed ones, where sampled) as they are and as one
  /// device has them.
  GradientHash hash, expected_hash;
};

struct HostResult {
  bool match = false;
  int step = 0;                     ///< the first wrong optimizer step, else the last completed one
  std::vector<HostBuffer> buffers;  ///< every buffer of every rank, by rank and buffer, of that step
  /// By logical parameter: hash of the whole reference gradient (of its replayed elements).
  std::vector<GradientHash> reference;
  bool sampled = false;
  std::int64_t elements = 0, of = 0;  ///< replayed elements and all elements, summed over ranks
  /// Sentences for the user: a dtype that was too short, a parameter that had to be skipped.
  std::vector<std::string> notes;
};

/// Replays a timeline on integer-valued gradients that make every sum and quotient exact, block by
/// block on all cores; memory does not grow with the model. The reference is computed by a
/// separate, plain code path. Compares values only (not norms, not unowned elements).
HostResult run_host(const Schedule& schedule, const Timeline& timeline, const HostOptions& options = {});

}  // namespace lockstep
