// SPDX-License-Identifier: Apache-2.0
#include "src/live/event.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "lockstep/rational.h"

namespace lockstep::live {

std::optional<std::int64_t> whole_number_of(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const std::string& text = value.text();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  const std::optional<Rational> rational = Rational::parse(text);  // "1e3"
  return rational && rational->is_integer() ? rational->to_int64() : std::nullopt;
}

void Event::wrong_type(std::string_view key, const Json& found, std::string_view expected) const {
  mistake(found,
          fmt::format("\"{}\" of a \"{}\" {}: expected {}, found {}", key, name_, kind_, expected, found.describe()));
}

const Json* Event::required(std::string_view key) const {
  const Json* found = object_.find(key);
  if (found == nullptr) mistake(fmt::format("missing key \"{}\" in a \"{}\" {}", key, name_, kind_));
  return found;
}

std::int64_t Event::whole(std::string_view key, std::int64_t least, std::int64_t most) const {
  const Json* found = required(key);
  if (found == nullptr) return least;
  const std::optional<std::int64_t> number = whole_number_of(*found);
  if (number && *number >= least && *number <= most) return *number;
  wrong_type(key, *found, fmt::format("a whole number from {} to {}", least, most));
  return least;
}

std::optional<std::int64_t> Event::whole_or_null(std::string_view key) const {
  const Json* found = required(key);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return whole(key, 0, INT64_MAX / 2);
}

double Event::factor(std::string_view key) const {
  const Json* found = object_.find(key);
  if (found == nullptr) return 1;
  double number = 0;
  if (found->is_number()) {
    const std::string& text = found->text();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && number > 0 && std::isfinite(number)) return number;
  }
  wrong_type(key, *found, "a number greater than 0");
  return 1;
}

std::string Event::text(std::string_view key, std::string_view fallback) const {
  const Json* found = object_.find(key);
  if (found == nullptr || found->is_null()) return std::string(fallback);
  if (found->is_string()) return found->text();
  wrong_type(key, *found, "a string");
  return std::string(fallback);
}

std::string Event::required_text(std::string_view key) const {
  const Json* found = required(key);
  if (found == nullptr) return {};
  if (found->is_null()) wrong_type(key, *found, "a string");
  return text(key, "");
}

std::optional<std::string> Event::text_or_null(std::string_view key) const {
  const Json* found = object_.find(key);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return text(key, "");
}

bool Event::boolean(std::string_view key, bool fallback) const {
  const Json* found = object_.find(key);
  if (found == nullptr) return fallback;
  if (found->is_boolean()) return found->as_boolean();
  wrong_type(key, *found, "true or false");
  return fallback;
}

std::vector<std::string> Event::texts(std::string_view key) const {
  const Json* found = object_.find(key);
  if (found == nullptr) return {};
  std::vector<std::string> result;
  if (!found->is_array()) wrong_type(key, *found, "a list of strings");
  for (const Json& item : found->items()) {
    if (item.is_string()) {
      result.push_back(item.text());
    } else {
      wrong_type(key, item, "a list of strings");
    }
  }
  return result;
}

std::vector<std::int64_t> Event::wholes(std::string_view key, std::int64_t least, std::int64_t most) const {
  const Json* found = required(key);
  if (found == nullptr) return {};
  std::vector<std::int64_t> result;
  if (!found->is_array()) wrong_type(key, *found, "a list of whole numbers");
  for (const Json& item : found->items()) {
    const std::optional<std::int64_t> number = whole_number_of(item);
    if (number && *number >= least && *number <= most) {
      result.push_back(*number);
    } else {
      wrong_type(key, item, fmt::format("whole numbers from {} to {}", least, most));
    }
  }
  return result;
}

GradientHash Event::hash(std::string_view key) const {
  const Json* found = required(key);
  GradientHash hash;
  if (found == nullptr) return hash;
  constexpr std::size_t digits = 32;
  bool right = found->is_string() && found->text().size() == digits;
  for (std::size_t lane = 0; right && lane < 2; ++lane) {
    const char* begin = found->text().data() + lane * digits / 2;
    const auto [end, error] = std::from_chars(begin, begin + digits / 2, hash.lanes[lane], 16);
    right = error == std::errc() && end == begin + digits / 2;
  }
  if (!right) wrong_type(key, *found, "a hash of 32 hexadecimal digits");
  return hash;
}

Dtype Event::dtype(std::string_view key) const {
  const std::string name = required_text(key);
  std::vector<std::string> known;
  for (const Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::bfloat16, Dtype::float16}) {
    if (name == name_of(dtype)) return dtype;
    known.emplace_back(name_of(dtype));
  }
  if (const Json* found = object_.find(key); found != nullptr && found->is_string()) {
    wrong_type(key, *found, "float32, float64, bfloat16 or float16");
  }
  return Dtype::float32;
}

}  // namespace lockstep::live
