// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/check.h"
#include "src/cli/output.h"

namespace lockstep::cli {

/// The corpus as a table: a row for each file whose verdict is not `match`, and for each control: a file that matches,
/// has a `source`, and is no repair. Repairs are those of the project and number of a mistake, and those with "-fixed"
/// in their name.
class CorpusList {
 public:
  /// In the order of the rows. Results of the symbolic engine; those with the verdict `error` are left out.
  void add(const CheckResult& result);
  /// `format`: "text", "markdown" or "json". Text and markdown end with the summary.
  void write(Output& output, const std::string& format) const;

 private:
  struct Row {
    std::string project, number, title, axes, mistake, replicas, tolerance, scenario;
    bool match = false;
    std::pair<std::string, std::string> source() const { return {project, number}; }
  };
  std::vector<Row> rows() const;  ///< without those that have none
  std::string summary() const;

  std::vector<Row> all_;
};

}  // namespace lockstep::cli
