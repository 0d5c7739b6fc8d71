// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "src/diagnosis/content_history.h"
#include "src/diagnosis/difference.h"
#include "src/diagnosis/fold_names.h"
#include "src/diagnosis/formulas.h"

namespace lockstep {

namespace {

constexpr std::size_t most_divergences = 64;
// So that one kind of parameter does not use up all of them.
constexpr int most_divergences_of_a_pattern = 8;

/// A form against the reference.
struct Deviation {
  enum class Kind { part, multiple, other_weights, foreign, leftover, other_step, left_out, clipped };
  Kind kind = Kind::part;  ///< part: one multiple of some of the reference's terms
  Rational ratio;          ///< multiple
  std::string what;        ///< leftover
  std::string clips;       ///< clipped: "by another norm"
  bool right() const { return kind == Kind::multiple && ratio.is_one(); }
  bool broken() const { return kind != Kind::part && kind != Kind::multiple; }
};

using TermKey = std::tuple<int, int, int, int>;

TermKey key_of(const Term& term) { return {term.rank, term.micro_batch, term.site_use, term.logical}; }

/// Follows one wrong element back through the replay.
class Tracer {
 public:
  /// `right_unclipped`: the element is right but for clipping factors. Where it is not they are left out of account:
  /// the norm is another one as soon as a gradient is wrong, and what made it wrong is looked for.
  Tracer(const CheckResult& result, const diagnosis::Watch& watch, bool right_unclipped,
         const std::vector<diagnosis::HistoryEntry>& entries, SymbolicEngine& engine, diagnosis::Formulas& formulas)
      : schedule_(*result.scenario->schedule),
        timeline_(*result.timeline),
        step_(result.step),
        watch_(watch),
        follows_clips_(right_unclipped),
        entries_(entries),
        engine_(engine),
        formulas_(formulas) {
    const LocalBuffer& local = schedule_.model.local(watch.rank).buffers[at(watch.buffer)];
    reference_ = engine.terms(engine.reference(local.logical, local.piece, step_), watch.rank, watch.buffer);
    for (const Term& term : reference_) weights_.emplace(key_of(term), term.coefficient);
  }

  Divergence trace() {
    const std::size_t end = timeline_.events.size();
    const diagnosis::HistoryEntry* last = diagnosis::content_after(entries_, schedule_.result, end);
    if (last == nullptr) return missing("nothing ever reached it");
    if (const std::optional<Divergence> spoiled = trace_spoiled()) return *spoiled;
    const Deviation& deviation = deviation_of(last->content.form);
    if (deviation.broken()) return trace_broken(schedule_.result, end);
    if (deviation.kind == Deviation::Kind::part) {
      const std::string words =
          describe_difference(schedule_, engine_.terms(last->content.form, watch_.rank, watch_.buffer), reference_);
      return missing((words.empty() ? "contributions are missing" : words) + ", and no step adds it");
    }
    Divergence point = point_at(last_change(schedule_.result), schedule_.result);
    point.why =
        fmt::format("leaves {} × the right gradient, and no later step corrects it", deviation.ratio.to_string());
    return point;
  }

 private:
  static Divergence missing(std::string why) {
    Divergence point;
    point.why = std::move(why);
    return point;
  }

