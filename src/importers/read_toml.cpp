// SPDX-License-Identifier: Apache-2.0
#include "src/importers/syntax.h"

#ifdef LOCKSTEP_TOML
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <vector>
#endif

namespace lockstep::importers {

#ifdef LOCKSTEP_TOML

namespace {

constexpr std::size_t most_toml_bytes = 1 << 20;  // configurations are far smaller
constexpr int deepest_table = 200;

/// Looks for tables in tables before toml++ builds them: it limits brackets in each other, but not the parts of a
/// dotted key, and each part is a table that is built and destroyed by recursion.
class TomlDepth {
 public:
  explicit TomlDepth(std::string_view text) : text_(text) {}

  /// Where a key or value begins to be deeper than deepest_table.
  std::optional<std::size_t> too_deep() {
    for (next_ = 0; next_ < text_.size(); ++next_) {
      const char c = text_[next_];
      if (c == '"' || c == '\'') {
        skip_string(c);
      } else if (c == '#') {
        next_ = std::min(text_.find('\n', next_), text_.size() - 1);
        end_line();
      } else if (c == '\n') {
        end_line();
      } else if (c == '[' && open_.empty() && at_start_) {
        header_ = dots_ = 0;  // [a.b] or [[a.b]]: its second bracket comes here as well
        in_header_ = true;
      } else if (c == '[' || c == '{') {
        open_.push_back(dots_ + 1);
        below_ += dots_ + 1;
        dots_ = 0;
      } else if (c == ']' && in_header_) {
        header_ = std::max(header_, dots_ + 1);
        dots_ = 0;
      } else if ((c == ']' || c == '}') && !open_.empty()) {
        below_ -= open_.back();
        open_.pop_back();
        dots_ = 0;
      } else if (c == ',') {
        dots_ = 0;
      } else if (c == '.') {
        ++dots_;
      }
      if (c != ' ' && c != '\t' && c != '\r' && c != '\n' && c != '[') at_start_ = false;
      if (header_ + below_ + dots_ > deepest_table) return next_;
    }
    return std::nullopt;
  }

 private:
  void end_line() {
    if (open_.empty()) dots_ = 0;
    at_start_ = true;
    in_header_ = false;
  }

  /// Ends on the last quote; a string that is not closed ends where its line does, and toml++ says so.
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool is_long = text_.substr(next_).starts_with(three);
    for (next_ += is_long ? 3 : 1; next_ < text_.size(); ++next_) {
      if (text_[next_] == '\\' && quote == '"') {
        ++next_;
      } else if (is_long ? text_.substr(next_).starts_with(three) : text_[next_] == quote) {
        next_ += is_long ? 2 : 0;
        return;
      } else if (text_[next_] == '\n' && !is_long) {
        end_line();
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t next_ = 0;
  std::vector<int> open_;  // of each bracket: the parts of the key in front of it, and one for itself
  int below_ = 0;          // their sum
  int header_ = 0, dots_ = 0;
  bool at_start_ = true, in_header_ = false;
};

class TomlConverter {
 public:
  explicit TomlConverter(const std::shared_ptr<const Source>& source) : source_(source), lines_(source->text) {}

  Json convert(const toml::node& node) const {
    const Place place = place_of(node.source());
    if (const toml::table* table = node.as_table()) {
      std::vector<Json::Member> members;
      for (const auto& [key, value] : *table) {
        members.push_back({std::string(key.str()), place_of(key.source()), convert(value)});
      }
      // toml++ sorts keys by their names.
      std::sort(members.begin(), members.end(),
                [](const Json::Member& a, const Json::Member& b) { return a.key_place.begin < b.key_place.begin; });
      return Json::object(std::move(members), place);
    }
    if (const toml::array* array = node.as_array()) {
      std::vector<Json> items;
      for (const toml::node& item : *array) items.push_back(convert(item));
      return Json::array(std::move(items), place);
    }
    if (const auto* boolean = node.as_boolean()) return Json::boolean(boolean->get(), place);
    if (const auto* text = node.as_string()) return Json::string(text->get(), place);
    // Numbers as they were written, exact; a date becomes a string.
    return scalar_value(source_->text.substr(place.begin, place.end - place.begin), place);
  }

 private:
  Place place_of(const toml::source_region& region) const {
    const auto offset = [&](const toml::source_position& position) {
      return lines_.offset(static_cast<int>(position.line) - 1, static_cast<int>(position.column) - 1);
    };
    const std::size_t begin = offset(region.begin);
    return {source_, begin, std::max(begin, offset(region.end)), ""};
  }

  const std::shared_ptr<const Source>& source_;
  Lines lines_;
};

}  // namespace

Json read_toml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  if (source->text.size() > most_toml_bytes) {
    diagnostics.add({source, 0, 0, ""},
                    fmt::format("expected at most 1 MiB of TOML, found {} bytes", source->text.size()));
    return Json();
  }
  if (const auto at = TomlDepth(source->text).too_deep()) {
    diagnostics.add({source, *at, *at + 1, ""},
                    fmt::format("expected at most {} tables in each other, found more", deepest_table));
    return Json();
  }
  try {
    const toml::table table = toml::parse(source->text);
    return TomlConverter(source).convert(table);
  } catch (const toml::parse_error& error) {
    // Its description may quote the text, which may be a secret.
    const std::size_t at =
        Lines(source->text)
            .offset(static_cast<int>(error.source().begin.line) - 1, static_cast<int>(error.source().begin.column) - 1);
    diagnostics.add({source, at, at, ""}, "this is not valid TOML");
    return Json();
  }
}

#else

Json read_toml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  diagnostics.add({source, 0, 0, ""},
                  "this lockstep was built without toml++, so it cannot read TOML; see `lockstep version`");
  return Json();
}

#endif

}  // namespace lockstep::importers
