// SPDX-License-Identifier: Apache-2.0
// nlohmann_json checks the grammar and decodes strings. Its events carry no positions before
// version 3.12, and what it passes for numbers is rounded; but between two events there is nothing
// but white space, a colon or a comma, so each event finds its own bytes in the text.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "lockstep/json.h"
#include "src/base/json_filter.h"
#include "src/base/json_syntax_error.h"

namespace lockstep {

namespace {

constexpr std::size_t deepest = 200;
constexpr std::size_t most_values = 2'000'000;  // half a gigabyte of them
constexpr std::size_t longest_pointer = 4000;   // every value keeps its own: without a limit, quadratic memory

/// As RFC 6901 has it in a JSON pointer.
std::string escaped(const std::string& key) {
  std::string result;
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

/// Of the number that `text`, which is known to begin with one, begins with.
std::size_t number_length(std::string_view text) {
  std::size_t i = 0;
  const auto skip_any_of = [&](std::string_view set, bool once) {
    while (i < text.size() && set.find(text[i]) != std::string_view::npos) {
      ++i;
      if (once) return true;
    }
    return false;
  };
  skip_any_of("-", true);
  if (!skip_any_of("0", true)) skip_any_of("0123456789", false);
  if (skip_any_of(".", true)) skip_any_of("0123456789", false);
  if (skip_any_of("eE", true)) {
    skip_any_of("+-", true);
    skip_any_of("0123456789", false);
  }
  return i;
}

class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::shared_ptr<const Source> source, std::string_view text, Diagnostics& diagnostics)
      : source_(std::move(source)), text_(text), diagnostics_(diagnostics) {}

  Json take_root() { return std::move(root_); }

  bool null() override { return add(Json().at(take_word(4))); }
  bool boolean(bool value) override { return add(Json::boolean(value, take_word(value ? 4 : 5))); }
  bool number_integer(number_integer_t) override { return number(); }
  bool number_unsigned(number_unsigned_t) override { return number(); }
  bool number_float(number_float_t, const string_t&) override { return number(); }
  bool string(string_t& value) override {
    Place place = take_string();
    return add(Json::string(std::move(value), std::move(place)));
  }
  bool binary(binary_t&) override { throw InternalError("a JSON text with binary values"); }

