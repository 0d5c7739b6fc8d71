// SPDX-License-Identifier: Apache-2.0
#include "lockstep/json.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "lockstep/rational.h"
#include "src/base/utf8.h"

namespace lockstep {

/// Strings and numbers both hold text; `kind` tells them apart.
struct Json::Node {
  Kind kind = Kind::null;
  Place place;
  std::variant<std::monostate, bool, std::string, std::vector<Json>, std::vector<Member>> content;
};

namespace {

/// Longer strings are cut where a message quotes them.
constexpr std::size_t longest_text = 60;

bool same_number(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto x = Rational::parse(a), y = Rational::parse(b);
  return x && y && *x == *y;
}

}  // namespace

Json::Json() = default;

Json Json::boolean(bool value, Place place) {
  Json result;
  result.node_ = std::make_shared<Node>(Node{Kind::boolean, std::move(place), value});
  return result;
}

Json Json::number(std::string text, Place place) {
  Json result;
  result.node_ = std::make_shared<Node>(Node{Kind::number, std::move(place), std::move(text)});
  return result;
}

Json Json::string(std::string text, Place place) {
  Json result;
  result.node_ = std::make_shared<Node>(Node{Kind::string, std::move(place), std::move(text)});
  return result;
}

Json Json::array(std::vector<Json> items, Place place) {
  Json result;
  result.node_ = std::make_shared<Node>(Node{Kind::array, std::move(place), std::move(items)});
  return result;
}

Json Json::object(std::vector<Member> members, Place place) {
  Json result;
  result.node_ = std::make_shared<Node>(Node{Kind::object, std::move(place), std::move(members)});
  return result;
}

Json::Kind Json::kind() const { return node_ ? node_->kind : Kind::null; }

const Place& Json::place() const {
  static const Place nowhere;
  return node_ ? node_->place : nowhere;
}

Json Json::at(const Place& place) const {
  Json result;
  result.node_ = node_ ? std::make_shared<Node>(*node_) : std::make_shared<Node>();
  result.node_->place = place;
  return result;
}

bool Json::as_boolean() const {
  if (!is_boolean()) throw InternalError("as_boolean() of " + describe());
  return std::get<bool>(node_->content);
}

const std::string& Json::text() const {
  if (!is_string() && !is_number()) throw InternalError("text() of " + describe());
  return std::get<std::string>(node_->content);
}

const std::vector<Json>& Json::items() const {
  static const std::vector<Json> none;
  return is_array() ? std::get<std::vector<Json>>(node_->content) : none;
}

const std::vector<Json::Member>& Json::members() const {
  static const std::vector<Member> none;
  return is_object() ? std::get<std::vector<Member>>(node_->content) : none;
}

const Json* Json::find(std::string_view key) const {
  for (const Member& member : members()) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

void Json::set(std::string_view key, Json value) {
  if (!is_object()) throw InternalError("set(\"" + std::string(key) + "\") on " + describe());
  if (node_.use_count() > 1) node_ = std::make_shared<Node>(*node_);
  auto& members = std::get<std::vector<Member>>(node_->content);
  const auto same = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.key == key; });
  Member member{std::string(key), value.place(), std::move(value)};
  if (same == members.end()) {
    members.push_back(std::move(member));
  } else {
    *same = std::move(member);
  }
}

void Json::remove(std::string_view key) {
  if (find(key) == nullptr) return;
  if (node_.use_count() > 1) node_ = std::make_shared<Node>(*node_);
  auto& members = std::get<std::vector<Member>>(node_->content);
  members.erase(std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.key == key; }));
}

void Json::set_items(std::vector<Json> items) {
  if (!is_array()) throw InternalError("set_items() on " + describe());
  node_ = std::make_shared<Node>(Node{Kind::array, node_->place, std::move(items)});
}

std::string Json::describe() const {
  switch (kind()) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return as_boolean() ? "true" : "false";
    case Kind::number:
      return "the number " + shortened(text(), longest_text);
    case Kind::string:
      return "the string \"" + shortened(text(), longest_text) + "\"";
    case Kind::array:
      return "an array";
    case Kind::object:
      return "an object";
  }
  throw InternalError("a JSON value of no kind");
}

bool Json::same_as(const Json& other) const {
  if (node_ == other.node_) return true;
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::null:
      return true;
    case Kind::boolean:
      return as_boolean() == other.as_boolean();
    case Kind::number:
      return same_number(text(), other.text());
    case Kind::string:
      return text() == other.text();
    case Kind::array:
      return std::equal(items().begin(), items().end(), other.items().begin(), other.items().end(),
                        [](const Json& a, const Json& b) { return a.same_as(b); });
    case Kind::object: {
      // Members may come in any order: both sides are sorted by key.
      if (members().size() != other.members().size()) return false;
      const auto by_key = [](const Json& object) {
        std::vector<const Member*> sorted;
        for (const Member& member : object.members()) sorted.push_back(&member);
        std::sort(sorted.begin(), sorted.end(), [](const Member* a, const Member* b) { return a->key < b->key; });
        return sorted;
      };
      const auto mine = by_key(*this), theirs = by_key(other);
      return std::equal(mine.begin(), mine.end(), theirs.begin(), [](const Member* a, const Member* b) {
        return a->key == b->key && a->value.same_as(b->value);
      });
    }
  }
  throw InternalError("a JSON value of no kind");
}

}  // namespace lockstep
