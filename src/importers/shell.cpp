// SPDX-License-Identifier: Apache-2.0
#include "src/importers/shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "src/importers/shell_variables.h"

namespace lockstep {

namespace {

constexpr int deepest = 30;

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// The length of the name that `text` begins with.
std::size_t name_length(std::string_view text) {
  if (text.empty() || !is_name_start(text[0])) return 0;
  std::size_t length = 1;
  while (length < text.size() && is_name_character(text[length])) ++length;
  return length;
}

/// Words in the making: what stands in quotes or side by side joins, what an unquoted variable holds is split.
class WordList {
 public:
  void piece(const Word& word) {
    if (words_.size() > most_shell_words) return;
    current_ = open_ ? joined(current_, word) : word;
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
  std::vector<Word> words_;
  Word current_;
  bool open_ = false;
};

class Reader {
 public:
  Reader(const std::shared_ptr<const Source>& source, const std::map<std::string, std::string>& given)
      : source_(source), text_(source->text), variables_(given) {}

  std::vector<ShellCommand> read() {
    while (next_ < text_.size()) read_command();
    return std::move(commands_);
  }

 private:
  char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  char here() const { return at(next_); }

  Place place(std::size_t begin, std::size_t end) const { return {source_, begin, std::min(end, text_.size()), ""}; }
  int line(std::size_t offset) const { return line_column(place(offset, offset)).line; }

