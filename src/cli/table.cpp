// SPDX-License-Identifier: Apache-2.0
#include "src/cli/table.h"

#include <algorithm>

#include "src/report/json_writer.h"
#include "src/report/style.h"

namespace lockstep::cli {

void Table::write(Output& output, const std::string& format) const {
  if (format == "json") return write_json(output);
  if (format == "markdown") return write_markdown(output);
  write_text(output);
}

void Table::write_text(Output& output) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(report::text_width(column.head));
  for (const std::vector<std::string>& row : rows_) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], report::text_width(row[column]));
    }
  }
  const auto write_row = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      line += (column > 0 ? "  " : "") + report::padded(row[column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    output.write(line + "\n");
  };
  std::vector<std::string> heads;
  for (const Column& column : columns_) heads.push_back(column.head);
  write_row(heads);
  for (const std::vector<std::string>& row : rows_) write_row(row);
}

void Table::write_markdown(Output& output) const {
  std::string heads = "|", line = "|";
  for (const Column& column : columns_) {
    heads += " " + column.head + " |";
    line += "---|";
  }
  output.write(heads + "\n" + line + "\n");
  for (const std::vector<std::string>& row : rows_) {
    std::string text = "|";
    for (const std::string& value : row) text += " " + value + " |";
    output.write(text + "\n");
  }
}

void Table::write_json(Output& output) const {
  report::JsonWriter json(output.writer());
  json.begin_array();
  for (const std::vector<std::string>& row : rows_) {
    json.begin_object(true);
    for (std::size_t column = 0; column < row.size(); ++column) {
      json.key(columns_[column].key).string_or_null(row[column] == "-" ? "" : row[column]);
    }
    json.end_object();
  }
  json.end_array();
  json.finish();
}

}  // namespace lockstep::cli
