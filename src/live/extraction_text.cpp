// SPDX-License-Identifier: Apache-2.0
#include "src/live/extraction_text.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::live {

namespace {

/// Goes through a text as if it were JSON with comments, and says where the members of the outermost object begin. What
/// is no JSON at all is left to parse_json().
class JsonOutline {
 public:
  explicit JsonOutline(std::string_view text) : text_(text) {}

  /// Calls begins(key) for each member, and item(key, first, end) for each object in its array. Stops where begins
  /// returns false.
  void run(const std::function<bool(std::string_view)>& begins,
           const std::function<void(std::string_view, std::size_t, std::size_t)>& item) {
    std::string_view key, last;
    std::size_t first = 0;
    bool in_array = false;
    int depth = 0;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '"') {
        const std::size_t end = end_of_string(i);
        last = text_.substr(i + 1, end > i + 1 ? end - i - 1 : 0);
        i = end;
      } else if (c == '/') {
        i = end_of_comment(i);
      } else if (c == ':' && depth == 1) {
        key = last;
        if (!begins(key)) return;
      } else if (c == '{' || c == '[') {
        ++depth;
        if (depth == 2) in_array = c == '[';
        if (depth == 3 && c == '{') first = i;
      } else if (c == '}' || c == ']') {
        if (depth == 3 && c == '}' && in_array) item(key, first, i + 1);
        --depth;
      }
    }
  }

 private:
  std::size_t end_of_string(std::size_t begin) const {
    for (std::size_t i = begin + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '"') {
        return i;
      }
    }
    return text_.size();
  }

  std::size_t end_of_comment(std::size_t begin) const {
    const std::string_view two = text_.substr(begin, 2);
    if (two == "//") return std::min(text_.find('\n', begin), text_.size());
    if (two == "/*") return std::min(text_.find("*/", begin + 2), text_.size() - 1) + 1;
    return begin;
  }

  std::string_view text_;
};

}  // namespace

bool is_extraction_text(std::string_view text) {
  if (text.find("\"lockstep_extract\"") == std::string_view::npos) return false;
  bool found = false;
  JsonOutline(text).run(
      [&](std::string_view key) {
        found = found || key == "lockstep_extract";
        return !found;
      },
      [](std::string_view, std::size_t, std::size_t) {});
  return found;
}

ExtractionText::ExtractionText(std::shared_ptr<const Source> source) : source_(std::move(source)) {
  const std::string& text = source_->text;
  JsonOutline(text).run([](std::string_view) { return true; },
                        [&](std::string_view key, std::size_t begin, std::size_t end) {
                          if (key == "programs") items_.push_back({begin, end});
                        });
  lines_.push_back(0);
  for (std::size_t i = text.find('\n'); i != std::string::npos; i = text.find('\n', i + 1)) lines_.push_back(i + 1);
}

Json ExtractionText::head(Diagnostics& mistakes) const {
  // Every character stays where it is.
  constexpr std::string_view nothing = "null";
  auto own = std::make_shared<Source>(Source{source_->name, source_->text});
  for (const Item& item : items_) {
    if (item.end - item.begin < nothing.size()) continue;
    std::fill(own->text.begin() + static_cast<std::ptrdiff_t>(item.begin),
              own->text.begin() + static_cast<std::ptrdiff_t>(item.end), ' ');
    own->text.replace(item.begin, nothing.size(), nothing);
  }
  return parse_json(std::move(own), mistakes);
}

Json ExtractionText::program(std::size_t index, Diagnostics& mistakes) const {
  const Item& item = items_[index];
  return parse_json(
      std::make_shared<Source>(Source{source_->name, source_->text.substr(item.begin, item.end - item.begin)}),
      mistakes);
}

Place ExtractionText::place(std::size_t program, const Place& within) const {
  const Item& item = items_[program];
  const std::size_t most = item.end - item.begin;
  return {source_, item.begin + std::min(within.begin, most), item.begin + std::min(within.end, most),
          "/programs/" + std::to_string(program) + within.pointer.text()};
}

int ExtractionText::line(std::size_t program, const Place& within) const {
  return line_at(items_[program].begin + within.begin);
}

int ExtractionText::line_at(std::size_t begin) const {
  return static_cast<int>(std::upper_bound(lines_.begin(), lines_.end(), begin) - lines_.begin());
}

}  // namespace lockstep::live
