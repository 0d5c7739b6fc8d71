// SPDX-License-Identifier: Apache-2.0
#include "src/importers/shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "src/base/at.h"
#include "src/importers/shell_words.h"

namespace lockstep::importers {

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
    add_set_later();
    return std::move(commands_);
  }

 private:
  bool at_end_of_command() const {
    const bool redirects = here() == '&' && at(next_ + 1) == '>';  // &> FILE
    return next_ >= text_.size() || (!redirects && std::string_view("\n;&|()").find(here()) != std::string_view::npos);
  }

  void read_command() {
    skip_blanks();
    const std::size_t begin = next_;
    assigned_.clear();
    std::vector<Word> words;
    std::vector<std::string> declared;  // NAME of `declare NAME=VALUE`
    bool only_assignments = true, declares = false;
    std::vector<std::pair<std::string, ShellVariables::State>> before_command;
    if (text_.substr(next_).starts_with("((")) {
      defined_.clear();
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
      if (length > 0 && (only_assignments || declares) && skip_element_assignment(length)) continue;
      if (assigns && (only_assignments || declares)) {
        const std::string name(rest.substr(0, length));
        if (declares) declared.push_back(name);
        if (only_assignments && may_precede_command()) before_command.emplace_back(name, variables_.state(name));
        read_assignment(std::string(rest.substr(0, length)), adds);
        continue;
      }
      // `A=1 command` sets A for that command alone, and its words see the earlier value.
      for (; !before_command.empty(); before_command.pop_back())
        variables_.restore(before_command.back().first, before_command.back().second);
      if (only_assignments) assigned_.clear();
      const std::size_t before = next_;
      std::vector<Word> expanded = read_word();
      if (next_ == before) ++next_;  // never stand still
      if (words.empty() && expanded.size() == 1 && keyword(expanded.front())) continue;
      if (words.empty() && expanded.size() == 1) declares = is_declaration(expanded.front().text);
      only_assignments = false;
      words.insert(words.end(), expanded.begin(), expanded.end());
      check_word_count(words.size());
    }
    end_command(begin, std::move(words), declared);
    note_written(begin);
  }

  /// Where the body of a function sets something, that is so once it has been called.
  void note_written(std::size_t begin) {
    for (const std::string& name : variables_.take_written()) {
      note_set_behind_functions(name, begin);
      if (functions_.empty() || functions_.back().is_group || functions_.back().locals.contains(name)) continue;
      writes_[functions_.back().name].insert(name);
    }
  }

  /// A call of a function that was read before.
  void follow_call(const std::string& function, std::size_t begin) {
    const auto found = writes_.find(function);
    if (found == writes_.end()) return;
    for (const std::string& name : std::set<std::string>(found->second)) {
      set_unknown_because(
          name, begin,
          fmt::format("line {} calls a function that sets {}, and calls are not followed", line(begin), name));
    }
  }

  /// One past the bracket of an index; nobody writes a long one.
  std::size_t behind_index(std::size_t begin) const {
    constexpr std::size_t longest = 1000;
    int depth = 1;
    for (std::size_t i = begin; i < std::min(begin + longest, text_.size()); ++i) {
      if (text_[i] == '[') ++depth;
      if (text_[i] == ']' && --depth == 0) return i + 1;
    }
    return begin;
  }

  /// Skips `NAME[INDEX]=VALUE`, where it stands here: which element that is, is not followed.
  bool skip_element_assignment(std::size_t length) {
    if (at(next_ + length) != '[') return false;
    const std::size_t begin = next_, behind = behind_index(next_ + length + 1);
    const bool adds = at(behind) == '+' && at(behind + 1) == '=';
    if (!adds && at(behind) != '=') return false;
    const std::string name(text_.substr(begin, length));
    next_ = behind + (adds ? 2 : 1);
    read_word(true);
    set_unknown_because(
        name, begin,
        fmt::format("line {} sets an element of the array {}, and elements are not followed", line(begin), name));
    return true;
  }

  void set_unknown_because(const std::string& name, std::size_t at, const std::string& why) {
    variables_.set(name,
                   {unknown_word(place(at, at + name.size()),
                                 fmt::format("{}; give --set {}=VALUE, or the arguments after --", why, name))},
                   false);
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
    const std::string defined = std::exchange(defined_, "");
    if (!defined.empty() && (opening.contains(word.text) || word.text == "for")) begin_function(defined, false);
    if (opening.contains(word.text)) {
      ++depth_;
    } else if (closing.contains(word.text)) {
      depth_ = std::max(0, depth_ - 1);
      if (!functions_.empty() && !functions_.back().is_group && functions_.back().depth == depth_) end_function();
    } else if (!other.contains(word.text)) {
      return false;
    }
    return true;
  }

  void begin_function(const std::string& name, bool is_group) {
    functions_.push_back({name, depth_, groups_, is_group, {}, variables_.take_read()});
    variables_.enter_function(name);
  }

  void end_function() {
    const Function function = std::move(functions_.back());
    functions_.pop_back();
    variables_.enter_function(functions_.empty() ? "" : functions_.back().name);
    const std::set<std::string> read = variables_.take_read();
    for (const std::string& name : read) {
      if (!function.locals.contains(name)) readers_[name].insert(function.name);
    }
    variables_.add_read(read);
    variables_.add_read(function.read_before);
  }

  /// What a function declares in every call, before it reads it, is not the script's.
  void note_local(const std::string& name) {
    if (functions_.empty() || is_chained_ || variables_.was_read(name)) return;
    Function& function = functions_.back();
    const bool always = function.is_group ? depth_ == function.depth && groups_ == function.groups + 1
                                          : depth_ == function.depth + 1 && groups_ == function.groups;
    if (always) function.locals.insert(name);
  }

  /// Functions were read where they stand, and are executed where they are called: there this variable may have its new
  /// value.
  void note_set_behind_functions(const std::string& name, std::size_t at) {
    const auto found = readers_.find(name);
    if (found == readers_.end()) return;
    for (const std::string& function : found->second) set_later_[function].emplace(name, line(at));
    readers_.erase(found);
  }

  /// What the commands of each function rest on that was set behind it.
  void add_set_later() {
    std::map<std::string, std::shared_ptr<const std::map<std::string, int>>> shared;
    for (auto& [function, names] : set_later_)
      shared.emplace(function, std::make_shared<const std::map<std::string, int>>(std::move(names)));
    for (ShellCommand& command : commands_) {
      if (const auto found = shared.find(command.function); found != shared.end()) command.set_later = found->second;
    }
  }

  void end_command(std::size_t begin, std::vector<Word> words, const std::vector<std::string>& declared) {
    bool sets_unnamed = false;
    if (!words.empty() && (words.front().text == "for" || words.front().text == "function")) {
      if (words.front().text == "for") {
        if (words.size() > 1) set_unknown(words[1].text, begin);
        ++depth_;
      } else {  // its body may begin in this line, and is executed when it is called
        if (words.size() > 1) defined_ = words[1].text;
        for (const Word& word : words) {
          if (word.text == "{") {
            if (!defined_.empty()) begin_function(std::exchange(defined_, ""), false);
            ++depth_;
          }
          for (const std::string& name : names_of(word.text, true)) set_unknown(name, begin);
        }
      }
      words.clear();
      skip_brackets();
    } else if (!words.empty()) {
      follow_call(words[lockstep::at(writer_begin(words))].text, begin);
      sets_unnamed = follow_writer({words.begin() + writer_begin(words), words.end()}, declared, begin);
      // `export $(cat .env)` is as reading another script.
      const bool needs_output = text_.substr(begin, next_ - begin).find_first_of("(`") != std::string_view::npos;
      if (sets_unnamed && !needs_output && words[lockstep::at(writer_begin(words))].text != "eval") {
        throw ShellLimit("this command sets a variable whose name is not known here; give the arguments after --");
      }
    }
    if (words.size() == 1 && skip_brackets()) {
      defined_ = words.front().text;
      return;
    }
    if (!words.empty())
      commands_.push_back({std::move(words), line(begin), sets_unnamed, is_conditional(),
                           functions_.empty() ? "" : functions_.back().name});
    if (next_ < text_.size()) end_separator(next_ > begin);
  }

  /// Those of a definition, `NAME ()`.
  bool skip_brackets() {
    if (here() != '(') return false;
    const std::size_t behind = text_.find_first_not_of(" \t", next_ + 1);
    if (behind == std::string_view::npos || text_[behind] != ')') return false;
    next_ = behind + 1;
    is_chained_ = false;
    return true;
  }

  /// `command` and `builtin` in front of a command change nothing of what it writes.
  static std::ptrdiff_t writer_begin(const std::vector<Word>& words) {
    const bool frames = words.size() > 1 && (words.front().text == "command" || words.front().text == "builtin");
    return frames ? 1 : 0;
  }

  /// Commands of the shell that write variables. True where it may write one whose name is not known.
  bool follow_writer(const std::vector<Word>& words, const std::vector<std::string>& declared, std::size_t begin) {
    const std::string& command = words.front().text;
    const std::vector<Word> rest(words.begin() + 1, words.end());
    if (command == "unset") {
      for (const Word& word : rest) unset(word.text, begin);
    } else if (command == "let") {
      for (const Word& word : rest) set_changed_unknown(word.text, begin);
    } else if (command == "getopts") {
      for (const char* name : {"OPTARG", "OPTIND"}) set_unknown(name, begin);
      return rest.size() > 1 && set_all_unknown({rest[1]}, begin);
    } else if (command == "read" || command == "mapfile" || command == "readarray") {
      set_unknown(command == "read" ? "REPLY" : "MAPFILE", begin);
      return set_all_unknown(rest, begin);
    } else if (command == "printf" && !rest.empty() && rest.front().text.starts_with("-v")) {
      if (rest.front().text != "-v") return set_all_unknown({{rest.front().text.substr(2), {}, ""}}, begin);
      return rest.size() > 1 && set_all_unknown({rest[1]}, begin);
    } else if (command == "eval") {
      return follow_eval(rest, begin);
    } else if (command == "trap") {
      follow_trap(rest, begin);
    } else if (is_declaration(command)) {
      return follow_declaration(command, rest, declared, begin);
    }
    return false;
  }

  void unset(const std::string& text, std::size_t begin) {
    const std::string name = text.substr(0, shell_name_length(text));
    if (name.empty()) return;  // -v
    if (is_conditional() || name != text || unfollowed_.contains(name)) {
      set_unknown(name, begin);
    } else {
      variables_.forget(name);
    }
  }

  /// The names that `words` begin with; options stay out. True where a name is not known.
  bool set_all_unknown(const std::vector<Word>& words, std::size_t begin) {
    bool unnamed = false, is_value = false;  // of an option, as of -p TEXT
    for (const Word& word : words) {
      const std::size_t length = shell_name_length(word.text);
      if (length > 0) set_unknown(word.text.substr(0, length), begin);
      unnamed = unnamed || (length == 0 && !word.unresolved.empty() && !is_value);
      is_value = word.text.starts_with('-') && word.text.find_first_of("pdnNtuiOCc") == word.text.size() - 1;
    }
    return unnamed;
  }

  /// A text that is executed: what it assigns, and what its commands may write. That of a training is read elsewhere.
  bool follow_eval(const std::vector<Word>& words, std::size_t begin) {
    const auto runs_program = [](const Word& word) { return word.text.find(".py") != std::string::npos; };
    const bool is_training = std::any_of(words.begin(), words.end(), runs_program);
    bool unknown = false;
    for (const Word& word : words) {
      for (const std::string& name : names_of(word.text, is_training)) set_unknown(name, begin);
      unknown = unknown || !word.unresolved.empty();
    }
    return unknown && !is_training;
  }

  /// The names in a text; `assigned`: those in front of an equals sign alone.
  static std::set<std::string> names_of(const std::string& text, bool assigned) {
    constexpr std::size_t most = 1000;
    std::set<std::string> names;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = shell_name_length(std::string_view(text).substr(i));
      const std::string_view behind = std::string_view(text).substr(i + length);
      const bool assigns = behind.starts_with('=') || behind.starts_with("+=") || behind.starts_with('[');
      if (length > 0 && (assigns || !assigned)) names.insert(text.substr(i, length));
      if (names.size() > most)
        throw ShellLimit(
            fmt::format("this executes a text with more than {} names; give the arguments after --", most));
      i += std::max<std::size_t>(length, 1);
    }
    return names;
  }

  /// Before each command, after a mistake, on a signal: from here on nobody knows when these variables are set.
  void follow_trap(const std::vector<Word>& words, std::size_t begin) {
    if (words.size() < 2) return;
    const bool at_end = std::all_of(words.begin() + 1, words.end(),
                                    [](const Word& word) { return word.text == "EXIT" || word.text == "0"; });
    if (at_end) return;
    for (const std::string& name : names_of(words.front().text, true)) {
      set_unknown(name, begin);
      unfollowed_.emplace(name, begin);
    }
  }

  bool follow_declaration(const std::string& command, const std::vector<Word>& words, std::vector<std::string> declared,
                          std::size_t begin) {
    std::string flags;
    bool unnamed = false;
    for (const Word& word : words) {
      if (word.text.starts_with('-')) flags += word.text.substr(1);
      const std::size_t length = shell_name_length(word.text);
      if (length > 0) declared.push_back(word.text.substr(0, length));
      // In quotes, or with a variable in the name.
      if (length > 0 && (word.text.size() > length || !word.unresolved.empty())) set_unknown(declared.back(), begin);
      unnamed = unnamed || (length == 0 && !word.unresolved.empty());
    }
    if (command != "export" && flags.find('n') != std::string::npos) {
      throw ShellLimit(fmt::format(
          "{} -n gives a variable a second name, which is not followed here; give the arguments after --", command));
    }
    // A number, capitals: what is assigned is not what is read then.
    const bool changes = command != "export" && flags.find_first_of("iluc") != std::string::npos;
    const bool fixed = command == "readonly" || (command != "export" && flags.find('r') != std::string::npos);
    for (const std::string& name : declared) {
      if (command != "export" && command != "readonly" && flags.find('g') == std::string::npos) note_local(name);
      if (changes) set_unknown(name, begin);
      if (changes || fixed) unfollowed_.emplace(name, begin);
    }
    return unnamed;
  }

  /// What stands between commands decides whether the next one is executed for certain, and in this shell.
  void end_separator(bool has_command) {
    const std::string_view rest = text_.substr(next_);
    if (rest.starts_with("((") && has_command) return;  // of `for`: the next command
    const char c = here();
    if (c == '&' && !rest.starts_with("&&")) {
      for (const auto& [name, at] : assigned_)
        set_unknown_because(name, at, fmt::format("line {} sets {} in a shell of its own (&)", line(at), name));
    }
    next_ += rest.starts_with("&&") || rest.starts_with("||") ? 2 : 1;
    if (c == '(') {
      if (const std::string defined = std::exchange(defined_, ""); !defined.empty()) begin_function(defined, true);
      ++groups_;
    } else if (c == ')') {
      groups_ = std::max(0, groups_ - 1);
      if (!functions_.empty() && functions_.back().is_group && functions_.back().groups == groups_ &&
          functions_.back().depth == depth_)
        end_function();
      is_chained_ = false;
    } else if (c == '|' || rest.starts_with("&&")) {
      is_chained_ = true;
    } else if (c != '\n' || has_command) {  // a line may end behind && and go on
      is_chained_ = false;
    }
    if (c == '\n') skip_here_documents();
  }

  /// Whether the command that is being read may not be executed, or is in a shell of its own.
  bool is_conditional() const { return depth_ > 0 || groups_ > 0 || is_chained_; }

  void read_assignment(const std::string& name, bool adds) {
    const std::size_t begin = next_;
    assigned_.emplace_back(name, begin);
    defined_.clear();
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
    if (const auto found = unfollowed_.find(name); found != unfollowed_.end()) {
      set_unknown_because(
          name, begin,
          fmt::format("{} is set in line {}, but line {} decides what becomes of it (readonly, declare or trap)", name,
                      line(begin), line(found->second)));
    } else if (is_conditional()) {
      const std::string why = fmt::format(
          "{} is set in line {}, which may not be executed (in an if, a loop, a function or brackets, or behind "
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
    if (at(i) == '&' && at(i + 1) == '>') ++i;
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

  struct Function {
    std::string name;
    int depth = 0, groups = 0;          // outside of it
    bool is_group = false;              // its body is ( … )
    std::set<std::string> locals;       // what it declares
    std::set<std::string> read_before;  // in what it stands in
  };

  std::vector<ShellCommand> commands_;
  std::string defined_;                                          // a function whose body begins with the next word
  std::map<std::string, std::set<std::string>> writes_;          // functions, and what a call of them sets
  std::vector<Function> functions_;                              // whose bodies are being read, the innermost last
  std::map<std::string, std::set<std::string>> readers_;         // variables, and the functions that read them
  std::map<std::string, std::map<std::string, int>> set_later_;  // functions, and what is set behind them
  std::vector<std::string> here_documents_;
  std::map<std::string, std::size_t> unfollowed_;  // names whose later assignments are not followed, and since where
  std::vector<std::pair<std::string, std::size_t>> assigned_;  // by this command: names, and where
  int depth_ = 0;                                              // of if, case, loops and functions
  int groups_ = 0;                                             // of ( )
  bool is_chained_ = false;                                    // behind &&, || or |
};

}  // namespace

std::vector<ShellCommand> read_shell(const std::shared_ptr<const Source>& source,
                                     const std::map<std::string, std::string>& variables, Diagnostics& diagnostics) {
  return ScriptReader(source, variables).read(diagnostics);
}

}  // namespace lockstep::importers
