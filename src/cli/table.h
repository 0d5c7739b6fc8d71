// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/cli/output.h"

namespace lockstep::cli {

/// Rows of texts under heads, in the formats that lists are printed in.
class Table {
 public:
  struct Column {
    std::string head;
    std::string key;  ///< in JSON
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// A text for each column. "" and "-" say that there is nothing: null in JSON.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// `format`: "text" (columns aligned), "markdown" (cells are Markdown: markdown_text() and the like) or "json" (an
  /// array of objects).
  void write(Output& output, const std::string& format) const;

 private:
  void write_text(Output& output) const;
  void write_markdown(Output& output) const;
  void write_json(Output& output) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::cli