  bool start_object(std::size_t) override { return open(Json::Kind::object); }
  bool start_array(std::size_t) override { return open(Json::Kind::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    Frame& frame = frames_.back();
    Place place = take_string();
    frame.key = std::move(value);
    std::string pointer = frame.place.pointer.text() + "/" + escaped(frame.key);
    last_ = After::key;
    if (pointer.size() > longest_pointer) {
      place.pointer = {};
      diagnostics_.add(place, fmt::format("the keys around this value are {} bytes long together; expected at most {}",
                                          frame.place.pointer.text().size() + frame.key.size() + 1, longest_pointer));
      return false;
    }
    place.pointer = std::move(pointer);
    const auto [first, is_new] = frame.keys.emplace(frame.key, place.begin);
    frame.is_duplicate = !is_new;
    if (!is_new) {
      const int line = line_column({source_, first->second, first->second, ""}).line;
      diagnostics_.add(
          place, fmt::format("the key \"{}\" is given twice, first in line {}; keep one of them", frame.key, line));
    }
    frame.key_place = std::move(place);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    JsonPosition position{last_, begin_, end_, bare_, JsonPosition::Container::none, 0, ""};
    Place place{source_, 0, 0, ""};
    if (!frames_.empty()) {
      const Frame& frame = frames_.back();
      position.container = frame.is_object ? JsonPosition::Container::object : JsonPosition::Container::array;
      position.container_line = line_column(frame.place).line;
      position.key = frame.key;
    }
    JsonSyntaxError found = explain_json_syntax_error(text_, position);
    if (!frames_.empty()) {
      const Frame& frame = frames_.back();
      const bool in_member = last_ == After::key || (last_ == After::value && found.begin == begin_);
      place.pointer = frame.is_object && in_member ? frame.key_place.pointer : frame.place.pointer;
    }
    constexpr int out_of_range = 406;
    if (error.id == out_of_range) {
      found.message = "this number is too large; expected one below 1e308";
    }
    place.begin = found.begin;
    place.end = found.end;
    diagnostics_.add(place, std::move(found.message));
    return false;
  }

 private:
  using After = JsonPosition::After;

  /// A container that is not closed yet.
  struct Frame {
    bool is_object = false;
    Place place;
    std::vector<Json> items;
    std::vector<Json::Member> members;
    std::unordered_map<std::string, std::size_t> keys;  // where each was given first
    std::string key;
    Place key_place;
    bool is_duplicate = false;
  };

  /// The place of the next `length(rest of the text)` bytes behind white space, colon and comma.
  template <typename Length>
  Place take(Length length) {
    begin_ = text_.find_first_not_of(" \t\r\n:,", end_);
    end_ = begin_ + length(text_.substr(begin_));
    return {source_, begin_, end_, value_pointer()};
  }

  Place take_word(std::size_t length) {
    bare_ = true;
    return take([length](std::string_view) { return length; });
  }

  Place take_number() {
    bare_ = true;
    return take(number_length);
  }

  Place take_string() {
    bare_ = false;
    return take([](std::string_view rest) {
      std::size_t i = 1;
      while (rest[i] != '"') i += rest[i] == '\\' ? 2 : 1;
      return i + 1;
    });
  }

  Place take_bracket() {
    bare_ = false;
    return take([](std::string_view) { return std::size_t{1}; });
  }

  SharedText value_pointer() const {
    if (frames_.empty()) return {};
    const Frame& frame = frames_.back();
    return frame.is_object ? frame.key_place.pointer
                           : SharedText(frame.place.pointer.text() + "/" + std::to_string(frame.items.size()));
  }

  bool number() {
    Place place = take_number();
    return add(Json::number(std::string(text_.substr(place.begin, place.end - place.begin)), std::move(place)));
  }

  bool open(Json::Kind kind) {
    Place place = take_bracket();
    if (frames_.size() == deepest) {
      diagnostics_.add(place, fmt::format("expected at most {} levels of nesting, found more", deepest));
      return false;
    }
    Frame& frame = frames_.emplace_back();
    frame.is_object = kind == Json::Kind::object;
    frame.place = std::move(place);
    last_ = After::open_bracket;
    return true;
  }

  bool close() {
    take_bracket();
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    frame.place.end = end_;
    return add(frame.is_object ? Json::object(std::move(frame.members), std::move(frame.place))
                               : Json::array(std::move(frame.items), std::move(frame.place)));
  }

  bool add(Json value) {
    last_ = After::value;
    if (++values_ > most_values) {
      diagnostics_.add(value.place(), fmt::format("expected at most {} values in a file, found more", most_values));
      return false;
    }
    if (frames_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Frame& frame = frames_.back();
    if (!frame.is_object) {
      frame.items.push_back(std::move(value));
    } else if (!frame.is_duplicate) {
      frame.members.push_back({frame.key, frame.key_place, std::move(value)});
    }
    return true;
  }

  std::shared_ptr<const Source> source_;
  std::string_view text_;
  Diagnostics& diagnostics_;
  std::vector<Frame> frames_;
  Json root_;
  After last_ = After::nothing;
  std::size_t begin_ = 0, end_ = 0;  // of the last thing read
  std::size_t values_ = 0;
  bool bare_ = false;
};

}  // namespace

Json parse_json(std::shared_ptr<const Source> source, Diagnostics& diagnostics) {
  const std::optional<std::string> text = plain_json_text(source, diagnostics);
  if (!text) return Json();
  Builder builder(std::move(source), *text, diagnostics);
  const bool whole = nlohmann::json::sax_parse(text->data(), text->data() + text->size(), &builder);
  return whole ? builder.take_root() : Json();
}

}  // namespace lockstep