  /// A step that turned the right gradient into something else, or lost contributions that never came back.
  std::optional<Divergence> trace_spoiled() {
    const diagnosis::HistoryEntry* last = diagnosis::content_after(entries_, schedule_.result, timeline_.events.size());
    const std::set<TermKey> at_last = keys_of(last->content.form);
    std::size_t spoiled = entries_.size(), lost = entries_.size();
    int before = 0;
    for (std::size_t index = 0; index < entries_.size(); ++index) {
      const diagnosis::HistoryEntry& entry = entries_[index];
      if (entry.step->buffer != schedule_.result) continue;
      const int now = entry.content.form;
      if (now != before && timeline_.events[entry.event].optimizer_step == step_) {
        if (deviation_of(before).right()) spoiled = index;
        const std::set<TermKey> kept = keys_of(now);
        for (const TermKey& key : keys_of(before)) {
          if (weights_.contains(key) && !kept.contains(key) && !at_last.contains(key)) lost = index;
        }
      }
      if (deviation_of(now).right()) spoiled = entries_.size();
      before = now;
    }
    const std::size_t index = spoiled < entries_.size() ? spoiled : lost;
    if (index == entries_.size()) return std::nullopt;
    Divergence point = point_at(index, schedule_.result);
    point.broken = true;
    const Deviation& deviation = deviation_of(entries_[index].content.form);
    if (index == lost) {
      point.why = "loses contributions that were there";
    } else if (deviation.kind == Deviation::Kind::multiple) {
      point.why = fmt::format("turns the right gradient into {} times it", deviation.ratio.to_string());
    } else {
      point.why = deviation.broken() ? why(deviation, entries_[index].step->op) : "changes what was the right gradient";
    }
    return point;
  }

  std::set<TermKey> keys_of(int form) const {
    std::set<TermKey> keys;
    for (const Term& term : engine_.terms(form, watch_.rank, watch_.buffer)) {
      if (!term.foreign && term.leftover.empty()) keys.insert(key_of(term));
    }
    return keys;
  }

  /// The first entry of the last stretch of broken contents of buffer `name` up to event `end`.
  Divergence trace_broken(const std::string& name, std::size_t end) {
    std::size_t first = entries_.size();
    bool older_step = false;
    for (std::size_t index = entries_.size(); index-- > 0;) {
      const diagnosis::HistoryEntry& entry = entries_[index];
      if (entry.step->buffer != name || entry.event > end) continue;
      if (!deviation_of(entry.content.form).broken()) break;
      if (timeline_.events[entry.event].optimizer_step < step_) {
        older_step = true;
        break;
      }
      first = index;
    }
    if (first == entries_.size() || (older_step && !cleared(first, name))) {
      return missing("what an earlier optimizer step left is still there, and no step clears it");
    }
    const diagnosis::HistoryEntry& entry = entries_[first];
    if (!entry.step->from.empty() && entry.step->from != name) {
      // The step only hands on what went wrong in another buffer.
      const diagnosis::HistoryEntry* source = diagnosis::content_after(entries_, entry.step->from, entry.event);
      if (source != nullptr && deviation_of(source->content.form).broken())
        return trace_broken(entry.step->from, entry.event);
    }
    Divergence point = point_at(first, name);
    point.broken = true;
    point.why = why(deviation_of(entry.content.form), entry.step->op);
    return point;
  }

  /// The last entry at which the content of buffer `name` became another.
  std::size_t last_change(const std::string& name) const {
    std::size_t last = entries_.size();
    for (std::size_t index = entries_.size(); index-- > 0;) {
      if (entries_[index].step->buffer != name) continue;
      if (last != entries_.size() && !is_same(entries_[index].content.form, entries_[last].content.form)) break;
      last = index;
    }
    return last;
  }

  bool is_same(int form, int other) const {
    if (form == other || follows_clips_) return form == other;
    const std::vector<Term> one = followed(form), two = followed(other);
    return std::equal(one.begin(), one.end(), two.begin(), two.end(), [](const Term& a, const Term& b) {
      const auto key = [](const Term& t) { return std::tie(t.leftover, t.foreign, t.piece, t.offset, t.coefficient); };
      return key_of(a) == key_of(b) && key(a) == key(b);
    });
  }

  std::vector<Term> followed(int form) const {
    std::vector<Term> terms = engine_.terms(form, watch_.rank, watch_.buffer);
    return follows_clips_ ? terms : diagnosis::apart_from_clips(terms);
  }

  /// Whether the entry replaces what was there, so that an older step's content is not to blame.
  bool cleared(std::size_t index, const std::string& name) {
    const diagnosis::HistoryEntry* before =
        index == 0 ? nullptr : diagnosis::content_after(entries_, name, entries_[index].event - 1);
    return before == nullptr || deviation_of(before->content.form).kind != Deviation::Kind::other_step;
  }

