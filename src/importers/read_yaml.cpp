// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/importers/syntax.h"

#ifdef LOCKSTEP_YAML
#include <yaml-cpp/yaml.h>
#endif

namespace lockstep {

#ifdef LOCKSTEP_YAML

namespace {

constexpr int deepest = 100;
constexpr std::size_t most_bytes = 1 << 20;  // configurations are far smaller
constexpr int most_values = 200'000;         // aliases can stand for more than any file holds

class Converter {
 public:
  Converter(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics)
      : source_(source), lines_(source->text), diagnostics_(diagnostics) {}

  Json convert(const YAML::Node& node, int depth) {
    const Place place = place_of(node);
    if (failed_) return Json();
    if (depth > deepest || ++values_ > most_values) {
      diagnostics_.add(place, depth > deepest
                                  ? fmt::format("expected at most {} levels of nesting, found more", deepest)
                                  : fmt::format("expected at most {} values, found more", most_values));
      failed_ = true;
      return Json();
    }
    if (node.IsMap()) return map(node, place, depth);
    if (node.IsSequence()) {
      std::vector<Json> items;
      for (const YAML::Node& item : node) items.push_back(convert(item, depth + 1));
      return Json::array(std::move(items), place);
    }
    if (!node.IsScalar()) return Json().at(place);
    const std::string& tag = node.Tag();
    const bool text = tag == "!" || tag.ends_with(":str");
    return text ? Json::string(node.Scalar(), place) : scalar_value(node.Scalar(), place);
  }

 private:
  Json map(const YAML::Node& node, const Place& place, int depth) {
    Json object = Json::object({}, place);
    std::map<std::string, int> lines;
    Json merged = Json::object();
    std::vector<Json::Member> members;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) {
        diagnostics_.add(place_of(entry.first), "expected a name as the key, found a list or map");
        continue;
      }
      const std::string key = entry.first.Scalar();
      const Place key_place = place_of(entry.first);
      Json value = convert(entry.second, depth + 1);
      if (key == "<<") {
        merge(value, merged);
        continue;
      }
      const auto [first, is_new] = lines.emplace(key, line_column(key_place).line);
      if (!is_new) {
        // Given twice with one value, it is a matter of taste.
        const auto same =
            std::find_if(members.begin(), members.end(), [&](const Json::Member& member) { return member.key == key; });
        if (same == members.end() || !same->value.same_as(value)) {
          diagnostics_.add(
              key_place,
              fmt::format("the key \"{}\" is given twice with different values, first in line {}; keep one of them",
                          key, first->second));
        }
        continue;
      }
      members.push_back({key, key_place, std::move(value)});
    }
    for (const Json::Member& member : merged.members()) {
      if (!lines.contains(member.key)) members.push_back(member);
    }
    return Json::object(std::move(members), place);
  }

  /// `<<: *other`, or a list of such.
  void merge(const Json& value, Json& into) {
    for (const Json& item : value.items()) merge(item, into);
    std::vector<Json::Member> members = into.members();
    for (const Json::Member& member : value.members()) {
      if (into.find(member.key) == nullptr) members.push_back(member);
    }
    into = Json::object(std::move(members));
  }

  Place place_of(const YAML::Node& node) const {
    const YAML::Mark mark = node.Mark();
    if (mark.is_null()) return {source_, 0, 0, ""};
    const std::size_t begin = lines_.offset(mark.line, mark.column);
    std::size_t length = 1;
    if (node.IsScalar()) {
      const char first = begin < source_->text.size() ? source_->text[begin] : ' ';
      length = node.Scalar().size() + (first == '"' || first == '\'' ? 2 : 0);
      const std::size_t line_end = std::min(source_->text.find('\n', begin), source_->text.size());
      length = std::min(length, line_end - begin);
    }
    return {source_, begin, std::min(begin + length, source_->text.size()), ""};
  }

  const std::shared_ptr<const Source>& source_;
  Lines lines_;
  Diagnostics& diagnostics_;
  int values_ = 0;
  bool failed_ = false;
};

}  // namespace

Json read_yaml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  if (source->text.size() > most_bytes) {
    diagnostics.add({source, 0, 0, ""},
                    fmt::format("expected at most 1 MiB of YAML, found {} bytes", source->text.size()));
    return Json();
  }
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(source->text);
    if (documents.size() != 1) {
      diagnostics.add({source, 0, 0, ""}, documents.empty()
                                              ? "the file is empty; expected YAML"
                                              : fmt::format("expected one YAML document, found {}", documents.size()));
      return Json();
    }
    return Converter(source, diagnostics).convert(documents.front(), 0);
  } catch (const YAML::Exception& error) {
    // Its message may quote the text, which may be a secret.
    const std::size_t at = Lines(source->text).offset(error.mark.line, error.mark.column);
    const bool quotes = error.msg.find('"') != std::string::npos || error.msg.find('\'') != std::string::npos;
    diagnostics.add({source, at, at, ""}, quotes ? "this is not valid YAML" : "this is not valid YAML: " + error.msg);
    return Json();
  }
}

#else

Json read_yaml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  diagnostics.add({source, 0, 0, ""},
                  "this lockstep was built without yaml-cpp, so it cannot read YAML; see `lockstep version`");
  return Json();
}

#endif

}  // namespace lockstep
