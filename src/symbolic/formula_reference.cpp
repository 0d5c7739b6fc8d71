// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/formula_reference.h"

#include <algorithm>
#include <charconv>

#include "lockstep/diagnostic.h"
#include "lockstep/operation.h"
#include "src/base/at.h"
#include "src/base/counted.h"

namespace lockstep::formula {
namespace {

void collect_leftovers(const std::vector<Step>& steps, std::map<std::string, std::set<bool>>& per_rank_of) {
  for (const Step& step : steps) {
    if (operation(step.op).adds == Operation::Adds::leftover) per_rank_of[step.what].insert(step.per_rank);
    collect_leftovers(step.steps, per_rank_of);
  }
}

Term term(const Frame& frame, int rank, const Slot& slot) {
  Term result;
  result.rank = rank;
  result.micro_batch = slot.micro_batch;
  result.site_use = slot.site_use;
  result.foreign = frame.foreign;
  result.logical = frame.logical;
  result.piece = frame.piece;
  result.offset = frame.foreign ? frame.offset : 0;
  result.coefficient = 1;
  return result;
}

}  // namespace

References::References(Names& names, Scanner& scanner) : names_(names), scanner_(scanner) {
  collect_leftovers(names.schedule().steps, leftovers_);
}

bool References::is_gradient(const std::string& word) {
  return !word.empty() && word[0] == 'g' && std::all_of(word.begin() + 1, word.end(), is_digit);
}

Reference References::gradient(std::size_t offset, const std::string& first) {
  Reference reference;
  reference.offset = offset;
  if (first.size() > 1) {
    int rank = 0;
    const bool fits = std::from_chars(first.data() + 1, first.data() + first.size(), rank).ec == std::errc();
    reference.rank = checked_rank(offset, fits ? rank : -1, first.substr(1));
  }
  while (true) {
    if (scanner_.directly() == '.') {
      ++scanner_.at;
      if (is_digit(scanner_.directly())) {
        reference.micro_batch = scanner_.whole_number();
        const int all = names_.schedule().batch.total_micro_batches();
        if (*reference.micro_batch >= all) {
          scanner_.fail("there is no micro-batch " + std::to_string(*reference.micro_batch) + "; there are " +
                            std::to_string(all) + ", counted from 0 through the optimizer steps",
                        offset);
        }
      } else {
        reference.use = scanner_.word();
        if (reference.use.empty()) scanner_.fail("expected a micro-batch or a use after \".\"", offset);
      }
    } else if (scanner_.directly() == '[') {
      reference.bracket = bracket();
    } else {
      return reference;
    }
  }
}

int References::checked_rank(std::size_t offset, int rank, const std::string& as_written) const {
  const int world = names_.schedule().mesh.world();
  if (rank < 0 || rank >= world) {
    scanner_.fail("there is no rank " + as_written + "; there " + (world == 1 ? "is " : "are ") +
                      counted(world, "rank") + ", counted from 0",
                  offset);
  }
  return rank;
}

bool References::is_clip(const std::string& word) const {
  constexpr std::string_view clip = "clip";
  if (!word.starts_with(clip) || !std::all_of(word.begin() + clip.size(), word.end(), is_digit)) return false;
  std::string_view next = scanner_.text.substr(scanner_.at);
  if (next.starts_with('.')) {
    const std::size_t end = next.find_first_not_of("0123456789", 1);
    if (end == 1 || end == std::string_view::npos) return false;
    next.remove_prefix(end);
  }
  next.remove_prefix(std::min(next.find_first_not_of(' '), next.size()));
  return next.starts_with('(');
}

ClipFactor References::clip(std::size_t offset, const std::string& word) {
  constexpr std::size_t length = std::string_view("clip").size();
  ClipFactor factor;
  if (word.size() > length) {
    int rank = 0;
    const bool fits = std::from_chars(word.data() + length, word.data() + word.size(), rank).ec == std::errc();
    factor.rank = checked_rank(offset, fits ? rank : -1, word.substr(length));
  } else {
    factor.number = names_.own_step().value_or(0);
  }
  if (scanner_.directly() != '.') return factor;
  ++scanner_.at;
  factor.number = scanner_.whole_number();
  const int steps = names_.schedule().batch.steps();
  if (factor.rank < 0 && factor.number >= steps) {
    scanner_.fail("there is no optimizer step " + std::to_string(factor.number) + "; there " +
                      (steps == 1 ? "is " : "are ") + counted(steps, "optimizer step") + ", counted from 0",
                  offset);
  }
  return factor;
}

/// [NAME@4+5]. A name without quotes may itself hold any of these characters: the longest that fits is taken.
Reference::Bracket References::bracket() {
  const std::size_t begin = scanner_.at + 1;
  if (begin < scanner_.text.size() && scanner_.text[begin] == '\'') return quoted_bracket();
  for (std::size_t end = scanner_.text.find(']', begin); end != std::string_view::npos;
       end = scanner_.text.find(']', end + 1)) {
    if (const std::optional<Reference::Bracket> found = bracket_content(scanner_.text.substr(begin, end - begin))) {
      scanner_.at = end + 1;
      return *found;
    }
  }
  const std::size_t end = scanner_.text.find(']', begin);
  if (end == std::string_view::npos) scanner_.fail("\"[\" has no \"]\"", scanner_.at);
  scanner_.at = end;
  no_parameter(begin, scanner_.text.substr(begin, end - begin));
}

/// ['NAME'@4+5]: what is in quotes is the name, whatever it holds.
Reference::Bracket References::quoted_bracket() {
  const std::size_t open = scanner_.at++;
  const std::string name = scanner_.word();
  Reference::Bracket result;
  result.parameter = parameter_named(name);
  if (result.parameter < 0) no_parameter(open + 1, name);
  if (scanner_.directly() == '@') {
    ++scanner_.at;
    result.holder = scanner_.whole_number();
  }
  if (scanner_.directly() == '+' || scanner_.directly() == '-') {
    const std::size_t sign = scanner_.at++;
    const bool further = scanner_.text[sign] == '+';
    while (is_digit(scanner_.directly())) ++scanner_.at;
    const std::string_view shift = scanner_.text.substr(sign, scanner_.at - sign);
    const std::size_t digits = further ? 1 : 0;
    if (std::from_chars(shift.data() + digits, shift.data() + shift.size(), result.shift).ec != std::errc())
      scanner_.fail("expected a number of elements", sign);
  }
  if (scanner_.directly() != ']') scanner_.fail("expected \"]\"", scanner_.at);
  ++scanner_.at;
  return result;
}

int References::parameter_named(std::string_view name) const {
  const std::vector<Parameter>& all = names_.model().parameters();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

void References::no_parameter(std::size_t begin, std::string_view name) const {
  std::vector<std::string> known;
  for (const Parameter& parameter : names_.model().parameters()) known.push_back(parameter.name);
  scanner_.fail("there is no parameter \"" + std::string(name) + "\"" + did_you_mean(name, known), begin);
}

std::optional<Reference::Bracket> References::bracket_content(std::string_view content) const {
  Reference::Bracket result;
  const auto named = [&](std::string_view name) {
    result.parameter = parameter_named(name);
    return result.parameter >= 0;
  };
  if (named(content)) return result;
  // A trailing +5 or -12, then a trailing @4.
  const std::size_t sign = content.find_last_of("+-");
  if (sign != std::string_view::npos) {
    const std::size_t number = content[sign] == '+' ? sign + 1 : sign;
    const char* end = content.data() + content.size();
    const auto parsed = std::from_chars(content.data() + number, end, result.shift);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      result.shift = 0;
    } else {
      content = content.substr(0, sign);
    }
  }
  if (named(content)) return result;
  const std::size_t mark = content.rfind('@');
  if (mark == std::string_view::npos) return std::nullopt;
  int holder = 0;
  const char* end = content.data() + content.size();
  const auto parsed = std::from_chars(content.data() + mark + 1, end, holder);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  result.holder = holder;
  if (!named(content.substr(0, mark))) return std::nullopt;
  return result;
}

Frame References::frame_of(const Reference& reference, int source) const {
  Frame frame = names_.own();
  if (!reference.bracket) return frame;
  const Reference::Bracket& bracket = *reference.bracket;
  const std::string& name = names_.model().parameters()[at(bracket.parameter)].name;
  frame.logical = names_.model().original(names_.model().logical_of(bracket.parameter));
  frame.piece =
      bracket.holder ? names_.piece_on(*bracket.holder, frame.logical) : names_.default_piece(frame.logical, source);
  frame.offset = bracket.shift;
  if (frame.piece < 0 && bracket.holder) {
    scanner_.fail("rank " + std::to_string(*bracket.holder) + " holds no piece of \"" + name + "\"", reference.offset);
  }
  if (frame.piece < 0) {
    scanner_.fail("which piece of \"" + name + "\" is meant? Name a rank that holds it: \"[" + name + "@RANK]\"",
                  reference.offset);
  }
  frame.foreign = frame.logical != names_.own().logical || frame.piece != names_.own().piece || frame.offset != 0;
  return frame;
}

std::vector<Term> References::expand(const Reference& reference, int rank, const Frame& frame, bool needed) {
  if (!reference.micro_batch && !names_.own_step()) {
    scanner_.fail("no micro-batch contributes to this parameter in this step; name one, as in \"g3.1.main\"",
                  reference.offset);
  }
  const int step = reference.micro_batch ? names_.step_of(*reference.micro_batch) : *names_.own_step();
  const int site = reference.bracket ? reference.bracket->parameter : -1;
  std::vector<Term> terms;
  for (const Slot& slot : names_.slots(frame, step, rank)) {
    const SiteUse& through = names_.site_use(frame, slot.site_use);
    if (reference.micro_batch && slot.micro_batch != *reference.micro_batch) continue;
    if (!reference.use.empty() && through.use != reference.use) continue;
    if (site >= 0 && through.parameter != site) continue;
    terms.push_back(term(frame, rank, slot));
  }
  if (!terms.empty() || !needed) return terms;
  const std::vector<SiteUse>& uses = names_.model().logicals()[at(frame.logical)].uses;
  std::vector<int> fitting;
  for (int i = 0; i < static_cast<int>(uses.size()); ++i) {
    const SiteUse& through = uses[at(i)];
    if (through.use == reference.use && (site < 0 || through.parameter == site)) fitting.push_back(i);
  }
  if (reference.micro_batch && fitting.size() == 1) {
    return {term(frame, rank, {*reference.micro_batch, fitting.front()})};
  }
  if (!reference.use.empty() && fitting.empty()) {
    std::vector<std::string> known;
    known.reserve(uses.size());
    for (const SiteUse& through : uses) known.push_back(through.use);
    const std::string hint = did_you_mean(reference.use, known);
    scanner_.fail("the parameter has no use \"" + reference.use + "\"" + hint, reference.offset);
  }
  scanner_.fail("rank " + std::to_string(rank) + " contributes nothing here under the name \"" +
                    std::string(scanner_.text.substr(reference.offset, scanner_.at - reference.offset)) +
                    "\"; where several ranks compute the same, the lowest names it",
                reference.offset);
}

Term References::leftover(std::size_t offset, const std::string& what) {
  const auto found = leftovers_.find(what);
  if (found == leftovers_.end()) {
    std::vector<std::string> known;
    known.reserve(leftovers_.size());
    for (const auto& [name, per_rank] : leftovers_) known.push_back(name);
    const std::string hint = did_you_mean(what, known);
    scanner_.fail("\"" + what +
                      "\" is no gradient (write \"g3\" for rank 3's), and no step leaves a leftover of that name" +
                      hint,
                  offset);
  }
  Reference reference;
  reference.offset = offset;
  while (scanner_.directly() == '.' || scanner_.directly() == '[') {
    if (scanner_.directly() == '[') {
      reference.bracket = bracket();
      continue;
    }
    ++scanner_.at;
    const std::size_t begin = scanner_.at;
    const int rank = scanner_.whole_number();
    reference.rank = checked_rank(offset, rank, std::string(scanner_.text.substr(begin, scanner_.at - begin)));
  }
  if (!found->second.contains(reference.rank.has_value())) {
    scanner_.fail(reference.rank ? "the leftover \"" + what + "\" is equal on all ranks; write it without a rank"
                                 : "the leftover \"" + what + "\" differs by rank; write \"" + what + ".RANK\"",
                  offset);
  }
  Term result = term(frame_of(reference, reference.rank.value_or(-1)), reference.rank.value_or(-1), {-1, 0});
  result.leftover = what;
  return result;
}

}  // namespace lockstep::formula
