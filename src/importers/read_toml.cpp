// SPDX-License-Identifier: Apache-2.0
#include "src/importers/syntax.h"

#ifdef LOCKSTEP_TOML
#include <toml++/toml.h>

#include <algorithm>
#endif

namespace lockstep {

#ifdef LOCKSTEP_TOML

namespace {

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

}  // namespace lockstep
