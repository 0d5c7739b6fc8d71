// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "src/cli/corpus_list.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"
#include "src/diagnosis/other_tests.h"
#include "src/report/json_writer.h"
#include "src/report/style.h"

namespace lockstep::cli {

namespace {

struct ListArguments {
  std::string output;  // "": standard output
  std::string format = "text";
  bool corpus = false;
  std::vector<std::string> paths;
};

/// One scenario as a row of the table.
struct Row {
  std::string name, verdict, factor, replicas, title;
};

Row row_of(const CheckResult& result) {
  Row row;
  row.name = result.scenario ? result.scenario->name : result.file;
  row.title = result.scenario ? result.scenario->title : "";
  row.verdict = std::string(name_of(result.verdict));
  const std::optional<Rational> ratio = overall_ratio(result);
  row.factor = ratio ? ratio->to_string() : "-";
  row.replicas = "-";
  if (result.verdict == Verdict::mismatch && result.symbolic) {
    // Its values are right: a factor of 1 would say that all is well.
    if (wrong_in_norm_alone(result)) row.factor = "norm";
    row.replicas = std::string(name_of(compare_replicas(result)));
  }
  return row;
}

/// `text` with the bars that would end a cell escaped.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? "\\|" : std::string(1, c);
  return result;
}

void write_table(Output& output, const std::vector<Row>& rows, bool markdown) {
  if (markdown) {
    output.write("| scenario | verdict | factor | replicas | title |\n|---|---|---|---|---|\n");
    for (const Row& row : rows) {
      output.write(fmt::format("| `{}` | {} | {} | {} | {} |\n", row.name, row.verdict, row.factor, row.replicas,
                               cell(row.title)));
    }
    return;
  }
  std::size_t name = 8, verdict = 7, factor = 6, replicas = 8;
  for (const Row& row : rows) {
    name = std::max(name, row.name.size());
    verdict = std::max(verdict, row.verdict.size());
    factor = std::max(factor, row.factor.size());
    replicas = std::max(replicas, row.replicas.size());
  }
  const auto line = [&](const Row& row) {
    std::string text = padded(row.name, name) + "  " + padded(row.verdict, verdict) + "  " +
                       padded(row.factor, factor) + "  " + padded(row.replicas, replicas) + "  " + row.title;
    text.erase(text.find_last_not_of(' ') + 1);
    output.write(text + "\n");
  };
  line({"scenario", "verdict", "factor", "replicas", "title"});
  for (const Row& row : rows) line(row);
}

void write_json(Output& output, const std::vector<Row>& rows) {
  JsonWriter json(output.writer());
  json.begin_array();
  for (const Row& row : rows) {
    json.begin_object(true);
    const std::pair<const char*, const std::string*> fields[] = {{"scenario", &row.name},
                                                                 {"verdict", &row.verdict},
                                                                 {"factor", &row.factor},
                                                                 {"replicas", &row.replicas},
                                                                 {"title", &row.title}};
    for (const auto& [key, value] : fields) {
      json.key(key);
      json.string_or_null(*value == "-" ? "" : *value);
    }
    json.end_object();
  }
  json.end_array();
  json.finish();
}

int run(const ListArguments& arguments) {
  const std::vector<std::string> files = scenario_files(arguments.paths);
  if (files.empty()) return nothing_found(arguments.paths);
  CheckOptions options;
  options.host = false;
  std::vector<Row> rows;
  CorpusList corpus;
  int status = exit_right;
  for (const std::string& file : files) {
    const CheckResult result = check_file(file, options);
    if (result.verdict == Verdict::error) status = status_of(result);
    if (arguments.corpus) {
      corpus.add(result);
    } else {
      rows.push_back(row_of(result));
    }
  }
  Output output(arguments.output);
  if (arguments.corpus) {
    corpus.write(output, arguments.format);
  } else if (arguments.format == "json") {
    write_json(output, rows);
  } else {
    write_table(output, rows, arguments.format == "markdown");
  }
  output.commit();
  return status;
}

}  // namespace

Command list_command() {
  const auto arguments = std::make_shared<ListArguments>();
  Command command;
  command.name = "list";
  command.summary = "Print scenarios as a table: verdict, factor, title.";
  command.text =
      "Replays each scenario symbolically and prints one row: its verdict, the factor against the right gradient where "
      "it is one number for every wrong element (1 is right, `norm` where values are right and the gradient norm is "
      "not), and for a mismatch whether all replicas agree on it, so that comparing them would show nothing, or "
      "whether "
      "there is nothing to compare because each wrong element has one owner. Exit status 0 whatever the verdicts are, "
      "2 "
      "if a file is not valid, 4 if there is none.\n\n"
      "With --corpus the rows are mistakes by project and number, with the axes larger than 1, the kind of mistake, "
      "and "
      "what a comparison of replicas and a comparison with one device that accepts a relative error of 8 % say; "
      "repairs "
      "have no row. A summary counts what these two miss.";
  command.examples = {
      {"lockstep list scenarios/", "every scenario of a folder and the folders in it"},
      {"lockstep list -f markdown scenarios/deepspeed/", "the table for a README"},
      {"lockstep list --corpus scenarios/", "the mistakes, their kinds, and who would see them"},
      {"lockstep list -f json scenarios/ -o table.json", "the same for programs"},
  };
  command.options = {
      {"FILES", "", "Scenario files, or folders that are searched for *.json and *.jsonc.", {}, &arguments->paths},
      {"--corpus", "", "List mistakes by project, with their kind and what other tests see.", {}, &arguments->corpus},
      {"-f,--format", "KIND", "What to write.", {"text", "markdown", "json"}, &arguments->format},
      {"-o,--output",
       "FILE",
       "Write to FILE instead of standard output; it appears only when it is complete.",
       {},
       &arguments->output},
  };
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
