// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep::numeric {

/// One contribution to a logical gradient as a single device computes it.
struct ReferenceTerm {
  std::uint64_t key = 0;  ///< of the generator
  Rational weight;        ///< with which its loss enters
};

/// The gradient on one device: the sum of all contributions with the weights of the loss. Derived
/// from the model, the batch and the mesh alone; knows no schedule, no step and no timeline.
class Reference {
 public:
  explicit Reference(const Schedule& schedule);

  /// What one device adds up for the elements of a piece in an optimizer step. Each contribution
  /// occurs once. Safe to call from several threads.
  std::vector<ReferenceTerm> terms(int logical, int piece, int optimizer_step) const;
  /// At least as many as terms() has; without looking at each.
  std::int64_t most_terms(int logical, int piece, int optimizer_step) const;

 private:
  struct Holder {
    int rank = 0;
    int buffer = 0;
  };
  std::vector<int> sources(int parameter, const std::vector<Holder>& holders, int micro_batch) const;
  std::int64_t tokens(const std::string& use, int micro_batch, int rank) const;
  Rational weight(const std::string& use, int optimizer_step, int micro_batch, int rank) const;
  Rational loss_weight(const std::string& use, int optimizer_step, int micro_batch, int rank) const;

  const Mesh& mesh_;
  const Model& model_;
  const Batch& batch_;
  std::vector<std::vector<std::vector<Holder>>> holders_;  // by logical and piece; ascending ranks
  std::vector<Groups> dispatch_groups_;                    // by parameter; empty where it has none
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<std::string, int, int>, Rational>
      weights_;  // by use, micro-batch, rank or piece of the batch
};

/// Evaluates terms over elements: adds term · n for the generator's numbers n of `count` elements
/// that begin at global index `first`. Coefficients are whole numbers; the sum must stay below 2^63
/// (2^31 for the 32-bit one).
void add_reference(std::uint64_t key, int bits, std::int64_t coefficient, std::uint64_t first, std::size_t count,
                   std::int64_t* sums);
void add_reference(std::uint64_t key, int bits, std::int64_t coefficient, std::uint64_t first, std::size_t count,
                   std::int32_t* sums);
/// The same modulo 2^61 - 1.
void add_reference(std::uint64_t key, std::uint64_t coefficient, std::uint64_t first, std::size_t count,
                   std::uint64_t* sums);

}  // namespace lockstep::numeric
