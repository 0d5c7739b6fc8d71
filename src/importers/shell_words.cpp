// SPDX-License-Identifier: Apache-2.0
#include "src/importers/shell_words.h"

#include <fmt/format.h>

#include <cctype>
#include <optional>

#include "src/importers/shell.h"

namespace lockstep::importers {

namespace {

constexpr int deepest_word = 30;

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

bool is_shell_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_shell_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::size_t shell_name_length(std::string_view text) {
  if (text.empty() || !is_name_start(text[0])) return 0;
  std::size_t length = 1;
  while (length < text.size() && is_shell_name_character(text[length])) ++length;
  return length;
}

/// Words in the making: what stands in quotes or side by side joins, what an unquoted variable holds is split.
class ShellWordList {
 public:
  explicit ShellWordList(ShellBudget& budget) : budget_(budget) {}

  void piece(const Word& word) {
    budget_.spend(word);
    check_word_count(words_.size());
    if (open_) {
      join(current_, word);
    } else {
      current_ = word;
    }
    open_ = true;
  }
  void end() {
    if (open_) words_.push_back(std::move(current_));
    current_ = {};
    open_ = false;
  }
  /// The text of an unquoted variable.
  void split(const Word& word) {
    const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    if (word.text.empty()) return;
    if (is_space(word.text.front())) end();
    bool first = true;
    for (const Word& part : split_word(word)) {
      if (!first) end();
      piece(part);
      first = false;
    }
    if (is_space(word.text.back())) end();
  }
  std::vector<Word> take() {
    end();
    return std::move(words_);
  }

