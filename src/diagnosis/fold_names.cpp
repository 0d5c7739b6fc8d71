// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/fold_names.h"

#include <algorithm>

namespace lockstep::diagnosis {

std::string folded_name(std::string_view name) {
  std::string folded;
  while (true) {
    const std::size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    const bool number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    folded += number ? std::string_view("*") : part;
    if (dot == std::string_view::npos) return folded;
    folded += '.';
    name.remove_prefix(dot + 1);
  }
}

}  // namespace lockstep::diagnosis
