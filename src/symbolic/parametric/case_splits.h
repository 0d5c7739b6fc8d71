// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/size_ranges.h"

namespace lockstep::parametric {

/// An open axis, or the number of micro-batches.
using Dimension = std::optional<Axis>;

/// The sizes of a dimension; nothing where it has one.
std::optional<Span> span_of(const CaseSizes& sizes, Dimension dimension);
/// The same sizes with these ones of a dimension.
CaseSizes with_span(CaseSizes sizes, Dimension dimension, Span span);
/// The dimensions that have several sizes.
std::vector<Dimension> dimensions_of(const CaseSizes& sizes);
/// Each size of a dimension by itself.
std::vector<CaseSizes> single_sizes_of(const CaseSizes& sizes, Dimension dimension, Span span);

/// The sizes as ranges, of axes and of the number of micro-batches.
using SizeRanges = std::pair<std::map<Axis, SizeRange>, std::optional<SizeRange>>;
SizeRanges ranges_of(const CaseSizes& sizes);

/// Whether a condition holds at all sizes, or at none; nothing where that is not seen.
using TruthAt = std::function<std::optional<bool>(const CaseSizes&)>;

/// The sizes in two parts, those of smaller ones first, cut along one dimension where the answer to a condition
/// changes: in one part there is one answer. Where there is no such place, few sizes are halved. Nothing where that
/// does not help.
std::vector<CaseSizes> split(const CaseSizes& sizes, const Expression::Node& condition, const TruthAt& truth_at);

}  // namespace lockstep::parametric
