// SPDX-License-Identifier: Apache-2.0
#include "src/expression/parsed_once.h"

#include <functional>
#include <unordered_map>

namespace lockstep::expression {

namespace {

using Parsed = std::unordered_map<std::string_view, std::shared_ptr<const Expression::Content>>;  // by its own text

thread_local std::unique_ptr<Parsed> parsed;

}  // namespace

ParsedOnce::ParsedOnce() : is_outermost_(parsed == nullptr) {
  if (is_outermost_) parsed = std::make_unique<Parsed>();
}

ParsedOnce::~ParsedOnce() {
  if (is_outermost_) parsed.reset();
}

std::shared_ptr<const Expression::Content> parse_once(std::string_view text) {
  constexpr std::size_t longest = 256, most = 4096;
  if (parsed != nullptr) {
    if (const auto known = parsed->find(text); known != parsed->end()) return known->second;
  }
  auto result = std::make_shared<const Expression::Content>(Expression::Content{parse(text), std::string(text)});
  if (parsed != nullptr && text.size() <= longest && parsed->size() < most) parsed->emplace(result->text, result);
  return result;
}

}  // namespace lockstep::expression
