// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lockstep/json.h"
#include "tests/catch.h"

/// The value of a JSON text that has no mistakes.
inline lockstep::Json parsed(std::string text) {
  lockstep::Diagnostics diagnostics;
  const lockstep::Json value = lockstep::parse_json(
      std::make_shared<const lockstep::Source>(lockstep::Source{"x", std::move(text)}), diagnostics);
  for (const auto& diagnostic : diagnostics.sorted()) FAIL(lockstep::render(diagnostic));
  return value;
}