  /// What a step with this op does.
  static std::string why(const Deviation& deviation, Op op) {
    switch (deviation.kind) {
      case Deviation::Kind::foreign:
        return "brings in contributions that belong to other elements or another parameter";
      case Deviation::Kind::leftover:
        return fmt::format("brings in what is no gradient ({})", deviation.what);
      case Deviation::Kind::left_out:
        return "brings in contributions that the loss leaves out: their weight is 0";
      case Deviation::Kind::other_step:
        return "brings in contributions of another optimizer step";
      case Deviation::Kind::clipped:
        return (operation(op).clips() ? "clips " : "brings in what is clipped ") + deviation.clips;
      default:
        return "adds up shares with coefficients in a wrong ratio";
    }
  }

  Divergence point_at(std::size_t index, const std::string& name) {
    const diagnosis::HistoryEntry& entry = entries_[index];
    Divergence point;
    point.step = entry.step->name;
    point.event = entry.event;
    const diagnosis::HistoryEntry* before =
        entry.event == 0 ? nullptr : diagnosis::content_after(entries_, name, entry.event - 1);
    point.before = before == nullptr ? "0" : formula(before->content.form);
    point.after = formula(entry.content.form);
    return point;
  }

  const std::string& formula(int form) { return formulas_.formula(form, watch_.rank, watch_.buffer, step_); }

  bool is_now(int micro_batch) const {
    const int first = schedule_.batch.first_micro_batch(step_);
    return first <= micro_batch && micro_batch < first + schedule_.batch.micro_batches(step_);
  }

  const Deviation& deviation_of(int form) {
    const auto found = deviations_.find(form);
    if (found != deviations_.end()) return found->second;
    return deviations_[form] = compare(followed(form));
  }

  Deviation compare(const std::vector<Term>& terms) const {
    Deviation deviation;
    std::optional<Rational> ratio;
    for (const Term& term : terms) {
      if (!term.leftover.empty()) {
        deviation.kind = Deviation::Kind::leftover;
        deviation.what = term.leftover;
        return deviation;
      }
      const auto weight = weights_.find(key_of(term));
      if (term.foreign || weight == weights_.end()) {
        deviation.kind = term.foreign               ? Deviation::Kind::foreign
                         : is_now(term.micro_batch) ? Deviation::Kind::left_out
                                                    : Deviation::Kind::other_step;
        return deviation;
      }
      const Rational here = term.coefficient / weight->second;
      if (ratio && *ratio != here) deviation.kind = Deviation::Kind::other_weights;
      ratio = here;
    }
    const bool clipped = !follows_clips_ || compare_clips(terms, deviation);
    if (clipped && deviation.kind == Deviation::Kind::part && ratio && terms.size() == reference_.size()) {
      deviation.kind = Deviation::Kind::multiple;
      deviation.ratio = *ratio;
    }
    return deviation;
  }