  /// Spaces, continued lines and comments.
  void skip_blanks() {
    while (next_ < text_.size()) {
      if (is_blank(here())) {
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

  bool at_end_of_command() const {
    return next_ >= text_.size() || std::string_view("\n;&|()").find(here()) != std::string_view::npos;
  }

  void read_command() {
    skip_blanks();
    const std::size_t begin = next_;
    std::vector<Word> words;
    bool only_assignments = true, declares = false;
    std::vector<std::pair<std::string, ShellVariables::State>> before_command;
    if (text_.substr(next_).starts_with("((")) {
      next_ = closing(next_ + 2, '(', ')');
      set_changed_unknown(text_.substr(begin + 2, next_ - begin - 2), begin);
      if (here() == ')') ++next_;
    }
    while (skip_blanks(), !at_end_of_command()) {
      if (skip_redirection()) continue;
      const std::string_view rest = text_.substr(next_);
      const std::size_t length = name_length(rest);
      const bool adds = rest.substr(length).starts_with("+=");
      const bool assigns = length > 0 && (adds || rest.substr(length).starts_with("="));
      if (assigns && (only_assignments || declares)) {
        const std::string name(rest.substr(0, length));
        if (only_assignments) before_command.emplace_back(name, variables_.state(name));
        read_assignment(std::string(rest.substr(0, length)), adds);
        continue;
      }
      // `A=1 command` sets A for that command alone, and its words see the earlier value.
      for (; !before_command.empty(); before_command.pop_back())
        variables_.restore(before_command.back().first, before_command.back().second);
      const std::size_t before = next_;
      std::vector<Word> expanded = read_word();
      if (next_ == before) ++next_;  // never stand still
      if (words.empty() && expanded.size() == 1 && keyword(expanded.front())) continue;
      if (words.empty() && expanded.size() == 1) declares = is_declaration(expanded.front().text);
      only_assignments = false;
      words.insert(words.end(), expanded.begin(), expanded.end());
      if (words.size() > most_shell_words) break;
    }
    end_command(begin, std::move(words));
  }

  static bool is_declaration(const std::string& word) {
    return word == "export" || word == "declare" || word == "local" || word == "readonly" || word == "typeset";
  }

  /// Words that only frame commands; what is set between them happens perhaps.
  bool keyword(const Word& word) {
    static const std::set<std::string> opening = {"if", "while", "until", "case", "{", "select"};
    static const std::set<std::string> closing = {"fi", "done", "esac", "}"};
    static const std::set<std::string> other = {"then", "else", "elif", "do", "!", "time", "exec", "nohup"};
    if (opening.contains(word.text)) {
      ++depth_;
    } else if (closing.contains(word.text)) {
      depth_ = std::max(0, depth_ - 1);
    } else if (!other.contains(word.text)) {
      return false;
    }
    return true;
  }

  void end_command(std::size_t begin, std::vector<Word> words) {
    if (!words.empty() && (words.front().text == "for" || words.front().text == "function")) {
      if (words.front().text == "for") {
        if (words.size() > 1) set_unknown(words[1].text, begin);
        ++depth_;
      }
      words.clear();
    } else if (words.size() > 1 && words.front().text == "unset") {
      for (std::size_t i = 1; i < words.size(); ++i) {
        if (is_conditional()) {
          set_unknown(words[i].text, begin);
        } else {
          variables_.forget(words[i].text);
        }
      }
    } else if (words.size() > 1 && words.front().text == "read") {
      for (std::size_t i = 1; i < words.size(); ++i) set_unknown(words[i].text, begin);
    }
    if (words.size() > 1 && words.front().text == "let") {
      for (std::size_t i = 1; i < words.size(); ++i) set_changed_unknown(words[i].text, begin);
    }
    if (!words.empty()) commands_.push_back({std::move(words), line(begin)});
    if (next_ < text_.size()) end_separator(next_ > begin);
  }

  /// What stands between commands decides whether the next one is executed for certain, and in this shell.
  void end_separator(bool has_command) {
    const std::string_view rest = text_.substr(next_);
    if (rest.starts_with("((") && has_command) return;  // of `for`: the next command
    const char c = here();
    next_ += rest.starts_with("&&") || rest.starts_with("||") ? 2 : 1;
    if (c == '(') {
      ++groups_;
    } else if (c == ')') {
      groups_ = std::max(0, groups_ - 1);
      is_chained_ = false;
    } else if (c == '|' || rest.starts_with("&&")) {
      is_chained_ = true;
    } else if (c != '\n' || has_command) {  // a line may end behind && and go on
      is_chained_ = false;
    }
    if (c == '\n') skip_here_documents();
  }

  /// Whether the command that is being read is executed only perhaps, or in a shell of its own.
  bool is_conditional() const { return depth_ > 0 || groups_ > 0 || is_chained_; }

  /// The variables that an arithmetic expression assigns to: = and the like, ++ and --.
  void set_changed_unknown(std::string_view expression, std::size_t at) {
    const auto skip = [&](std::size_t i) {
      while (i < expression.size() && std::isspace(static_cast<unsigned char>(expression[i])) != 0) ++i;
      return i;
    };
    bool steps = false;  // ++ or -- in front
    for (std::size_t i = 0; i < expression.size();) {
      const std::string_view rest = expression.substr(i);
      const std::size_t length = name_length(rest);
      if (length == 0) {
        const bool step = rest.starts_with("++") || rest.starts_with("--");
        if (std::isspace(static_cast<unsigned char>(rest[0])) == 0) steps = step;
        // Digits swallow the letters behind them: 0x10 is no name.
        const bool digit = std::isdigit(static_cast<unsigned char>(rest[0])) != 0;
        i += step ? 2 : 1;
        while (digit && i < expression.size() && is_name_character(expression[i])) ++i;
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

  void set_unknown(const std::string& name, std::size_t at) {
    variables_.set(
        name,
        {unknown_word(place(at, at),
                      fmt::format("{} is set in line {} by something that is not executed here; give --set {}=VALUE",
                                  name, line(at), name))},
        false);
  }

  void read_assignment(const std::string& name, bool adds) {
    const std::size_t begin = next_;
    next_ += name.size() + (adds ? 2 : 1);
    std::vector<Word> words;
    const bool is_array = here() == '(';
    if (is_array) {
      ++next_;
      words = read_array();
    } else {
      words = read_word(true);
      if (words.empty()) words.push_back({"", place(next_, next_), ""});
    }
    if (is_conditional()) {
      const std::string why = fmt::format(
          "{} is set in line {}, which is executed only perhaps (in an if, a loop, a function or brackets, or behind "
          "&&, || or |); give --set {}=VALUE",
          name, line(begin), name);
      variables_.set(name, {unknown_word(place(begin, begin + name.size()), why)}, false);
    } else if (adds) {
      variables_.append(name, std::move(words), is_array);
    } else {
      variables_.set(name, std::move(words), is_array);
    }
  }

  std::vector<Word> read_array() {
    std::vector<Word> all;
    while (next_ < text_.size()) {
      skip_blanks();
      if (here() == '\n') {
        ++next_;
      } else if (here() == ')') {
        ++next_;
        break;
      } else if (next_ < text_.size()) {
        const std::size_t before = next_;
        const std::vector<Word> words = read_word();
        if (next_ == before) ++next_;
        all.insert(all.end(), words.begin(), words.end());
        if (all.size() > most_shell_words) break;
      }
    }
    return all;
  }

  bool skip_redirection() {
    std::size_t i = next_;
    while (std::isdigit(static_cast<unsigned char>(at(i))) != 0) ++i;
    if (at(i) != '<' && at(i) != '>') return false;
    const bool here_document = at(i) == '<' && at(i + 1) == '<' && at(i + 2) != '<';
    while (std::string_view("<>&-").find(at(i)) != std::string_view::npos && at(i) != '\0') ++i;
    next_ = i;
    skip_blanks();
    if (!at_end_of_command()) {
      const std::vector<Word> target = read_word();
      if (here_document && !target.empty()) here_documents_.push_back(target.front().text);
    }
    return true;
  }

  void skip_here_documents() {
    for (const std::string& end : here_documents_) {
      while (next_ < text_.size()) {
        const std::size_t stop = std::min(text_.find('\n', next_), text_.size());
        std::string_view content = text_.substr(next_, stop - next_);
        next_ = std::min(stop + 1, text_.size());
        while (!content.empty() && (is_blank(content.front()))) content.remove_prefix(1);
        while (!content.empty() && (is_blank(content.back()))) content.remove_suffix(1);
        if (content == end) break;
      }
    }
    here_documents_.clear();
  }

  // Words. `whole`: on the right of an assignment, where nothing is split.
  std::vector<Word> read_word(bool whole = false) {
    WordList list;
    const std::size_t begin = next_;
    while (next_ < text_.size() && !is_blank(here()) &&
           std::string_view("\n;&|()<>").find(here()) == std::string_view::npos) {
      const char c = here();
      if (c == '\'') {
        const std::size_t end = std::min(text_.find('\'', next_ + 1), text_.size());
        list.piece({std::string(text_.substr(next_ + 1, end - next_ - 1)), place(next_ + 1, end), ""});
        next_ = std::min(end + 1, text_.size());
      } else if (c == '"') {
        read_quoted(list);
      } else if (c == '\\') {
        if (at(next_ + 1) == '\n') {
          next_ += 2;
          break;
        }
        list.piece({std::string(1, at(next_ + 1)), place(next_, next_ + 2), ""});
        next_ = std::min(next_ + 2, text_.size());
      } else if (c == '$' || c == '`') {
        read_expansion(list, whole);
      } else {
        std::size_t end = next_;
        while (end < text_.size() &&
               std::string_view(" \t\r\n;&|()<>'\"\\$`").find(text_[end]) == std::string_view::npos)
          ++end;
        list.piece({std::string(text_.substr(next_, end - next_)), place(next_, end), ""});
        next_ = end;
      }
    }
    std::vector<Word> words = list.take();
    if (words.size() == 1 && words.front().place.source == nullptr) words.front().place = place(begin, next_);
    return words;
  }

  void read_quoted(WordList& list) {
    const std::size_t begin = ++next_;
    list.piece({"", place(begin, begin), ""});
    while (next_ < text_.size() && here() != '"') {
      if (here() == '\\' && next_ + 1 < text_.size()) {
        const char escaped = at(next_ + 1);
        if (escaped != '\n') {
          const bool special = std::string_view("\"\\$`").find(escaped) != std::string_view::npos;
          list.piece({special ? std::string(1, escaped) : std::string{'\\', escaped}, place(next_, next_ + 2), ""});
        } else {
          list.piece({" ", place(next_, next_ + 2), ""});
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

  void add(WordList& list, const Word& word, bool quoted) {
    if (quoted) {
      list.piece(word);
    } else {
      list.split(word);
    }
  }

  /// One past the bracket that closes what was opened before `begin`.
  std::size_t closing(std::size_t begin, char open, char close) const {
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

  void read_expansion(WordList& list, bool quoted) {
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
      list.piece(unknown_word(
          place(begin, next_),
          fmt::format("line {} needs the output of a command, and nothing is executed here", line(begin))));
    } else if (rest.starts_with("${")) {
      const std::size_t end = closing(next_ + 2, '{', '}');
      next_ = end;
      braced(list, text_.substr(begin + 2, end > begin + 3 ? end - begin - 3 : 0), place(begin, end), quoted);
    } else {
      std::size_t length = name_length(rest.substr(1));
      if (length == 0 && rest.size() > 1 &&
          std::string_view("0123456789@*#?!$-").find(rest[1]) != std::string_view::npos)
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

  /// `${…}` without its brackets.
  void braced(WordList& list, std::string_view inside, const Place& where, bool quoted) {
    const bool counts = inside.starts_with('#');
    if (counts) inside.remove_prefix(1);
    std::size_t length = name_length(inside);
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
        if (rest.find('=') < 2 && rest.find('=') != std::string_view::npos) variables_.set(name, {word}, false);
      }
      if (word.place.source == nullptr) word.place = where;
      add(list, word, quoted);
    } else {
      list.piece(unknown_word(where, fmt::format("line {} changes the variable {} in a way that is not followed here",
                                                 line(where.begin), name)));
    }
  }

  /// The word behind `:-`; it may hold variables itself.
  Word default_value(std::string_view text, const Place& where) {
    if (++nesting_ > deepest) {
      --nesting_;
      return unknown_word(where, "this is nested too deeply");
    }
    std::string bare(text);
    if (bare.size() >= 2 && (bare.front() == '"' || bare.front() == '\'') && bare.back() == bare.front())
      bare = bare.substr(1, bare.size() - 2);
    Word result{bare, where, ""};
    if (bare.find_first_of("$`") != std::string::npos) {
      Reader inner(std::make_shared<const Source>(Source{source_->name, "\"" + bare + "\""}), {});
      inner.variables_ = variables_;
      inner.nesting_ = nesting_;
      const std::vector<Word> words = inner.read_word(true);
      result = words.empty() ? Word{} : words.front();
      result.place = where;
    }
    --nesting_;
    return result;
  }

  Word arithmetic(std::string_view expression, const Place& where) {
    set_changed_unknown(expression, where.begin);
    std::string numbers;
    for (std::size_t i = 0; i < expression.size();) {
      if (expression[i] == '$' || expression[i] == '{' || expression[i] == '}') {
        numbers += ' ';
        ++i;
        continue;
      }
      const std::size_t length = name_length(expression.substr(i));
      if (length == 0) {
        numbers += expression[i++];
        continue;
      }
      const Word word = variables_.scalar(std::string(expression.substr(i, length)));
      if (!word.unresolved.empty()) return unknown_word(where, word.unresolved);
      numbers += "(" + (word.text.empty() ? "0" : word.text) + ")";
      if (numbers.size() > longest_shell_text) break;
      i += length;
    }
    const std::optional<std::int64_t> value = shell_arithmetic(numbers);
    if (!value)
      return unknown_word(where, fmt::format("the arithmetic in line {} cannot be followed", line(where.begin)));
    return {std::to_string(*value), where, ""};
  }

  std::shared_ptr<const Source> source_;
  std::string_view text_;
  ShellVariables variables_;
  std::vector<ShellCommand> commands_;
  std::vector<std::string> here_documents_;
  std::size_t next_ = 0;
  int depth_ = 0;            // of if, case, loops and functions
  int groups_ = 0;           // of ( )
  bool is_chained_ = false;  // behind &&, || or |
  int nesting_ = 0;
};

}  // namespace

std::vector<ShellCommand> read_shell(const std::shared_ptr<const Source>& source,
                                     const std::map<std::string, std::string>& variables) {
  return Reader(source, variables).read();
}

}  // namespace lockstep
