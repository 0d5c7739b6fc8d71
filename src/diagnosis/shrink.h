// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/scenario.h"
#include "lockstep/schedule.h"

namespace lockstep::diagnosis {

/// A scenario file at other sizes.
struct FileSizes {
  std::vector<std::pair<std::string, int>> axes;  ///< keys of "layout" with their sizes; others stay as written
  int micro_batches = 0;                          ///< 0: as written

  bool empty() const { return axes.empty() && micro_batches == 0; }
  /// "dp 3, micro-batches 1"
  std::string to_string() const;
};

/// What the file is read at.
Sizes sizes_of(const Scenario& scenario, const FileSizes& sizes);

/// Whether two scenarios list the same tokens for other micro-batches: a list of two for two optimizer steps of one
/// micro-batch each is read as that of two micro-batches where there are so many, and asks for another gradient then.
bool reads_tokens_otherwise(const Scenario& before, const Scenario& after);

/// The file at these sizes; null where it does not allow them, or lists its tokens for others.
std::shared_ptr<const Scenario> read_at(const Scenario& scenario, const FileSizes& sizes);

/// Of its optimizer steps.
int most_micro_batches(const Scenario& scenario);

/// One parameter of each class: parameters whose names differ in numbers only and that are placed, tied, tagged and
/// selected alike. Tied ones stay together.
std::vector<Parameter> one_of_each_class(const Schedule& schedule);

/// A few of the parameters whose names are `wrong`, placed in different ways, and those tied to them.
std::vector<Parameter> few_of(const std::vector<Parameter>& parameters, const std::set<std::string>& wrong);

/// A layout in which the same goes wrong as in a result.
struct SmallLayout {
  FileSizes sizes;  ///< none: the file's own
  /// What the symbolic engine says of the file at these sizes; null where nobody has asked yet.
  std::shared_ptr<const CheckResult> check;
};

/// The smallest sizes, axes 2 or 3 and two micro-batches, at which the same parameters (by folded name) go wrong as in
/// `result`, which is not right; of many ranks also all axes at 3, 4, 5 or 8. Sizes that the file does not allow are
/// passed over.
SmallLayout smallest_layout(const CheckResult& result);
/// What the symbolic engine says of the file at these sizes; null where it does not allow them.
std::shared_ptr<const CheckResult> check_at(const Scenario& scenario, const FileSizes& sizes);

struct OtherSize {
  std::string of;  ///< what has another size, as files call it: "dp", "micro_batches"
  FileSizes sizes;
};
/// Sizes around `smallest`: each axis that the file gives a size above 1 or that is named, at 1 to 4, and the
/// micro-batches at 1 to 3.
std::vector<OtherSize> sizes_around(const Scenario& scenario, const FileSizes& smallest,
                                    const std::vector<std::string>& more_axes = {});

/// Names of what is wrong, numbers in them folded; the verdict alone where there are no values.
std::set<std::string> folded_wrong_names(const CheckResult& result);

}  // namespace lockstep::diagnosis
