// SPDX-License-Identifier: Apache-2.0
#include "src/cli/import_flight_recorder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/cli/files.h"
#include "src/cli/output.h"

namespace lockstep::cli {

int import_flight_recorder(const CommonOptions& options, const std::vector<std::string>& files, std::int64_t world) {
  if (files.empty()) usage_error("flight-recorder takes dumps, one of each rank, or a folder of them; none was named");
  const std::vector<std::string> dumps = dump_files(files);
  if (dumps.empty())
    usage_error(
        fmt::format("there is no *.json file in {}; `python3 -m lockstep.flight_recorder` makes JSON of pickles",
                    fmt::join(files, ", ")));
  keep_inputs(options.output, dumps);
  Output output(options.output, kind_of_format(options.format));
  const FlightResult result = read_flight_recorder(
      dumps,
      [](const std::string& file) {
        return read_source(file, "a dump that `python3 -m lockstep.flight_recorder` has turned into JSON,");
      },
      static_cast<int>(world));
  if (options.format == "json") {
    flight_json(result, output.writer());
  } else {
    flight_text(result, options.quiet, use_color(options, output.terminal()), output.writer());
  }
  output.commit();
  return result.verdict() == VerifiedPiece::Verdict::right ? exit_right : exit_wrong;
}

}  // namespace lockstep::cli