  /// Whether all terms are clipped as those of the reference. Not yet is no deviation for good.
  bool compare_clips(const std::vector<Term>& terms, Deviation& deviation) const {
    if (terms.empty() || reference_.empty()) return true;
    const std::vector<ClipFactor>& should = reference_.front().clips;
    const std::vector<ClipFactor>& is = terms.front().clips;
    if (std::any_of(terms.begin(), terms.end(), [&](const Term& term) { return term.clips != is; })) {
      deviation.clips = "by different factors";
    } else if (is.size() > should.size()) {
      deviation.clips = "once more";
    } else if (!is.empty() && is != should) {
      deviation.clips = "by another norm than that of all gradients";
    }
    if (!deviation.clips.empty()) deviation.kind = Deviation::Kind::clipped;
    return is == should;
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  int step_;
  diagnosis::Watch watch_;
  bool follows_clips_;
  const std::vector<diagnosis::HistoryEntry>& entries_;
  SymbolicEngine& engine_;
  diagnosis::Formulas& formulas_;
  std::vector<Term> reference_;
  std::map<TermKey, Rational> weights_;
  std::map<int, Deviation> deviations_;
};

/// Fills in the points of `divergences` from one replay.
void trace_divergences(const CheckResult& result, const std::vector<diagnosis::Watch>& watches,
                       std::vector<BufferDivergence>& divergences) {
  const Schedule& schedule = *result.scenario->schedule;
  const diagnosis::ContentHistory history = diagnosis::record_history(schedule, *result.timeline, watches, result.step);
  diagnosis::Formulas formulas(schedule, *history.engine);
  for (std::size_t index = 0; index < divergences.size(); ++index) {
    divergences[index].point = Tracer(result, watches[index], divergences[index].right_unclipped,
                                      history.entries[index], *history.engine, formulas)
                                   .trace();
  }
}

}  // namespace

namespace diagnosis {

std::vector<BufferDivergence> find_divergences(const CheckResult& result) {
  std::vector<BufferDivergence> divergences;
  const SymbolicResult* symbolic = symbolic_of(result);
  if (symbolic == nullptr || result.verdict != Verdict::mismatch) return divergences;
  const Model& model = result.scenario->schedule->model;
  std::vector<Watch> watches;
  std::set<std::pair<int, int>> seen;
  std::map<std::string, int> of_pattern;
  for (const BufferResult& buffer : symbolic->buffers) {
    for (const PieceResult& piece : buffer.pieces) {
      if (piece.right || divergences.size() == most_divergences || !seen.emplace(piece.form, piece.reference).second)
        continue;
      const int parameter = model.local(buffer.rank).buffers[at(buffer.buffer)].parameters.front();
      const std::string& name = model.parameters()[at(parameter)].name;
      if (++of_pattern[folded_name(name)] > most_divergences_of_a_pattern) continue;
      divergences.push_back({buffer.rank, buffer.buffer, piece.form, piece.reference, piece.right_unclipped, {}});
      watches.push_back({buffer.rank, buffer.buffer, piece.elements.begin});
    }
  }
  if (!divergences.empty()) trace_divergences(result, watches, divergences);
  return divergences;
}

}  // namespace diagnosis

std::optional<Divergence> first_divergence(const CheckResult& result, int rank, int buffer) {
  const SymbolicResult* symbolic = symbolic_of(result);
  if (symbolic == nullptr) return std::nullopt;
  for (const BufferResult& candidate : symbolic->buffers) {
    if (candidate.rank != rank || candidate.buffer != buffer) continue;
    for (const PieceResult& piece : candidate.pieces) {
      if (piece.right) continue;
      std::vector<BufferDivergence> divergences = {
          {rank, buffer, piece.form, piece.reference, piece.right_unclipped, {}}};
      trace_divergences(result, {{rank, buffer, piece.elements.begin}}, divergences);
      return divergences.front().point;
    }
  }
  return std::nullopt;
}

namespace diagnosis {

std::vector<Blame> blame_of(const std::vector<BufferDivergence>& divergences) {
  // What is right but for a clip may be so because something else is wrong, which its norm counts as well.
  const bool any_value = std::any_of(divergences.begin(), divergences.end(),
                                     [](const BufferDivergence& one) { return !one.right_unclipped; });
  std::map<std::size_t, const Divergence*> by_event;
  for (const BufferDivergence& divergence : divergences) {
    if (any_value && divergence.right_unclipped) continue;
    if (divergence.point.broken && !divergence.point.step.empty())
      by_event.emplace(divergence.point.event, &divergence.point);
  }
  std::vector<Blame> blame;
  for (const auto& [event, point] : by_event) {
    const bool known =
        std::any_of(blame.begin(), blame.end(), [&](const Blame& other) { return other.step == point->step; });
    if (known) continue;
    blame.push_back({point->step,
                     fmt::format("{}: {} becomes {}", point->why, point->before, point->after),
                     {point->before, point->after}});
  }
  return blame;
}

}  // namespace diagnosis

}  // namespace lockstep
