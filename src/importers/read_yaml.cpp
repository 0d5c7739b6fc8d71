// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/importers/redact.h"
#include "src/importers/syntax.h"

#ifdef LOCKSTEP_YAML
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#endif

namespace lockstep::importers {

#ifdef LOCKSTEP_YAML

namespace {

constexpr int deepest_node = 100;
constexpr std::size_t most_bytes = 1 << 20;  // configurations are far smaller
constexpr int most_values = 200'000;         // aliases can stand for more than any file holds
constexpr std::size_t most_text = 1 << 24;   // likewise, for an alias of a long text

class YamlConverter {
 public:
  YamlConverter(const std::shared_ptr<const Source>& source, const std::function<bool(const std::string&)>& may_repeat,
                Diagnostics& diagnostics)
      : source_(source), lines_(source->text), may_repeat_(may_repeat), diagnostics_(diagnostics) {}

  Json convert(const YAML::Node& node, int depth) {
    const Place place = place_of(node);
    if (failed_) return Json();
    if (depth > deepest_node || ++values_ > most_values) {
      diagnostics_.add(place, depth > deepest_node
                                  ? fmt::format("expected at most {} levels of nesting, found more", deepest_node)
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
    text_ += node.Scalar().size();
    if (text_ > most_text) {
      diagnostics_.add(place,
                       fmt::format("expected at most {} MiB of text behind aliases, found more", most_text >> 20));
      failed_ = true;
      return Json();
    }
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
        if (same != members.end() && may_repeat_ && may_repeat_(key)) {
          same->value = std::move(value);
        } else if (same == members.end() || !same->value.same_as(value)) {
          diagnostics_.add(
              key_place,
              fmt::format("the key \"{}\" is given twice with different values, first in line {}; keep one of them",
                          shown_key(key), first->second));
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
  const std::function<bool(const std::string&)>& may_repeat_;
  Diagnostics& diagnostics_;
  int values_ = 0;
  std::size_t text_ = 0;
  bool failed_ = false;
};

/// Where each document of a stream begins. YAML::LoadAll would do, but after a stray bracket yaml-cpp 0.7 finds
/// documents without end in the same place, so no more than two are asked for.
class Documents : public YAML::EventHandler {
 public:
  explicit Documents(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (count_ < 2 && parser.HandleNextDocument(*this)) ++count_;
  }

  int count() const { return count_; }
  /// Of the second one.
  const YAML::Mark& last() const { return last_; }

  void OnDocumentStart(const YAML::Mark& mark) override { last_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int count_ = 0;
  YAML::Mark last_;
};

}  // namespace

Json read_yaml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics,
               const std::function<bool(const std::string&)>& may_repeat) {
  if (source->text.size() > most_bytes) {
    diagnostics.add({source, 0, 0, ""},
                    fmt::format("expected at most 1 MiB of YAML, found {} bytes", source->text.size()));
    return Json();
  }
  try {
    const Documents documents(source->text);
    if (documents.count() > 1) {
      const std::size_t at = Lines(source->text).offset(documents.last().line, documents.last().column);
      diagnostics.add({source, at, at, ""}, source->text.compare(at, 3, "---") == 0
                                                ? "expected one YAML document, found a second one"
                                                : "this is not valid YAML: expected the end of the file here");
      return Json();
    }
    const YAML::Node document = YAML::Load(source->text);
    if (document.IsNull()) {
      diagnostics.add({source, 0, 0, ""}, "the file is empty; expected YAML");
      return Json();
    }
    return YamlConverter(source, may_repeat, diagnostics).convert(document, 0);
  } catch (const YAML::Exception& error) {
    // Its message may quote the text, which may be a secret.
    const std::size_t at = Lines(source->text).offset(error.mark.line, error.mark.column);
    const bool quotes = error.msg.find('"') != std::string::npos || error.msg.find('\'') != std::string::npos;
    diagnostics.add({source, at, at, ""}, quotes ? "this is not valid YAML" : "this is not valid YAML: " + error.msg);
    return Json();
  }
}

#else

Json read_yaml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics,
               const std::function<bool(const std::string&)>&) {
  diagnostics.add({source, 0, 0, ""},
                  "this lockstep was built without yaml-cpp, so it cannot read YAML; see `lockstep version`");
  return Json();
}

#endif

}  // namespace lockstep::importers
