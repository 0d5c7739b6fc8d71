// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/edit.h"
#include "lockstep/json.h"

namespace lockstep {

/// A step at fault and why. Where a step is missing, the name that the framework or the repair gives it.
struct Blame {
  std::string step;
  std::string why;
  std::vector<std::string> formulas;  ///< that `why` holds, in their order: a report may shorten them
};

/// Edits of a schedule after which everything matches.
struct Repair {
  std::vector<Edit> edits;            ///< to stand behind those of the file
  std::vector<std::string> steps;     ///< by edit: the step that it changes, removes or adds
  int sizes = 0;                      ///< layouts around the file's at which it was tried
  int right_sizes = 0;                ///< and at which it is right
  std::string wrong_at;               ///< the first of them at which it is not: "dp 3, micro-batches 2"; "": none
  std::set<std::string> wrong_with;   ///< of what another size makes it wrong, as files call it: "dp", "micro_batches"
  bool other_owners = false;          ///< other ranks own other elements than before
  bool bytes_known = true;            ///< of both schedules at the file's own sizes, so that what follows is
  double added_bytes = 0;             ///< that the rank that sends most sends more than before, with ring algorithms
  std::vector<std::string> verified;  ///< engines that found it right at the file's own layout
  std::string verified_at;            ///< where none decides, the layout at which symbolic did: "dp 2, pp 2"; else ""
  std::string host_left_out;          ///< why the host engine is not among them: a full sentence; "" where it is
  /// Whether norms count and clips change, in each optimizer step, every gradient that they do before. None where that
  /// was not looked at.
  std::optional<bool> keeps_norms;
  /// For which sizes it is known to be right.
  enum class Reach {
    every_size,     ///< proved for all sizes of the axes that the scenario speaks of
    axes_in_play,   ///< proved for all sizes of the axes that the file has above 1
    layouts_tried,  ///< the parametric engine does not decide; right at all layouts at which it was tried
    own_sizes,      ///< likewise, and no other layout was tried
    some_sizes      ///< wrong at some other size
  };
  Reach reach = Reach::own_sizes;
  bool every_axis = false;  ///< every_size: the proof leaves open each axis that a layout of the scenario may have
  std::string proof;        ///< what the parametric engine says, without a period; "" where it was not asked
};
std::string_view name_of(Repair::Reach reach);
/// The same as reports have it: "every size" where that is so of every axis that the scenario may have.
std::string_view reach_of(const Repair& repair);
/// What is known of a repair by the other layouts at which it was tried.
Repair::Reach reach_of_layouts(const Repair& repair);

/// Other values of one option of the framework file with which everything matches, all else as it is.
struct OptionRepair {
  std::string option;
  Json value;               ///< what it is now
  bool given = false;       ///< by the scenario; else that is the framework's default
  std::vector<Json> right;  ///< other values that are right at the file's own sizes: the framework's default first
  bool to_default = false;  ///< whether the first of `right` is the framework's default
  /// Whether the first of `right` changes what is asked for as well: the loss, or the parameters.
  bool asks_otherwise = false;
  /// The sizes that the first of `right` brings, where they are others than the file's: "dp 1, micro-batches 2".
  std::string sizes;
  bool sizes_differ = false;      ///< another one of `right` brings other sizes than the first
  std::size_t steps_changed = 0;  ///< that the first of `right` brings, takes away or makes other ones
  /// Of the first of `right`, without edits: for which sizes it is right, and who says so. It keeps norms where that is
  /// known of each of `right`.
  Repair repair;
};

}  // namespace lockstep
