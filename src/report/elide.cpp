// SPDX-License-Identifier: Apache-2.0
#include "src/report/elide.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/counted.h"
#include "src/report/style.h"

namespace lockstep::report {

namespace {

/// `formula` with a letter for each byte of a name in brackets or quotes, where any sign may stand.
std::string without_names(std::string formula) {
  bool quoted = false;
  int brackets = 0;
  for (char& c : formula) {
    if (c == '\'') quoted = !quoted;  // a doubled one ends and begins at once
    if (!quoted && c == '[') ++brackets;
    const bool inside = quoted || brackets > 0;
    if (!quoted && c == ']') --brackets;
    if (inside && (static_cast<unsigned char>(c) & 0x80U) == 0) c = 'x';
  }
  return formula;
}

/// Whether a term begins there that is not the first, of the formula or of a bracket; also behind "; ", where another
/// formula begins.
bool is_sign(const std::string& plain, std::size_t at) {
  if (plain[at] == ';') return true;
  if (plain[at] != '+' && plain[at] != '-') return false;
  return at > 0 && plain[at - 1] != '(' && !(at > 1 && plain[at - 1] == ' ' && plain[at - 2] == '(');
}

std::size_t terms_of(const std::string& plain, std::size_t end) {
  std::size_t terms = 1;
  for (std::size_t at = 0; at < end; ++at) terms += is_sign(plain, at) ? 1 : 0;
  return terms;
}

/// Of the bracket that is open at `at`.
std::size_t closing(const std::string& plain, std::size_t at) {
  for (int inside = 0; at < plain.size(); ++at) {
    if (plain[at] == '(') ++inside;
    if (plain[at] == ')' && inside-- == 0) break;
  }
  return at;
}

struct CutFormula {
  std::string text;
  std::size_t terms = 0;  ///< that are left
};

/// `formula` cut after a term within `room` columns, with what closes the brackets that are open there:
/// "(g0+g1+…)/2", "clip(g0 + (g1+…)/2+…)". `plain` is the formula without_names().
CutFormula cut_to(const std::string& formula, const std::string& plain, std::size_t room) {
  std::size_t cut = 0, boundary = 0;
  for (std::size_t width = 0; cut < plain.size(); ++cut) {
    if (is_sign(plain, cut)) boundary = cut;
    const bool begins_character = (static_cast<unsigned char>(plain[cut]) & 0xC0U) != 0x80U;
    if (begins_character && width++ == room) break;
  }
  std::size_t end = boundary > 0 ? boundary : cut;
  const std::size_t terms = terms_of(plain, end);
  int depth = 0;
  for (std::size_t at = 0; at < end; ++at) depth += plain[at] == '(' ? 1 : plain[at] == ')' ? -1 : 0;
  while (end > 0 && plain[end - 1] == ' ') --end;
  const std::string kept = formula.substr(0, end);
  // Of a term that is cut in itself nothing behind the cut is told.
  if (depth == 0 || boundary == 0) return {kept + " …", terms};
  std::string tail;
  std::size_t at = end;
  for (; depth > 0; --depth) {
    const std::size_t close = closing(plain, at);
    if (!tail.empty() && at < close) tail += "+…";  // terms beside what was cut inside
    for (at = std::min(close + 1, plain.size()); at < plain.size(); ++at) {
      if (is_sign(plain, at) || plain[at] == ' ' || plain[at] == ')') break;
    }
    tail += formula.substr(close, at - close);
  }
  return {kept + "+…" + tail + (at < plain.size() ? " …" : ""), terms};
}

/// The longest cut that fits with its ending, which may depend on it.
template <typename Ending>
std::string cut_with(const std::string& formula, std::size_t most, const Ending& ending) {
  if (formula.size() <= most || text_width(formula) <= most) return formula;
  const std::string plain = without_names(formula);
  const std::size_t all = terms_of(plain, plain.size());
  std::size_t room = most;
  std::string text;
  do {
    const CutFormula cut = cut_to(formula, plain, room);
    text = cut.text + ending(all, cut);
  } while (text_width(text) > most && room-- > 0);
  return text;
}

constexpr char kept_space = '\x1f';

/// Columns of a text with colours.
std::size_t visible_width(const std::string& text) {
  std::string visible;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\x1b') {
      at = std::min(text.find('m', at), text.size());
    } else {
      visible += text[at];
    }
  }
  return text_width(visible);
}

}  // namespace

std::string elided(const std::string& formula, std::size_t most) {
  return cut_with(formula, most, [](std::size_t all, const CutFormula&) { return " (" + counted(all, "term") + ")"; });
}

std::string shortened(const std::string& formula, std::size_t most) {
  return cut_with(formula, most, [](std::size_t all, const CutFormula& cut) {
    if (all == cut.terms) return std::string(" (-v prints all)");
    return fmt::format("{} and {} (-v prints all)", cut.text.ends_with("…") ? "" : " …",
                       counted(all - cut.terms, "more term"));
  });
}

std::string unbroken(std::string formula) {
  std::replace(formula.begin(), formula.end(), ' ', kept_space);
  return formula;
}

std::string wrapped(const std::string& text, std::size_t indent) {
  std::string result, line;
  std::size_t width = 0;
  bool has_word = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t first = text.find_first_not_of(' ', begin);
    if (first == std::string::npos) break;
    const std::size_t end = std::min(text.find(' ', first), text.size());
    const std::string word = text.substr(begin, end - begin);  // with the spaces before it
    const std::size_t columns = visible_width(word);
    if (has_word && width + columns > page_width) {
      result += line + "\n";
      line = std::string(indent, ' ') + text.substr(first, end - first);
      width = visible_width(line);
    } else {
      line += word;
      width += columns;
    }
    has_word = true;
    begin = end == text.size() ? end + 1 : end;
  }
  result += line;
  std::replace(result.begin(), result.end(), kept_space, ' ');
  return result;
}

}  // namespace lockstep::report
