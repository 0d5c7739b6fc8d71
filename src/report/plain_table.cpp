// SPDX-License-Identifier: Apache-2.0
#include "src/report/plain_table.h"

#include <algorithm>

#include "src/report/style.h"

namespace lockstep::report {

void plain_table(const std::vector<std::vector<std::string>>& rows, const Write& write) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& each : rows) {
    for (std::size_t i = 0; i < each.size(); ++i) widths[i] = std::max(widths[i], text_width(each[i]));
  }
  for (const auto& each : rows) {
    std::string line;
    for (std::size_t i = 0; i < each.size(); ++i)
      line += (i == 0 ? "" : i == 1 ? " " : "  ") + padded(each[i], widths[i]);
    write(" " + line.substr(0, line.find_last_not_of(' ') + 1) + "\n");
  }
}

}  // namespace lockstep::report
