// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cctype>
#include <map>

#include "src/importers/redact.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

constexpr int deepest_value = 100;

class HjsonReader {
 public:
  HjsonReader(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics)
      : source_(source), text_(source->text), diagnostics_(diagnostics) {}

  Json read() {
    skip_space();
    Json result = here() == '{' || here() == '[' ? value(0) : members({source_, next_, next_, ""}, '\0', 0);
    skip_space();
    if (!failed_ && next_ < text_.size()) fail("expected the end of the file, found more");
    return failed_ ? Json() : result;
  }

 private:
  char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  char here() const { return at(next_); }
  Place place(std::size_t begin, std::size_t end) const { return {source_, begin, std::min(end, text_.size()), ""}; }

  void fail(const std::string& message) {
    if (!failed_) diagnostics_.add(place(next_, next_ + 1), message);
    failed_ = true;
    next_ = text_.size();
  }

  void skip_space() {
    while (next_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(here())) != 0) {
        ++next_;
      } else if (here() == '#' || (here() == '/' && at(next_ + 1) == '/')) {
        next_ = std::min(text_.find('\n', next_), text_.size());
      } else if (here() == '/' && at(next_ + 1) == '*') {
        const std::size_t end = text_.find("*/", next_ + 2);
        if (end == std::string_view::npos) {
          fail("this comment is not closed; expected \"*/\" after it");
          return;
        }
        next_ = end + 2;
      } else {
        return;
      }
    }
  }

  void skip_comma() {
    skip_space();
    if (here() == ',') ++next_;
    skip_space();
  }

  Json value(int depth) {
    if (depth > deepest_value) {
      fail(fmt::format("expected at most {} levels of nesting, found more", deepest_value));
      return Json();
    }
    const std::size_t begin = next_;
    if (here() == '{') {
      ++next_;
      return members(place(begin, begin + 1), '}', depth);
    }
    if (here() == '[') {
      ++next_;
      return items(begin, depth);
    }
    if (here() == '"' || here() == '\'') {
      std::string text = quoted();
      return Json::string(std::move(text), place(begin, next_));
    }
    return bare();
  }

  Json members(const Place& begin, char close, int depth) {
    std::vector<Json::Member> members;
    std::map<std::string, int> lines;
    for (skip_space(); here() != close || next_ >= text_.size(); skip_comma()) {
      if (next_ >= text_.size()) {
        if (close != '\0') fail("this object is not closed; expected \"}\"");
        break;
      }
      const std::size_t key_begin = next_;
      const std::string name = key();
      const Place key_place = place(key_begin, next_);
      skip_space();
      if (here() != ':') {
        fail("expected a colon behind the key");
        break;
      }
      ++next_;
      skip_space();
      Json content = value(depth + 1);
      if (failed_) break;
      const auto [first, is_new] = lines.emplace(name, line_column(key_place).line);
      if (!is_new) {
        diagnostics_.add(key_place, fmt::format("the key \"{}\" is given twice, first in line {}; keep one of them",
                                                shown_key(name), first->second));
      }
      members.push_back({name, key_place, std::move(content)});
    }
    if (close != '\0' && next_ < text_.size()) ++next_;
    Place whole = begin;
    whole.end = std::min(next_, text_.size());
    return Json::object(std::move(members), whole);
  }

  Json items(std::size_t begin, int depth) {
    std::vector<Json> list;
    for (skip_space(); here() != ']'; skip_comma()) {
      if (next_ >= text_.size()) {
        fail("this list is not closed; expected \"]\"");
        break;
      }
      list.push_back(value(depth + 1));
      if (failed_) break;
    }
    ++next_;
    return Json::array(std::move(list), place(begin, next_));
  }

  std::string key() {
    if (here() == '"' || here() == '\'') return quoted();
    const std::size_t begin = next_;
    while (next_ < text_.size() && std::string_view(" \t\r\n:,{}[]").find(here()) == std::string_view::npos) ++next_;
    if (next_ == begin) fail("expected a key");
    return std::string(text_.substr(begin, next_ - begin));
  }

  std::string quoted() {
    const char quote = here();
    if (text_.substr(next_).starts_with("'''")) {
      const std::size_t begin = next_ + 3, end = text_.find("'''", begin);
      if (end == std::string_view::npos) {
        fail("this text is not closed; expected ''' after it");
        return "";
      }
      next_ = end + 3;
      return std::string(text_.substr(begin, end - begin));
    }
    std::string result;
    std::size_t i = next_ + 1;
    for (; at(i) != quote; ++i) {
      if (i >= text_.size() || text_[i] == '\n') {
        fail("this string is not closed");
        return "";
      }
      if (text_[i] == '\\' && i + 1 < text_.size())
        ++i;  // no value that matters holds escapes: the character itself will do
      result += text_[i];
    }
    next_ = i + 1;
    return result;
  }

  /// A number, a word, or a string without quotes, which ends with its line.
  Json bare() {
    const std::size_t begin = next_;
    std::size_t word_end = begin;
    while (word_end < text_.size() && std::string_view(",]}#\n").find(text_[word_end]) == std::string_view::npos &&
           text_.substr(word_end, 2) != "//" && text_.substr(word_end, 2) != "/*") {
      ++word_end;
    }
    const auto trimmed = [&](std::size_t end) {
      while (end > begin && std::isspace(static_cast<unsigned char>(text_[end - 1])) != 0) --end;
      return end;
    };
    std::size_t end = trimmed(word_end);
    Json word = scalar_value(std::string(text_.substr(begin, end - begin)), place(begin, end));
    if (end > begin && !word.is_string()) {
      next_ = end;
      return word;
    }
    if (end == begin) {
      fail("expected a value");
      return Json();
    }
    end = trimmed(std::min(text_.find('\n', begin), text_.size()));
    next_ = end;
    return Json::string(std::string(text_.substr(begin, end - begin)), place(begin, end));
  }

  std::shared_ptr<const Source> source_;
  std::string_view text_;
  Diagnostics& diagnostics_;
  std::size_t next_ = 0;
  bool failed_ = false;
};

}  // namespace

Json read_hjson(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  return HjsonReader(source, diagnostics).read();
}

}  // namespace lockstep::importers
