// SPDX-License-Identifier: Apache-2.0
#include "src/report/transformer_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/transformer.h"
#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/report/elide.h"
#include "src/report/style.h"

namespace lockstep::report {

namespace {

const std::string& name_of_buffer(const Model& model, int rank, int buffer) {
  const int parameter = model.local(rank).buffers[at(buffer)].parameters.front();
  return model.parameters()[at(parameter)].name;
}

/// What a piece is made of, as a formula; "" where least squares found none.
std::string formula_of(const CheckResult& result, const TransformerBuffer& buffer, const TransformerPiece& piece) {
  if (!piece.terms) return "";
  const Schedule& schedule = *result.scenario->schedule;
  const LocalBuffer& local = schedule.model.local(buffer.rank).buffers[at(buffer.buffer)];
  return print_formula(schedule, buffer.rank, buffer.buffer, *piece.terms,
                       reference_terms(schedule, local.logical, local.piece, transformer_of(result)->step));
}

/// "g3 + (g0+g1)/2", or by elements where they differ.
std::string made_of(const CheckResult& result, const TransformerBuffer& buffer) {
  std::vector<std::string> formulas;
  for (const TransformerPiece& piece : buffer.pieces) {
    if (piece.right) continue;
    const std::string formula = formula_of(result, buffer, piece);
    if (formula.empty()) return "no combination of the contributions";
    if (formulas.empty() || formulas.back() != formula) formulas.push_back(formula);
  }
  return fmt::format("{}", fmt::join(formulas, "; "));
}

std::string failure_text(const TransformerFailure& failure, const ReportOptions& options) {
  std::string text = fmt::format("  The model itself cannot go on: {}.\n", failure.what);
  const std::size_t most = options.verbose ? failure.lines.size() : 8;
  for (std::size_t i = 0; i < failure.lines.size() && i < most; ++i) {
    const TransformerFailure::Line& line = failure.lines[i];
    text += fmt::format("    rank {}: {}", line.rank, line.calls);
    if (!line.waits_for.empty()) text += ", waits for " + rank_list(line.waits_for);
    text += "\n";
  }
  if (failure.lines.size() > most)
    text += fmt::format("    and {}\n", counted(failure.lines.size() - most, "more rank"));
  return text;
}

}  // namespace

std::string transformer_text(const CheckResult& result, const ReportOptions& options) {
  if (transformer_of(result) == nullptr) return "";
  const TransformerResult& found = *transformer_of(result);
  if (found.failure) return failure_text(*found.failure, options);
  std::string text = fmt::format(
      "  transformer: gradients that are right differ from one device by at most {:.1g} of the bound on rounding",
      found.largest_right);
  if (found.match) return text + "\n";
  text += fmt::format(",\n    wrong ones by at least {:.1g} times it; they are made of:\n", found.smallest_wrong);
  // Parameters that are wrong in the same way on the same ranks share a line.
  std::map<std::pair<std::string, std::string>, std::vector<int>> lines;
  for (const TransformerBuffer& buffer : found.buffers) {
    if (buffer.right) continue;
    const std::string& name = name_of_buffer(result.scenario->schedule->model, buffer.rank, buffer.buffer);
    lines[{name, made_of(result, buffer)}].push_back(buffer.rank);
  }
  const std::size_t most = options.verbose ? lines.size() : 12;
  std::size_t shown = 0;
  for (const auto& [what, ranks] : lines) {
    if (shown++ == most) break;
    const std::string head = fmt::format("    {}  {}: ", what.first, rank_list(ranks));
    const std::size_t room =
        options.verbose ? unlimited_width : page_width - std::min(text_width(head), page_width / 2);
    text += head + shortened(what.second, room) + "\n";
  }
  if (lines.size() > most) text += fmt::format("    and {} more; -v shows all\n", lines.size() - most);
  return text;
}

void write_json_transformer(const CheckResult& result, JsonWriter& json) {
  const TransformerResult& found = *transformer_of(result);
  json.begin_object();
  json.key("largest_right").string(fmt::format("{:.3g}", found.largest_right));
  json.key("smallest_wrong")
      .string_or_null(found.match || found.failure ? "" : fmt::format("{:.3g}", found.smallest_wrong));
  json.key("wrong").begin_array();
  for (const TransformerBuffer& buffer : found.buffers) {
    if (buffer.right) continue;
    json.begin_object(true);
    json.key("parameter").string(name_of_buffer(result.scenario->schedule->model, buffer.rank, buffer.buffer));
    json.key("rank").number(buffer.rank);
    json.key("error").string(fmt::format("{:.3g}", buffer.error));
    json.key("pieces").begin_array();
    for (const TransformerPiece& piece : buffer.pieces) {
      json.begin_object(true);
      json.key("elements").interval(piece.elements);
      json.key("verdict").string(piece.right ? "match" : "mismatch");
      json.key("formula").string_or_null(formula_of(result, buffer, piece));
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.key("failure").string_or_null(found.failure ? found.failure->what : "");
  json.end_object();
}

}  // namespace lockstep::report
