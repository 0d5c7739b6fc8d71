// SPDX-License-Identifier: Apache-2.0
#include "src/importers/shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "src/importers/shell_words.h"

namespace lockstep {

namespace {

class ScriptReader : public ShellWords {
 public:
  ScriptReader(const std::shared_ptr<const Source>& source, const std::map<std::string, std::string>& given)
      : ShellWords(source, ShellVariables(given)) {}

  std::vector<ShellCommand> read(Diagnostics& diagnostics) {
    std::size_t begin = 0;
    try {
      for (; next_ < text_.size(); begin = next_) read_command();
    } catch (const ShellLimit& limit) {
      diagnostics.add(place(begin, std::min(text_.find('\n', begin), text_.size())), limit.what());
      commands_.clear();
    }
    return std::move(commands_);
  }

 private:
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
      const std::size_t length = shell_name_length(rest);
      const bool adds = rest.substr(length).starts_with("+=");
      const bool assigns = length > 0 && (adds || rest.substr(length).starts_with("="));
      if (assigns && (only_assignments || declares)) {
        const std::string name(rest.substr(0, length));
        if (only_assignments && may_precede_command()) before_command.emplace_back(name, variables_.state(name));
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
      check_word_count(words.size());
    }
    end_command(begin, std::move(words));
  }

  /// Whether more may stand in this line than the assignment that begins here: it would be for that command alone. An
  /// array is never.
  bool may_precede_command() const {
    const std::string_view line = text_.substr(next_, std::min(text_.find('\n', next_), text_.size()) - next_);
    const std::size_t equals = line.find('=');
    return line.find_first_of(" \t") != std::string_view::npos && !line.substr(equals + 1).starts_with('(');
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
        check_word_count(all.size());
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
        while (!content.empty() && (is_shell_blank(content.front()))) content.remove_prefix(1);
        while (!content.empty() && (is_shell_blank(content.back()))) content.remove_suffix(1);
        if (content == end) break;
      }
    }
    here_documents_.clear();
  }

  std::vector<ShellCommand> commands_;
  std::vector<std::string> here_documents_;
  int depth_ = 0;            // of if, case, loops and functions
  int groups_ = 0;           // of ( )
  bool is_chained_ = false;  // behind &&, || or |
};

}  // namespace

std::vector<ShellCommand> read_shell(const std::shared_ptr<const Source>& source,
                                     const std::map<std::string, std::string>& variables, Diagnostics& diagnostics) {
  return ScriptReader(source, variables).read(diagnostics);
}

}  // namespace lockstep
