// SPDX-License-Identifier: Apache-2.0
#include "src/cli/extraction_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "lockstep/live.h"
#include "lockstep/scenario.h"
#include "src/cli/options.h"
#include "src/scenario/changed_keys.h"
#include "src/scenario/named_file.h"

namespace lockstep::cli {

std::shared_ptr<const Source> extraction_at(const std::string& file) {
  std::error_code error_code;
  const std::filesystem::file_status status = std::filesystem::status(file, error_code);
  // Nothing else is opened twice.
  if (file != standard_input_name && !std::filesystem::is_regular_file(status) && !std::filesystem::is_fifo(status))
    return nullptr;
  std::string error;
  std::optional<Source> read = scenario::read_scenario_text(file, error);
  if (!read || !is_extraction(read->text)) return nullptr;
  if (!scenario::changes_of_every_scenario().empty())
    usage_error(
        fmt::format("--set changes scenarios, and {} is what `lockstep extract` has written: extract it once more, "
                    "with what is to be otherwise",
                    file));
  return std::make_shared<const Source>(std::move(*read));
}

}  // namespace lockstep::cli
