// SPDX-License-Identifier: Apache-2.0
#include "lockstep/diagnostic.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <tuple>
#include <utility>

#include "src/base/budget.h"
#include "src/base/counted.h"
#include "src/base/private_files.h"
#include "src/base/utf8.h"

namespace lockstep {

namespace {

/// Where each line of a source begins. Kept for the last few sources, so that thousands of
/// diagnostics of one file read it once.
class LineIndex {
 public:
  const std::vector<std::size_t>& starts(const std::shared_ptr<const Source>& source) {
    for (Entry& entry : entries_) {
      if (entry.source.lock() == source) return entry.starts;
    }
    const Budget::Uncounted for_none;  // it may be there already, because of what was asked before
    Entry& entry = entries_[next_];
    next_ = (next_ + 1) % std::size(entries_);
    entry.source = source;
    entry.starts = {0};
    for (std::size_t end = source->text.find('\n'); end != std::string::npos; end = source->text.find('\n', end + 1)) {
      entry.starts.push_back(end + 1);
    }
    return entry.starts;
  }

 private:
  struct Entry {
    std::weak_ptr<const Source> source;  // weak: the index must not keep a file in memory
    std::vector<std::size_t> starts;
  };
  Entry entries_[4];
  std::size_t next_ = 0;
};

thread_local LineIndex line_index;

std::size_t offset_of(const Place& place) { return std::min(place.begin, place.source->text.size()); }

struct Line {
  int number = 0;
  std::size_t begin = 0;
};

/// The line in which a place with a source begins.
Line line_of(const Place& place) {
  const std::vector<std::size_t>& starts = line_index.starts(place.source);
  const auto next = std::upper_bound(starts.begin(), starts.end(), offset_of(place));
  return {static_cast<int>(next - starts.begin()), *std::prev(next)};
}

/// What one character of the source looks like in the excerpt, and where it begins there.
struct Cell {
  std::size_t offset;
  std::string text;
};

constexpr std::size_t excerpt_width = 112;  // 120 columns less the margin with the line number
constexpr std::size_t before_caret = 60;    // of them, where a long line is cut

constexpr std::size_t longest_word = 40;  // of a private file

/// A character as it is shown; "" is what is no UTF-8.
std::string cell_text(const std::string& character) {
  if (character.empty()) return "\xEF\xBF\xBD";
  return character != "\t" && is_invisible(character) ? escaped_character(character) : character;
}

/// The characters of [begin, end), those that would disturb a terminal, or not be seen, escaped.
std::vector<Cell> cells_of(const std::string& text, std::size_t begin, std::size_t end) {
  std::vector<Cell> cells;
  while (begin < end) {
    const std::size_t length = utf8_length(std::string_view(text).substr(begin, std::min<std::size_t>(4, end - begin)));
    const std::string character = text.substr(begin, length);
    cells.push_back({begin, cell_text(character)});
    begin += std::max<std::size_t>(length, 1);
  }
  return cells;
}

/// A text that may quote what a file says: without what would disturb a terminal, long ones without their middle.
std::string shown(const std::string& text, std::size_t most) {
  const auto characters = [&](std::size_t begin, std::size_t end) {
    std::string result;
    for (const Cell& cell : cells_of(text, begin, end)) result += cell.text;
    return result;
  };
  if (text.size() <= most) return characters(0, text.size());
  std::size_t head = most * 2 / 3, tail = text.size() - most / 3;
  while (head > 0 && is_utf8_continuation(text[head])) --head;
  while (tail < text.size() && is_utf8_continuation(text[tail])) ++tail;
  return characters(0, head) + " \xE2\x80\xA6 " + characters(tail, text.size());
}

/// Columns of a cell: more than one where its character is written as a number.
std::size_t columns(const Cell& cell) { return cell.text.size() > 4 ? cell.text.size() : 1; }

/// Where the word at `at` ends.
std::size_t end_of_word(const Place& place, std::size_t at) {
  const std::string_view text = place.source->text;
  std::size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
  end = std::min({end, std::max(place.end, at), at + longest_word});
  while (end > at && end < text.size() && is_utf8_continuation(text[end])) --end;
  return end;
}

/// The line of `place` from `line_begin` on, and under it a caret and tildes; both without margin.
std::pair<std::string, std::string> excerpt(const Place& place, std::size_t line_begin) {
  const std::string& text = place.source->text;
  const std::size_t at = offset_of(place);
  if (is_private(place.source->name)) line_begin = at;
  // A line may be a whole minified file: only what can be shown is looked at.
  const std::size_t reach = 4 * excerpt_width;
  const std::size_t seen = at + std::min(std::string_view(text).substr(at, reach + 1).find('\n'), reach + 1);
  std::size_t line_end = std::min(seen, text.size());
  if (line_end > at && text[line_end - 1] == '\r') --line_end;
  if (is_private(place.source->name)) line_end = end_of_word(place, at);

  std::size_t first = at - line_begin > reach ? at - reach : line_begin;
  while (first > line_begin && is_utf8_continuation(text[first])) --first;
  const std::size_t last = std::min(line_end, at + reach);
  const std::vector<Cell> cells = cells_of(text, first, last);

  std::size_t caret = 0;
  while (caret < cells.size() && cells[caret].offset < at) ++caret;
  std::size_t from = 0, to = cells.size();
  if (cells.size() > excerpt_width) {
    from = caret > before_caret ? std::min(caret - before_caret, cells.size() - excerpt_width) : 0;
    to = from + excerpt_width;
  }

  const std::string ellipsis = "\xE2\x80\xA6";
  std::string line, marks;
  if (from > 0 || first > line_begin) {
    line = ellipsis;
    marks = " ";
  }
  for (std::size_t i = from; i < to; ++i) line += cells[i].text;
  if (to < cells.size() || last < line_end) line += ellipsis;
  for (std::size_t i = from; i < caret; ++i)
    marks += cells[i].text == "\t" ? "\t" : std::string(columns(cells[i]), ' ');
  marks += '^';
  if (caret < to) marks.append(columns(cells[caret]) - 1, '~');
  for (std::size_t i = caret + 1; i < to && cells[i].offset < place.end; ++i) marks.append(columns(cells[i]), '~');
  return {line, marks};
}

auto order(const Diagnostic& diagnostic) {
  const Place& place = diagnostic.place;
  return std::make_tuple(place.source ? std::string_view(place.source->name) : std::string_view(), place.begin,
                         place.end, std::string_view(diagnostic.message), std::string_view(place.pointer.text()));
}

std::string render_all(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics) text += render(diagnostic);
  return text;
}

}  // namespace

