// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comparison.h"
#include "lockstep/report.h"
#include "src/report/json_writer.h"
#include "src/report/style.h"

namespace lockstep::report {

/// What the two sides of a comparison are called.
struct SideNames {
  std::string_view before = "old", after = "new", in_after = "in the new one";
};

/// "gradients that optimizers get": a line for each difference and both formulas, layers folded; nothing where there is
/// none. Without `verbose` the first twelve, shortened. `when`: "", or " in optimizer step 2".
void differing_gradients(const std::vector<GradientDifference>& differences, const std::string& when, bool verbose,
                         const Style& style, const Write& write, const SideNames& names = {});

/// The key "gradients" with all of them.
void differing_gradients(const std::vector<GradientDifference>& differences, JsonWriter& json);
/// "ranks" and "new_ranks", and "elements" if asked for.
void differing_elements(const DifferingElements& where, bool with_elements, JsonWriter& json);

}  // namespace lockstep::report
