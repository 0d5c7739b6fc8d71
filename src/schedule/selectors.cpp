// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "src/base/at.h"
#include "src/schedule/selector_list.h"

namespace lockstep {
namespace {

using Item = schedule::SelectorItem;

constexpr std::array<std::pair<std::string_view, Item::Kind>, 4> prefixes = {{{"tag:", Item::Kind::tag},
                                                                              {"tied:", Item::Kind::tied},
                                                                              {"shard:", Item::Kind::shard},
                                                                              {"partial:", Item::Kind::partial}}};

constexpr std::array<std::string_view, 5> comparisons = {"<=", ">=", "==", "<", ">"};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// The end of a glob's class that begins with `[` at `begin`: one past its `]`; npos if there is none.
std::size_t class_end(std::string_view glob, std::size_t begin) {
  std::size_t at = begin + 1;
  if (at < glob.size() && (glob[at] == '!' || glob[at] == '^')) ++at;
  // A `]` that comes first stands for itself.
  const std::size_t close = glob.find(']', at + 1);
  return close == std::string_view::npos ? close : close + 1;
}

bool class_fits(std::string_view inside, char c) {
  const bool negated = !inside.empty() && (inside[0] == '!' || inside[0] == '^');
  bool found = false;
  for (std::size_t i = negated ? 1 : 0; i < inside.size(); ++i) {
    if (i + 2 < inside.size() && inside[i + 1] == '-') {
      found = found || (inside[i] <= c && c <= inside[i + 2]);
      i += 2;
    } else {
      found = found || inside[i] == c;
    }
  }
  return found != negated;
}

/// Whether the whole of `text` fits. After a mismatch only the last `*` takes one character more:
/// quadratic at worst.
bool glob_fits(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0, star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_text = t;
      continue;
    }
    std::size_t next = g + 1;
    bool fits = g < glob.size() && (glob[g] == '?' || glob[g] == text[t]);
    if (g < glob.size() && glob[g] == '[') {
      next = class_end(glob, g);
      fits = next != std::string_view::npos && class_fits(glob.substr(g + 1, next - g - 2), text[t]);
    }
    if (fits) {
      g = next;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

/// The rest of `text` after `prefix`, if it begins so.
std::optional<std::string_view> after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

/// `numel<=1e6` and so on, of `word`; nothing if it is no such comparison, with the mistake in `mistake` if it looks
/// like one.
std::optional<Item> comparison_item(std::string_view text, std::string_view word, std::string& mistake) {
  const std::optional<std::string_view> rest = after(text, word);
  if (!rest) return std::nullopt;
  const std::string_view condition = trim(*rest);
  const auto found = std::find_if(comparisons.begin(), comparisons.end(),
                                  [&](std::string_view comparison) { return condition.starts_with(comparison); });
  if (found == comparisons.end()) {
    if (condition.starts_with("=")) mistake = "write \"==\" to compare, as in \"" + std::string(word) + "==64\"";
    return std::nullopt;
  }
  const std::string number(trim(condition.substr(found->size())));
  const std::optional<Rational> value = Rational::parse(number);
  const std::optional<std::int64_t> whole = value ? value->to_int64() : std::nullopt;
  if (!whole) {
    mistake =
        "expected a whole number after \"" + std::string(word) + std::string(*found) + "\", found \"" + number + "\"";
    return std::nullopt;
  }
  Item item;
  item.kind = word == "chunk" ? Item::Kind::chunk : Item::Kind::numel;
  item.comparison = *found;
  item.number = *whole;
  return item;
}

/// `mistake` is set where the item cannot be read.
Item read(std::string_view text, std::string& mistake) {
  Item item;
  text = trim(text);
  while (text.starts_with("!")) {
    item.excludes = !item.excludes;
    text = trim(text.substr(1));
  }
  for (const std::string_view word : {"numel", "chunk"}) {
    if (std::optional<Item> comparison = comparison_item(text, word, mistake)) {
      comparison->excludes = item.excludes;
      return *comparison;
    }
  }
  std::string_view pattern = text;
  for (const auto& [prefix, kind] : prefixes) {
    if (const auto rest = after(text, prefix)) {
      item.kind = kind;
      pattern = trim(*rest);
    }
  }
  if (pattern.empty() && mistake.empty()) {
    mistake = item.kind == Item::Kind::name ? "a selector is a glob on names, tag:NAME, tied:NAME, shard:AXIS, "
                                              "partial:AXIS, numel>N or chunk==N, and not empty"
                                            : "a name must follow \"" + std::string(text) + "\"";
  }
  for (std::size_t i = pattern.find('['); i != std::string_view::npos && mistake.empty();) {
    const std::size_t end = class_end(pattern, i);
    if (end == std::string_view::npos) {
      mistake = "\"[\" in \"" + std::string(pattern) + "\" has no \"]\"; write \"[[]\" for the character itself";
    }
    i = end == std::string_view::npos ? end : pattern.find('[', end);
  }
  item.pattern = pattern;
  return item;
}

bool fits_number(const Item& item, std::int64_t number) {
  if (item.comparison == "<") return number < item.number;
  if (item.comparison == "<=") return number <= item.number;
  if (item.comparison == ">") return number > item.number;
  if (item.comparison == ">=") return number >= item.number;
  return number == item.number;
}

}  // namespace

namespace schedule {

SelectorItem SelectorItem::read(std::string_view text) {
  std::string unused;
  return lockstep::read(text, unused);
}

bool SelectorItem::is_plain_name() const {
  return kind == Kind::name && pattern.find_first_of("*?[") == std::string::npos;
}

bool SelectorItem::fits(const Parameter& parameter, std::int64_t numel, int chunk) const {
  switch (kind) {
    case Item::Kind::name:
      return glob_fits(pattern, parameter.name);
    case Item::Kind::tag:
      return std::any_of(parameter.tags.begin(), parameter.tags.end(),
                         [&](const std::string& tag) { return glob_fits(pattern, tag); });
    case Item::Kind::tied:
      return !parameter.tied.empty() && glob_fits(pattern, parameter.tied);
    case Item::Kind::shard:
      return std::any_of(parameter.shard.begin(), parameter.shard.end(),
                         [&](const Shard& shard) { return glob_fits(pattern, name_of(shard.axis)); });
    case Item::Kind::partial:
      return std::any_of(parameter.partial.begin(), parameter.partial.end(),
                         [&](Axis axis) { return glob_fits(pattern, name_of(axis)); });
    case Item::Kind::numel:
      return fits_number(*this, numel);
    case Item::Kind::chunk:
      return fits_number(*this, chunk);
  }
  return false;
}

SelectorList::SelectorList(const std::vector<std::string>& items) {
  for (const std::string& text : items) {
    SelectorItem item = SelectorItem::read(text);
    has_inclusion_ = has_inclusion_ || !item.excludes;
    if (item.is_plain_name()) {
      (item.excludes ? excluded_names_ : names_).insert(std::move(item.pattern));
    } else {
      others_.push_back(std::move(item));
    }
  }
}

bool SelectorList::chooses(const Model& model, const LocalBuffer& buffer) const {
  return std::any_of(buffer.parameters.begin(), buffer.parameters.end(), [&](int parameter) {
    return chooses(model.parameters()[at(parameter)], buffer.numel, buffer.chunk);
  });
}

bool SelectorList::chooses(const Parameter& parameter, std::int64_t numel) const {
  return chooses(parameter, numel, parameter.chunk);
}

bool SelectorList::chooses(const Parameter& parameter, std::int64_t numel, int chunk) const {
  if (excluded_names_.contains(parameter.name)) return false;
  bool included = !has_inclusion_ || names_.contains(parameter.name);
  for (const SelectorItem& item : others_) {
    if ((included && !item.excludes) || !item.fits(parameter, numel, chunk)) continue;
    if (item.excludes) return false;
    included = true;
  }
  return included;
}

}  // namespace schedule

std::optional<std::string> Selectors::check(std::string_view item) {
  std::string mistake;
  read(item, mistake);
  if (mistake.empty()) return std::nullopt;
  return mistake;
}

bool Selectors::excludes(std::string_view item) { return schedule::SelectorItem::read(item).excludes; }

bool Selectors::compares_numel(std::string_view item) {
  return schedule::SelectorItem::read(item).kind == schedule::SelectorItem::Kind::numel;
}

bool Selectors::chooses(const Model& model, const LocalBuffer& buffer) const {
  return schedule::SelectorList(*items_).chooses(model, buffer);
}

bool Selectors::chooses(const Parameter& parameter, std::int64_t numel) const {
  return schedule::SelectorList(*items_).chooses(parameter, numel);
}

bool Selectors::chooses(const Parameter& parameter, std::int64_t numel, int chunk) const {
  return schedule::SelectorList(*items_).chooses(parameter, numel, chunk);
}

bool Selectors::fits(std::string_view item, const Parameter& parameter, std::int64_t numel) {
  return schedule::SelectorItem::read(item).fits(parameter, numel, parameter.chunk);
}

}  // namespace lockstep
