// SPDX-License-Identifier: Apache-2.0
#include "src/cli/captured_loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::cli {

OptionRow loss_row(std::string* loss, const std::string& otherwise) {
  return {"--loss",
          "KIND",
          "What each rank's backward is the gradient of" + otherwise +
              ": local_mean (each rank's own mean, divided for the micro-batches already), sum, token_mean (each "
              "micro-batch's own), token_sum.",
          {},
          loss,
          captured_loss_names()};
}

std::optional<CapturedLoss> given_loss(const std::string& loss) {
  if (loss.empty()) return std::nullopt;
  const std::optional<CapturedLoss> known = loss_named(loss);
  if (!known)
    usage_error(fmt::format("--loss takes one of {}; found \"{}\"{}", fmt::join(captured_loss_names(), ", "), loss,
                            did_you_mean(loss, captured_loss_names())));
  return known;
}

}  // namespace lockstep::cli