 private:
  ShellBudget& budget_;
  std::vector<Word> words_;
  Word current_;
  bool open_ = false;
};

void ShellWords::skip_blanks() {
  while (next_ < text_.size()) {
    if (is_shell_blank(here())) {
      ++next_;
    } else if (here() == '\\' && at(next_ + 1) == '\n') {
      next_ += 2;
    } else if (here() == '\\' && at(next_ + 1) == '\r' && at(next_ + 2) == '\n') {
      next_ += 3;
    } else if (here() == '#') {
      next_ = std::min(text_.find('\n', next_), text_.size());
    } else {
      return;
    }
  }
}

std::vector<Word> ShellWords::read_word(bool whole) {
  ShellWordList list(variables_.budget());
  const std::size_t begin = next_;
  while (next_ < text_.size() && !is_shell_blank(here()) &&
         std::string_view("\n;&|()<>").find(here()) == std::string_view::npos) {
    const char c = here();
    if (c == '\'') {
      const std::size_t end = std::min(text_.find('\'', next_ + 1), text_.size());
      list.piece({std::string(text_.substr(next_ + 1, end - next_ - 1)), place(next_ + 1, end), ""});
      next_ = std::min(end + 1, text_.size());
    } else if (c == '"') {
      read_quoted(list);
    } else if (c == '\\') {
      if (at(next_ + 1) == '\n') {  // joins what stands in two lines
        next_ += 2;
        continue;
      }
      list.piece({std::string(1, at(next_ + 1)), place(next_, next_ + 2), ""});
      next_ = std::min(next_ + 2, text_.size());
    } else if (c == '$' || c == '`') {
      read_expansion(list, whole);
    } else {
      std::size_t end = next_;
      while (end < text_.size() && std::string_view(" \t\r\n;&|()<>'\"\\$`").find(text_[end]) == std::string_view::npos)
        ++end;
      list.piece({std::string(text_.substr(next_, end - next_)), place(next_, end), ""});
      next_ = end;
    }
  }
  std::vector<Word> words = list.take();
  if (words.size() == 1 && words.front().place.source == nullptr) words.front().place = place(begin, next_);
  return words;
}

std::size_t ShellWords::closing(std::size_t begin, char open, char close) const {
  int depth = 1;
  for (std::size_t i = begin; i < text_.size(); ++i) {
    if (text_[i] == '\\') {
      ++i;
    } else if (text_[i] == open) {
      ++depth;
    } else if (text_[i] == close && --depth == 0) {
      return i + 1;
    }
  }
  return text_.size();
}

void ShellWords::set_unknown(const std::string& name, std::size_t at) {
  variables_.set(
      name,
      {unknown_word(place(at, at),
                    fmt::format("{} is set in line {} by something that is not executed here; give --set {}=VALUE",
                                name, line(at), name))},
      false);
}

void ShellWords::set_changed_unknown(std::string_view expression, std::size_t at) {
  const auto skip = [&](std::size_t i) {
    while (i < expression.size() && std::isspace(static_cast<unsigned char>(expression[i])) != 0) ++i;
    return i;
  };
  bool steps = false;  // ++ or -- in front
  for (std::size_t i = 0; i < expression.size();) {
    const std::string_view rest = expression.substr(i);
    const std::size_t length = shell_name_length(rest);
    if (length == 0) {
      const bool step = rest.starts_with("++") || rest.starts_with("--");
      if (std::isspace(static_cast<unsigned char>(rest[0])) == 0) steps = step;
      // Digits swallow the letters behind them: 0x10 is no name.
      const bool digit = std::isdigit(static_cast<unsigned char>(rest[0])) != 0;
      i += step ? 2 : 1;
      while (digit && i < expression.size() && is_shell_name_character(expression[i])) ++i;
      continue;
    }
    std::string_view behind = expression.substr(skip(i + length));
    bool changes = steps || behind.starts_with("++") || behind.starts_with("--");
    const std::size_t operation = std::min(behind.find_first_not_of("+-*/%&|^<>"), behind.size());
    const bool compares = operation == 1 && (behind[0] == '<' || behind[0] == '>');
    behind.remove_prefix(operation);
    changes = changes || (!compares && behind.starts_with("=") && !behind.starts_with("=="));
    if (changes) set_unknown(std::string(rest.substr(0, length)), at);
    steps = false;
    i += length;
  }
}

void ShellWords::read_quoted(ShellWordList& list) {
  const std::size_t begin = ++next_;
  list.piece({"", place(begin, begin), ""});
  while (next_ < text_.size() && here() != '"') {
    if (here() == '\\' && next_ + 1 < text_.size()) {
      const char escaped = at(next_ + 1);
      if (escaped != '\n') {
        const bool special = std::string_view("\"\\$`").find(escaped) != std::string_view::npos;
        list.piece({special ? std::string(1, escaped) : std::string{'\\', escaped}, place(next_, next_ + 2), ""});
      }
      next_ += 2;
    } else if (here() == '$' || here() == '`') {
      read_expansion(list, true);
    } else {
      std::size_t end = next_;
      while (end < text_.size() && std::string_view("\"\\$`").find(text_[end]) == std::string_view::npos) ++end;
      list.piece({std::string(text_.substr(next_, end - next_)), place(next_, end), ""});
      next_ = end;
    }
  }
  if (next_ < text_.size()) ++next_;
}

void ShellWords::add(ShellWordList& list, const Word& word, bool quoted) {
  if (quoted) {
    list.piece(word);
  } else {
    list.split(word);
  }
}

void ShellWords::read_expansion(ShellWordList& list, bool quoted) {
  const std::size_t begin = next_;
  const std::string_view rest = text_.substr(next_);
  if (rest.starts_with("$((")) {
    const std::size_t end = closing(next_ + 3, '(', ')');
    const std::size_t stop = end > next_ + 3 ? end - 1 : end;
    next_ = std::min(at(end) == ')' ? end + 1 : end, text_.size());
    add(list, arithmetic(text_.substr(begin + 3, stop - begin - 3), place(begin, next_)), quoted);
  } else if (rest.starts_with("$(") || rest.starts_with('`')) {
    const bool old = rest.starts_with('`');
    const std::size_t end = old ? std::min(text_.find('`', next_ + 1), text_.size()) : closing(next_ + 2, '(', ')');
    next_ = std::min(old ? end + 1 : end, text_.size());
    list.piece(
        unknown_word(place(begin, next_),
                     fmt::format("line {} needs the output of a command, and nothing is executed here", line(begin))));
  } else if (rest.starts_with("${")) {
    const std::size_t end = closing(next_ + 2, '{', '}');
    next_ = end;
    braced(list, text_.substr(begin + 2, end > begin + 3 ? end - begin - 3 : 0), place(begin, end), quoted);
  } else {
    std::size_t length = shell_name_length(rest.substr(1));
    if (length == 0 && rest.size() > 1 && std::string_view("0123456789@*#?!$-").find(rest[1]) != std::string_view::npos)
      length = 1;
    if (length == 0) {
      list.piece({"$", place(begin, begin + 1), ""});
      ++next_;
      return;
    }
    next_ += 1 + length;
    Word word = variables_.scalar(std::string(rest.substr(1, length)));
    if (word.place.source == nullptr || !word.unresolved.empty()) word.place = place(begin, next_);
    add(list, word, quoted);
  }
}

void ShellWords::braced(ShellWordList& list, std::string_view inside, const Place& where, bool quoted) {
  const bool counts = inside.starts_with('#');
  if (counts) inside.remove_prefix(1);
  std::size_t length = shell_name_length(inside);
  if (length == 0) length = inside.empty() ? 0 : 1;
  const std::string name(inside.substr(0, length));
  const std::string_view rest = inside.substr(length);
  if (rest == "[@]" || rest == "[*]") {
    const std::vector<Word> elements = variables_.elements(name);
    if (counts) {
      list.piece(variables_.is_set(name) ? Word{std::to_string(elements.size()), where, ""}
                                         : unknown_word(where, elements.front().unresolved));
      return;
    }
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (i > 0) list.end();
      Word word = elements[i];
      if (word.place.source == nullptr || !word.unresolved.empty()) word.place = where;
      add(list, word, quoted);
    }
  } else if (rest.empty() && !counts) {
    Word word = variables_.scalar(name);
    if (word.place.source == nullptr || !word.unresolved.empty()) word.place = where;
    add(list, word, quoted);
  } else if (rest.starts_with(":-") || rest.starts_with(":=") || rest.starts_with("-") || rest.starts_with("=")) {
    Word word;
    if (variables_.is_set(name)) {
      word = variables_.scalar(name);
      if (word.text.empty() && word.unresolved.empty() && rest.starts_with(':'))
        word = default_value(rest.substr(2), where);
    } else {
      word = default_value(rest.substr(rest.starts_with(':') ? 2 : 1), where);
      word.defaults.insert(name);
      if (rest.find('=') < 2 && rest.find('=') != std::string_view::npos) variables_.set(name, {word}, false);
    }
    if (word.place.source == nullptr) word.place = where;
    add(list, word, quoted);
  } else {
    list.piece(unknown_word(where, fmt::format("line {} changes the variable {} in a way that is not followed here",
                                               line(where.begin), name)));
  }
}

Word ShellWords::default_value(std::string_view text, const Place& where) {
  if (++nesting_ > deepest_word) {
    --nesting_;
    return unknown_word(where, "this is nested too deeply");
  }
  std::string bare(text);
  if (bare.size() >= 2 && (bare.front() == '"' || bare.front() == '\'') && bare.back() == bare.front())
    bare = bare.substr(1, bare.size() - 2);
  Word result{bare, where, ""};
  if (bare.find_first_of("$`") != std::string::npos) {
    ShellWords inner(std::make_shared<const Source>(Source{source_->name, "\"" + bare + "\""}), std::move(variables_));
    inner.nesting_ = nesting_;
    const std::vector<Word> words = inner.read_word(true);
    variables_ = std::move(inner.variables_);
    result = words.empty() ? Word{} : words.front();
    result.place = where;
  }
  --nesting_;
  return result;
}

Word ShellWords::arithmetic(std::string_view expression, const Place& where) {
  set_changed_unknown(expression, where.begin);
  std::string numbers;
  const Word not_followed =
      unknown_word(where, fmt::format("the arithmetic in line {} cannot be followed", line(where.begin)));
  bool as_text = false;  // $NAME: its text is put in, where NAME is worked out by itself
  for (std::size_t i = 0; i < expression.size();) {
    if (expression[i] == '$' || expression[i] == '{' || expression[i] == '}') {
      as_text = expression[i] == '$' || (as_text && expression[i] == '{');
      numbers += ' ';
      ++i;
      continue;
    }
    const std::size_t length = shell_name_length(expression.substr(i));
    if (length == 0) {
      // $1 is an argument, and 0x10 a number of another base.
      const bool digit = std::isdigit(static_cast<unsigned char>(expression[i])) != 0;
      numbers += expression[i++];
      if (digit && (as_text || shell_name_length(expression.substr(i)) > 0)) return not_followed;
      as_text = false;
      continue;
    }
    const Word word = variables_.scalar(std::string(expression.substr(i, length)));
    if (!word.unresolved.empty()) return unknown_word(where, word.unresolved);
    if (as_text && word.text.find_first_not_of("0123456789") != std::string::npos) return not_followed;
    as_text = false;
    numbers += "(" + (word.text.empty() ? "0" : word.text) + ")";
    if (numbers.size() > longest_shell_text) break;
    i += length;
  }
  const std::optional<std::int64_t> value = shell_arithmetic(numbers);
  if (!value) return not_followed;
  return {std::to_string(*value), where, ""};
}

}  // namespace lockstep::importers
