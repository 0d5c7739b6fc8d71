// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/formula_names.h"

#include <algorithm>

#include "src/base/at.h"
#include "src/symbolic/formula_scanner.h"

namespace lockstep::formula {
namespace {

Support indexed(const std::vector<Term>& terms) {
  Support support;
  for (const Term& term : terms) support[term.rank].push_back({term.micro_batch, term.site_use});
  for (auto& [rank, slots] : support) std::sort(slots.begin(), slots.end());
  return support;
}

std::string in_quotes(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

/// Whether a name can stand in a bracket as it is: nothing in it could end it, nor be a place or a rank behind it.
bool is_plain_in_bracket(const std::string& name) {
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_dash = c == '-' && i + 1 < name.size() && !is_digit(name[i + 1]);
    const bool is_of_a_name = is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80;
    if (!is_of_a_name && !is_dash && std::string_view("./:*").find(c) == std::string_view::npos) return false;
  }
  return !name.empty();
}

}  // namespace

Names::Names(const Schedule& schedule, int rank, int buffer, const std::vector<Term>& support)
    : schedule_(&schedule), rank_(rank) {
  const LocalBuffer& local = schedule.model.local(rank).buffers[at(buffer)];
  own_ = {false, schedule.model.original(local.logical), local.piece, 0};
  if (!support.empty()) {
    own_step_ = step_of(support.front().micro_batch);
  } else if (schedule.batch.steps() == 1) {
    own_step_ = 0;
  }
  if (own_step_) supports_.emplace(std::tuple(own_.logical, local.piece, *own_step_), indexed(support));
}

int Names::step_of(int micro_batch) const {
  int step = 0, first = 0;
  while (step + 1 < schedule_->batch.steps()) {
    first += schedule_->batch.micro_batches(step);
    if (micro_batch < first) break;
    ++step;
  }
  return step;
}

const Support& Names::support(const Frame& frame, int step) {
  const std::tuple key(frame.logical, frame.piece, step);
  auto found = supports_.find(key);
  if (found == supports_.end()) {
    found = supports_.emplace(key, indexed(reference_terms(*schedule_, frame.logical, frame.piece, step))).first;
  }
  return found->second;
}

const std::vector<Slot>& Names::slots(const Frame& frame, int step, int source) {
  static const std::vector<Slot> none;
  const Support& all = support(frame, step);
  const auto found = all.find(source);
  return found == all.end() ? none : found->second;
}

const SiteUse& Names::site_use(const Frame& frame, int index) const {
  return model().logicals()[at(frame.logical)].uses[at(index)];
}

int Names::sites_with(const Frame& frame, const std::string& use) const {
  const std::vector<SiteUse>& uses = model().logicals()[at(frame.logical)].uses;
  return static_cast<int>(std::count_if(uses.begin(), uses.end(), [&](const SiteUse& one) { return one.use == use; }));
}

int Names::piece_on(int rank, int logical) const {
  if (rank < 0 || rank >= schedule_->mesh.world()) return -1;
  const int buffer = model().buffer_of_copy(rank, logical);
  return buffer < 0 ? -1 : model().local(rank).buffers[at(buffer)].piece;
}

int Names::default_piece(int logical, int source) const {
  const int there = source >= 0 ? piece_on(source, logical) : -1;
  return there >= 0 ? there : piece_on(rank_, logical);
}

int Names::lowest_holder(int logical, int piece) {
  const auto [found, added] = lowest_holders_.emplace(std::pair(logical, piece), -1);
  for (int rank = 0; added && found->second < 0 && rank < schedule_->mesh.world(); ++rank) {
    if (piece_on(rank, logical) == piece) found->second = rank;
  }
  return found->second;
}

std::string Names::bracket(const Frame& frame, int parameter, int source) {
  const std::string& name = model().parameters()[at(parameter)].name;
  std::string text = "[" + (is_plain_in_bracket(name) ? name : in_quotes(name));
  if (frame.piece != default_piece(frame.logical, source)) {
    text += "@" + std::to_string(lowest_holder(frame.logical, frame.piece));
  }
  if (frame.offset != 0) text += (frame.offset > 0 ? "+" : "") + std::to_string(frame.offset);
  return text + "]";
}

}  // namespace lockstep::formula

namespace lockstep {

std::string name_of(const ClipFactor& factor, std::optional<int> optimizer_step) {
  const std::string number = "." + std::to_string(factor.number);
  if (factor.rank < 0) return factor.number == optimizer_step ? "clip" : "clip" + number;
  return "clip" + std::to_string(factor.rank) + (factor.number == 0 ? "" : number);
}

}  // namespace lockstep

namespace lockstep::formula {

std::string quoted_unless_plain(const std::string& word) {
  bool plain = !word.empty() && is_letter(word[0]) && word != "sum" &&
               std::all_of(word.begin(), word.end(), [](char c) { return is_letter(c) || is_digit(c); });
  // g and g3 are gradients.
  if (plain && word[0] == 'g') plain = !std::all_of(word.begin() + 1, word.end(), is_digit);
  return plain ? word : in_quotes(word);
}

void sort_terms(std::vector<Term>& terms) {
  const auto key = [](const Term& t) {
    return std::tuple(!t.leftover.empty(), t.foreign, t.rank, t.micro_batch, t.site_use, std::string_view(t.leftover),
                      t.logical, t.piece, t.offset, t.clips);
  };
  std::sort(terms.begin(), terms.end(), [&](const Term& a, const Term& b) { return key(a) < key(b); });
}

}  // namespace lockstep::formula