LineColumn line_column(const Place& place) {
  if (!place.source) return {};
  const Line line = line_of(place);
  const std::string_view before =
      std::string_view(place.source->text).substr(line.begin, offset_of(place) - line.begin);
  const auto characters = std::count_if(before.begin(), before.end(), [](char c) { return !is_utf8_continuation(c); });
  return {line.number, static_cast<int>(characters) + 1};
}

std::string render(const Diagnostic& diagnostic) {
  const Place& place = diagnostic.place;
  const std::string message = shown(diagnostic.message, 2000);
  const std::string pointer = place.pointer.text().empty() ? "" : " [" + shown(place.pointer.text(), 200) + "]";
  if (!place.source) return fmt::format("error: {}{}\n", message, pointer);
  const LineColumn at = line_column(place);
  std::string file = shown(place.source->name, 1000);
  if (file.find_first_of(" :") == 0) file = "./" + file;  // "::" begins a command in the log of a GitHub job
  std::string result = fmt::format("{}:{}:{}: error: {}{}\n", file, at.line, at.column, message, pointer);
  if (place.source->text.empty()) return result;
  const auto [line, marks] = excerpt(place, line_of(place).begin);
  const std::string number = fmt::format("{:>5}", at.line);
  return result + fmt::format("{} | {}\n{:{}} | {}\n", number, line, "", number.size(), marks);
}

void Diagnostics::add(const Place& place, std::string message) {
  constexpr std::size_t most = 1000;
  if (list_.size() == most) {
    ++left_out_;
  } else {
    list_.push_back({place, std::move(message)});
  }
}

std::vector<Diagnostic> Diagnostics::sorted() const {
  std::vector<Diagnostic> result = list_;
  std::sort(result.begin(), result.end(), [](const Diagnostic& a, const Diagnostic& b) { return order(a) < order(b); });
  result.erase(std::unique(result.begin(), result.end(),
                           [](const Diagnostic& a, const Diagnostic& b) { return order(a) == order(b); }),
               result.end());
  if (left_out_ > 0)
    result.push_back({result.back().place,
                      counted(left_out_, "more mistake") + (left_out_ == 1 ? " is not shown" : " are not shown")});
  return result;
}

InputError::InputError(std::vector<Diagnostic> diagnostics)
    : std::runtime_error("mistakes in a file"), diagnostics_(std::move(diagnostics)) {}

const char* InputError::what() const noexcept {
  try {
    if (rendered_.empty()) rendered_ = render_all(diagnostics_);
    return rendered_.c_str();
  } catch (const std::bad_alloc&) {
    return std::runtime_error::what();
  }
}

}  // namespace lockstep
