// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/longest_run.h"

#include <algorithm>
#include <iterator>

namespace lockstep::diagnosis {

std::vector<bool> in_longest_run(const std::vector<std::size_t>& numbers) {
  std::vector<std::size_t> ends;  // by length - 1: where the subsequence of this length with the smallest end ends
  std::vector<std::size_t> previous(numbers.size(), numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto longer = std::lower_bound(ends.begin(), ends.end(), numbers[i],
                                         [&](std::size_t at, std::size_t number) { return numbers[at] < number; });
    if (longer != ends.begin()) previous[i] = *std::prev(longer);
    longer == ends.end() ? static_cast<void>(ends.push_back(i)) : static_cast<void>(*longer = i);
  }
  std::vector<bool> result(numbers.size());
  for (std::size_t at = ends.empty() ? numbers.size() : ends.back(); at < numbers.size(); at = previous[at])
    result[at] = true;
  return result;
}

}  // namespace lockstep::diagnosis
