// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/report.h"

namespace lockstep::report {

/// Lines of columns as wide as their widest text, two spaces apart; of the first, a sign, one. There is a first row.
void plain_table(const std::vector<std::vector<std::string>>& rows, const Write& write);

}  // namespace lockstep::report
