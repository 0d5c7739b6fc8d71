// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/prove.h"

namespace lockstep::test {

/// What the sentence of a proof says of single sizes, read as a person does.
class Statement {
 public:
  enum class Says { right, wrong, either };

  explicit Statement(std::string text) : text_(std::move(text)) {
    cut_off(", of the sizes that both allow");
    // Axes that stay as they are, as in "right for every size, with pp = 1", are not among the open ones.
    text_ = text_.substr(0, text_.find(", with "));
    cut_off(", of the sizes that could be followed");
    has_others_ = cut_off(", and perhaps at others");
    for (const auto& [word, instead] : {std::pair<std::string, std::string>("the same gradients", "right"),
                                        {"other gradients", "wrong"},
                                        {"a cut gives", "its cuts give"}}) {
      for (std::size_t at = 0; (at = text_.find(word, at)) != std::string::npos; at += instead.size())
        text_.replace(at, word.size(), instead);
    }
    by_cut_ = cut_off(", wherever its cuts give an element these owners");
    cut_at(text_, "; also ", also_);
    if (!also_.empty()) by_cut_ = false;
  }

  Says at(const Sizes& sizes) const {
    const Says says = named(sizes);
    return says == Says::right && has_others_ ? Says::either : says;
  }

  /// Whether sizes are in "dp ≥ 2 and pp = 1"; all are in "".
  static bool holds(const std::string& conditions, const Sizes& sizes) {
    for (const std::string& part : parts(conditions)) {
      if (!condition(part, sizes)) return false;
    }
    return true;
  }

 private:
  Says named(const Sizes& sizes) const {
    if (also_.empty()) return said(sizes);
    const Says says = said(sizes);
    return says == Says::right && Statement(also_).said(sizes) != Says::right ? Says::either : says;
  }
  Says said(const Sizes& sizes) const {
    if (text_ == "right" || text_ == "right for every size" || text_ == "right at the one size that it has")
      return Says::right;
    const auto wrong = [&](bool is) { return !is ? Says::right : by_cut_ ? Says::either : Says::wrong; };
    std::string rest;
    if (after("right only at ", rest)) return wrong(!holds(rest, sizes));
    std::string but;
    if (after("wrong as soon as ", rest)) {
      cut_at(rest, ", but not at ", but);
      return wrong(any(rest, ", or ", sizes) && !any(split(but, " or "), sizes));
    }
    if (text_.find(" unless ") == std::string::npos && after("wrong for every size", rest)) {
      if (rest.empty()) return wrong(true);
      return wrong(!any(split(rest.substr(std::string(" but ").size()), " or "), sizes));
    }
    if (text_.find(" unless ") == std::string::npos && after("wrong for every ", rest)) {
      cut_at(rest, " but ", but);
      return wrong(holds(rest, sizes) && !any(split(but, " or "), sizes));
    }
    if (!after("wrong for ", rest)) throw std::runtime_error("not a statement: " + text_);
    Says says = Says::right;
    for (std::string box : split(rest, "; for ")) {
      std::string unless, where;
      cut_at(box, " unless ", unless);
      cut_at(box, " where ", where);
      if (!any(box == "every size" ? "" : box, ", or ", sizes)) continue;
      if (where.empty() && (unless.empty() || product(unless, sizes) == Says::wrong)) return wrong(true);
      if (!where.empty() || product(unless, sizes) == Says::either) says = Says::either;
    }
    return says;
  }

  static std::vector<std::string> split(const std::string& text, const std::string& by) {
    std::vector<std::string> found;
    std::size_t at = 0;
    for (std::size_t next = text.find(by); next != std::string::npos; next = text.find(by, at)) {
      found.push_back(text.substr(at, next - at));
      at = next + by.size();
    }
    found.push_back(text.substr(at));
    return found;
  }
  static std::vector<std::string> parts(const std::string& list) {
    std::vector<std::string> found;
    if (list.empty()) return found;
    for (const std::string& some : split(list, ", ")) {
      for (const std::string& one : split(some, " and ")) found.push_back(one);
    }
    return found;
  }
  static bool condition(const std::string& text, const Sizes& sizes) {
    const std::vector<std::string> words = split(text, " ");
    if (words.size() == 5 && words[1] == "≤" && words[3] == "≤")  // "2 ≤ dp ≤ 64"
      return condition(words[2] + " ≥ " + words[0], sizes) &&
             !condition(words[2] + " ≥ " + std::to_string(std::atoi(words[4].c_str()) + 1), sizes);
    if (words.size() != 3) throw std::runtime_error("not a condition: " + text);
    const int size = words[0] == "micro_batches" ? *sizes.micro_batches : sizes.axes.at(*axis_named(words[0]));
    const int number = std::atoi(words[2].c_str());
    return words[1] == "=" ? size == number : words[1] == "≠" ? size != number : size >= number;
  }
  /// Right where "cp*dp = 2*sp", or one of "dp = 3 or dp = 7", holds; a sum of several terms is not read.
  static Says product(const std::string& text, const Sizes& sizes) {
    const std::vector<std::string> several = split(text, " or ");
    if (several.size() > 1) return any(several, sizes) ? Says::right : Says::wrong;
    const std::vector<std::string> sides = split(text, " = ");
    if (sides.size() != 2 || text.find_first_of("+-/ ") != text.find(' ')) return Says::either;
    std::int64_t values[] = {1, 1};
    for (std::size_t i = 0; i < 2; ++i) {
      for (const std::string& word : split(sides[i], "*")) {
        if (word.find_first_not_of("0123456789") == std::string::npos) {
          values[i] *= std::atoi(word.c_str());
        } else {
          values[i] *= word == "micro_batches" ? *sizes.micro_batches : sizes.axes.at(*axis_named(word));
        }
      }
    }
    return values[0] == values[1] ? Says::right : Says::wrong;
  }
  static bool any(const std::vector<std::string>& conditions, const Sizes& sizes) {
    for (const std::string& one : conditions) {
      if (!one.empty() && condition(one, sizes)) return true;
    }
    return false;
  }
  static bool any(const std::string& text, const std::string& by, const Sizes& sizes) {
    for (const std::string& one : split(text, by)) {
      if (holds(one, sizes)) return true;
    }
    return false;
  }
  static void cut_at(std::string& text, const std::string& mark, std::string& rest, bool keep_mark = false) {
    const std::size_t at = text.find(mark);
    if (at == std::string::npos) return;
    rest = text.substr(at + (keep_mark ? 0 : mark.size()));
    text.resize(at);
  }
  bool cut_off(const std::string& end) {
    const bool has = text_.size() >= end.size() && text_.compare(text_.size() - end.size(), end.size(), end) == 0;
    if (has) text_.resize(text_.size() - end.size());
    return has;
  }
  bool after(const std::string& start, std::string& rest) const {
    if (text_.compare(0, start.size(), start) != 0) return false;
    rest = text_.substr(start.size());
    return true;
  }

  std::string text_, also_;
  bool by_cut_ = false, has_others_ = false;
};

}  // namespace lockstep::test
