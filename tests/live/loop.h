// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/live.h"
#include "tests/live/recorded.h"

namespace lockstep::test {

/// One optimizer step of two parameters of 600 elements, "a" and "b", with lines between.
struct Loop {
  RunWriter::Settings settings;
  int micro_batches = 2;
  /// What a rank's optimizer gets of another's contribution.
  std::function<double(const std::string& name, int owner, int rank, int micro_batch)> coefficient =
      [](const std::string&, int, int, int) { return 0.5; };
  std::function<std::vector<std::string>(int rank, int micro_batch)> lines = [](int, int) {
    return std::vector<std::string>{};
  };                                 ///< after a backward pass
  std::vector<std::string> results;  ///< after the results
  std::vector<std::int64_t> cuts = {0, 600};
  /// Whether ranks along the mesh's last axis see the same tokens.
  bool replicated = false;
  bool shares = false;  ///< of it each rank has a share, although they see the same
  double noise = 0;     ///< in what the optimizers get of "b", and no rank contributes
  bool silent = false;  ///< no backward yields "b"

  Loop() { settings.collectives = true; }

  std::vector<double> gradient(int parameter, int rank, int micro_batch) const {
    const int source = replicated && !shares ? rank / settings.mesh.back().second : rank;
    const auto seed = [](int number) { return static_cast<std::uint64_t>(number); };
    return drawn(600, seed(parameter) * 1000 + seed(source) * 10 + seed(micro_batch) + 1);
  }

  void write(const std::string& folder) const {
    RunWriter writer(folder, settings);
    const std::vector<std::string> names = {"a", "b"};
    for (int p = 0; p < 2; ++p) writer.parameter(p, names[static_cast<std::size_t>(p)], 600, cuts);
    const int world = writer.world();
    for (int rank = 0; rank < world; ++rank) {
      for (int m = 0; m < micro_batches; ++m) {
        for (int p = 0; p < (silent ? 1 : 2); ++p) {
          const std::vector<double> values = gradient(p, rank, m);
          for (std::size_t piece = 0; piece + 1 < cuts.size(); ++piece)
            writer.contribution(rank, 0, m, p, static_cast<int>(piece), part(values, piece), cuts[piece]);
        }
        for (const std::string& line : lines(rank, m)) writer.line(rank, "{}", line);
      }
      for (int p = 0; p < 2; ++p) {
        std::vector<double> sum(600);
        for (int source = 0; source < world; ++source) {
          for (int m = 0; m < micro_batches; ++m) {
            const double factor = coefficient(names[static_cast<std::size_t>(p)], rank, source, m);
            const std::vector<double> values = gradient(p, source, m);
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = rounded(sum[i] + factor * values[i], Dtype::float32);
          }
        }
        const std::vector<double> foreign = drawn(600, 77);
        for (std::size_t i = 0; p == 1 && i < sum.size(); ++i)
          sum[i] = rounded(sum[i] + noise * foreign[i], Dtype::float32);
        for (std::size_t piece = 0; piece + 1 < cuts.size(); ++piece) {
          if (cuts.size() == 2 || static_cast<int>(piece) == rank)
            writer.result(rank, 0, p, static_cast<int>(piece), part(sum, piece), cuts[piece]);
        }
      }
      for (const std::string& line : results) writer.line(rank, "{}", line);
      writer.step(rank, 0, micro_batches);
    }
    writer.finish();
  }

  std::vector<double> part(const std::vector<double>& values, std::size_t piece) const {
    return {values.begin() + cuts[piece], values.begin() + cuts[piece + 1]};
  }
};

inline RecordedRun recorded(const Loop& loop, const RecordOptions& options = {}) {
  const Folder folder;
  loop.write(folder.path());
  return record_run(folder.path(), options);
}

inline VerifyResult verified(const Loop& loop) {
  const Folder folder;
  loop.write(folder.path());
  return verify_run(folder.path());
}

inline const std::vector<int> both = {0, 1};

}  // namespace lockstep::test
