// SPDX-License-Identifier: Apache-2.0
#include "src/cli/import_flight_recorder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/json.h"
#include "src/base/inputs.h"
#include "src/cli/files.h"
#include "src/cli/output.h"
#include "src/scenario/allowed_files.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

bool is_named(const std::string& file, const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), file) != arguments.end();
}

/// Who made a folder may have put a link in it, to what is not his to read.
void keep_in_folders(const std::vector<std::string>& dumps, const std::vector<std::string>& arguments) {
  std::vector<Diagnostic> mistakes;
  for (const std::string& dump : dumps) {
    if (is_named(dump, arguments)) continue;
    const auto holds = [&](const std::string& argument) {
      std::error_code error;
      return fs::is_directory(argument, error) && !leads_out_of(dump, argument);
    };
    if (!leads_out_of(dump, fs::path(dump).parent_path()) || std::any_of(arguments.begin(), arguments.end(), holds))
      continue;
    mistakes.push_back({{}, fmt::format("{}: it is a link that leads out of its folder; expected a file", dump)});
  }
  if (!mistakes.empty()) throw InputError(std::move(mistakes));
}

bool is_dump(const std::shared_ptr<const Source>& source) {
  Diagnostics diagnostics;
  const Json json = parse_json(source, diagnostics);
  const Json* version = diagnostics.empty() && json.is_object() ? json.find("version") : nullptr;
  return version != nullptr && version->is_string() &&
         (json.find("entries") != nullptr || json.find("pg_config") != nullptr);
}

/// What is no dump, and was found in a folder or through a link, may be anybody's file: nothing of it is shown. A shell
/// may have put the link's name into the call.
InputError without_others_lines(const InputError& error, const std::vector<std::string>& arguments) {
  std::vector<Diagnostic> shown;
  const Source* told = nullptr;
  for (const Diagnostic& diagnostic : error.diagnostics()) {
    const std::shared_ptr<const Source>& source = diagnostic.place.source;
    if (source != nullptr && source.get() == told) continue;
    const fs::path folder = source == nullptr ? fs::path() : fs::path(source->name).parent_path();
    if (source == nullptr || is_dump(source) ||
        (is_named(source->name, arguments) &&
         (scenario::is_of_the_system(folder) || !leads_out_of(source->name, folder)))) {
      shown.push_back(diagnostic);
      continue;
    }
    told = source.get();
    const LineColumn place = line_column(diagnostic.place);
    shown.push_back({{},
                     fmt::format("{}:{}:{}: expected a dump of PyTorch's Flight Recorder, whole and as JSON: an object "
                                 "with \"version\" and \"entries\"; name the file to see what is wrong there",
                                 source->name, place.line, place.column)});
  }
  return InputError(std::move(shown));
}

}  // namespace

int import_flight_recorder(const CommonOptions& options, const std::vector<std::string>& files, std::int64_t world) {
  if (files.empty()) usage_error("flight-recorder takes dumps, one of each rank, or a folder of them; none was named");
  const std::vector<std::string> dumps = dump_files(files);
  if (dumps.empty())
    usage_error(
        fmt::format("there is no *.json file in {}; `python3 -m lockstep.flight_recorder` makes JSON of pickles",
                    fmt::join(files, ", ")));
  keep_in_folders(dumps, files);
  keep_inputs(options.output, dumps);
  Output output(options.output, report::kind_of_format(options.format));
  FlightResult result;
  try {
    result = read_flight_recorder(
        dumps,
        [](const std::string& file) {
          return read_source(file, "a dump that `python3 -m lockstep.flight_recorder` has turned into JSON,");
        },
        static_cast<int>(world));
  } catch (const InputError& error) {
    throw without_others_lines(error, files);
  }
  if (options.format == "json") {
    flight_json(result, output.writer());
  } else {
    flight_text(result, options.quiet, use_color(options, output.terminal()), output.writer());
  }
  output.commit();
  return result.verdict() == VerifiedPiece::Verdict::right ? exit_right : exit_wrong;
}

}  // namespace lockstep::cli
