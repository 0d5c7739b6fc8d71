// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/importer.h"

namespace lockstep::importers {

inline std::vector<std::string> split_at_spaces(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

inline ImportRequest request_of_file(const std::string& format, const std::string& name, const std::string& text,
                                     std::int64_t world = 8) {
  ImportRequest request;
  request.format = format;
  request.files = {std::make_shared<const Source>(Source{name, text})};
  request.world = world;
  return request;
}

/// The mistakes as they are shown, with the lines of the source.
inline std::string rendered(const InputError& error) {
  std::string text;
  for (const Diagnostic& diagnostic : error.diagnostics()) text += render(diagnostic);
  return text;
}

/// The mistakes of an import and, where there are none, of its scenario: one in a line; "" where there is none.
inline std::string messages(const ImportRequest& request) {
  try {
    read_imported(import_configuration(request), "scenario");
    return "";
  } catch (const InputError& error) {
    std::string text;
    for (const Diagnostic& diagnostic : error.diagnostics()) text += diagnostic.message + "\n";
    return text;
  }
}

}  // namespace lockstep::importers
