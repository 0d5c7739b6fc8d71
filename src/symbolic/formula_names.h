// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "lockstep/symbolic.h"

namespace lockstep::formula {

/// One contribution of a rank: in which micro-batch, through which site and use.
struct Slot {
  int micro_batch = 0;
  int site_use = 0;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

/// The contributions to one piece in one optimizer step, by source rank; slots ascending.
using Support = std::unordered_map<int, std::vector<Slot>>;

/// The element that a term belongs to, seen from the buffer that holds it.
struct Frame {
  bool foreign = false;
  int logical = 0;
  int piece = 0;
  std::int64_t offset = 0;
  friend auto operator<=>(const Frame&, const Frame&) = default;
};

/// What the names in a formula mean in one buffer of one rank; shared by the printer and the
/// parser, so that both have the same idea of them.
class Names {
 public:
  Names(const Schedule& schedule, int rank, int buffer, const std::vector<Term>& support);

  const Schedule& schedule() const { return *schedule_; }
  const Model& model() const { return schedule_->model; }
  int rank() const { return rank_; }
  const Frame& own() const { return own_; }
  /// The optimizer step that a name without a micro-batch speaks of; none: every name needs one.
  std::optional<int> own_step() const { return own_step_; }
  int step_of(int micro_batch) const;

  /// The contributions to the element of `frame` in an optimizer step.
  const Support& support(const Frame& frame, int step);
  /// Those of one rank; empty where it has none.
  const std::vector<Slot>& slots(const Frame& frame, int step, int source);

  const SiteUse& site_use(const Frame& frame, int index) const;
  /// How many sites of the frame's parameter have this use.
  int sites_with(const Frame& frame, const std::string& use) const;

  /// The piece that a bracket without `@` means: that of the rank that the term stems from, else of the holding one.
  int default_piece(int logical, int source) const;
  /// "[NAME@4+5]": `parameter` is the site that is named, in quotes where its name could be read as something else.
  std::string bracket(const Frame& frame, int parameter, int source);
  /// The piece of `logical`, or of a copy of it, on `rank`, or -1.
  int piece_on(int rank, int logical) const;

 private:
  int lowest_holder(int logical, int piece);

  const Schedule* schedule_;
  int rank_;
  Frame own_;
  std::optional<int> own_step_;
  std::map<std::tuple<int, int, int>, Support> supports_;  // by logical parameter, piece and step
  std::map<std::pair<int, int>, int> lowest_holders_;
};

/// The axes of the dense mesh in which ranks differ, dp in its parts.
inline constexpr Axis digits[] = {Axis::tp, Axis::cp, Axis::sp, Axis::dp_shard, Axis::dp_replicate, Axis::pp};

/// `word` if a formula can hold it as it is, else in single quotes.
std::string quoted_unless_plain(const std::string& word);

/// The order of SymbolicEngine::terms().
void sort_terms(std::vector<Term>& terms);

}  // namespace lockstep::formula
