// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/turning_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "src/diagnosis/content_history.h"
#include "src/diagnosis/fold_names.h"
#include "src/diagnosis/formulas.h"

namespace lockstep {

namespace {

constexpr std::size_t most_turns = 64;
// So that one kind of parameter does not use up all of them.
constexpr int most_turns_of_a_pattern = 8;

/// A form against the reference.
struct Standing {
  enum class Kind { part, multiple, other_weights, foreign, leftover, other_step, left_out };
  Kind kind = Kind::part;  ///< part: one multiple of some of the reference's terms
  Rational ratio;          ///< multiple
  std::string what;        ///< leftover
  bool right() const { return kind == Kind::multiple && ratio.is_one(); }
  bool broken() const { return kind != Kind::part && kind != Kind::multiple; }
};

using TermKey = std::tuple<int, int, int, int>;

TermKey key_of(const Term& term) { return {term.rank, term.micro_batch, term.site_use, term.logical}; }

/// Follows one wrong element back through the replay.
class Tracer {
 public:
  Tracer(const CheckResult& result, const diagnosis::Watch& watch, const std::vector<diagnosis::Moment>& moments,
         SymbolicEngine& engine, diagnosis::Formulas& formulas)
      : schedule_(*result.scenario->schedule),
        timeline_(*result.timeline),
        step_(result.step),
        watch_(watch),
        moments_(moments),
        engine_(engine),
        formulas_(formulas) {
    const LocalBuffer& local = schedule_.model.local(watch.rank).buffers[at(watch.buffer)];
    reference_ = engine.terms(engine.reference(local.logical, local.piece, step_), watch.rank, watch.buffer);
    for (const Term& term : reference_) weights_.emplace(key_of(term), term.coefficient);
  }

  TurningPoint trace() {
    const std::size_t end = timeline_.events.size();
    const diagnosis::Moment* last = diagnosis::content_after(moments_, schedule_.result, end);
    if (last == nullptr) return missing("nothing ever reached it");
    if (const std::optional<TurningPoint> spoiled = trace_spoiled()) return *spoiled;
    const Standing& standing = stand(last->content.form);
    if (standing.broken()) return trace_broken(schedule_.result, end);
    if (standing.kind == Standing::Kind::part) {
      const std::string words =
          describe_difference(schedule_, engine_.terms(last->content.form, watch_.rank, watch_.buffer), reference_);
      return missing((words.empty() ? "contributions are missing" : words) + "; no step makes up for it");
    }
    TurningPoint point = point_at(last_change(schedule_.result), schedule_.result);
    point.why =
        fmt::format("leaves {} × the right gradient, and no later step corrects it", standing.ratio.to_string());
    return point;
  }

 private:
  static TurningPoint missing(std::string why) {
    TurningPoint point;
    point.why = std::move(why);
    return point;
  }

  /// A step that turned the right gradient into something else, or lost contributions that never came back.
  std::optional<TurningPoint> trace_spoiled() {
    const diagnosis::Moment* last = diagnosis::content_after(moments_, schedule_.result, timeline_.events.size());
    const std::set<TermKey> at_last = keys_of(last->content.form);
    std::size_t spoiled = moments_.size(), lost = moments_.size();
    int before = 0;
    for (std::size_t index = 0; index < moments_.size(); ++index) {
      const diagnosis::Moment& moment = moments_[index];
      if (moment.step->buffer != schedule_.result) continue;
      const int now = moment.content.form;
      if (now != before && timeline_.events[moment.event].optimizer_step == step_) {
        if (stand(before).right()) spoiled = index;
        const std::set<TermKey> kept = keys_of(now);
        for (const TermKey& key : keys_of(before)) {
          if (weights_.contains(key) && !kept.contains(key) && !at_last.contains(key)) lost = index;
        }
      }
      if (stand(now).right()) spoiled = moments_.size();
      before = now;
    }
    const std::size_t index = spoiled < moments_.size() ? spoiled : lost;
    if (index == moments_.size()) return std::nullopt;
    TurningPoint point = point_at(index, schedule_.result);
    point.broken = true;
    const Standing& standing = stand(moments_[index].content.form);
    if (index == lost) {
      point.why = "loses contributions that were there";
    } else if (standing.kind == Standing::Kind::multiple) {
      point.why = fmt::format("turns the right gradient into {} times it", standing.ratio.to_string());
    } else {
      point.why = standing.broken() ? why(standing) : "changes what was the right gradient";
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

  /// The first moment of the last stretch of broken contents of buffer `name` up to event `end`.
  TurningPoint trace_broken(const std::string& name, std::size_t end) {
    std::size_t first = moments_.size();
    bool older_step = false;
    for (std::size_t index = moments_.size(); index-- > 0;) {
      const diagnosis::Moment& moment = moments_[index];
      if (moment.step->buffer != name || moment.event > end) continue;
      if (!stand(moment.content.form).broken()) break;
      if (timeline_.events[moment.event].optimizer_step < step_) {
        older_step = true;
        break;
      }
      first = index;
    }
    if (first == moments_.size() || (older_step && !cleared(first, name))) {
      return missing("what an earlier optimizer step left there is still in it: no step clears it");
    }
    const diagnosis::Moment& moment = moments_[first];
    if (!moment.step->from.empty() && moment.step->from != name) {
      // The step only hands on what went wrong in another buffer.
      const diagnosis::Moment* source = diagnosis::content_after(moments_, moment.step->from, moment.event);
      if (source != nullptr && stand(source->content.form).broken())
        return trace_broken(moment.step->from, moment.event);
    }
    TurningPoint point = point_at(first, name);
    point.broken = true;
    point.why = why(stand(moment.content.form));
    return point;
  }

  /// The last moment at which the content of buffer `name` became another.
  std::size_t last_change(const std::string& name) const {
    std::size_t last = moments_.size();
    for (std::size_t index = moments_.size(); index-- > 0;) {
      if (moments_[index].step->buffer != name) continue;
      if (last != moments_.size() && moments_[index].content.form != moments_[last].content.form) break;
      last = index;
    }
    return last;
  }

  /// Whether the moment replaces what was there, so that an older step's content is not to blame.
  bool cleared(std::size_t index, const std::string& name) {
    const diagnosis::Moment* before =
        index == 0 ? nullptr : diagnosis::content_after(moments_, name, moments_[index].event - 1);
    return before == nullptr || stand(before->content.form).kind != Standing::Kind::other_step;
  }

  static std::string why(const Standing& standing) {
    switch (standing.kind) {
      case Standing::Kind::foreign:
        return "brings in contributions that belong to other elements or another parameter";
      case Standing::Kind::leftover:
        return fmt::format("brings in what is no gradient ({})", standing.what);
      case Standing::Kind::left_out:
        return "brings in contributions that the loss leaves out: their weight is 0";
      case Standing::Kind::other_step:
        return "brings in contributions of another optimizer step";
      default:
        return "mixes shares of different weight";
    }
  }

  TurningPoint point_at(std::size_t index, const std::string& name) {
    const diagnosis::Moment& moment = moments_[index];
    TurningPoint point;
    point.step = moment.step->name;
    point.event = moment.event;
    const diagnosis::Moment* before =
        moment.event == 0 ? nullptr : diagnosis::content_after(moments_, name, moment.event - 1);
    point.before = before == nullptr ? "0" : formula(before->content.form);
    point.after = formula(moment.content.form);
    return point;
  }

  const std::string& formula(int form) { return formulas_.formula(form, watch_.rank, watch_.buffer, step_); }

  bool is_now(int micro_batch) const {
    const int first = schedule_.batch.first_micro_batch(step_);
    return first <= micro_batch && micro_batch < first + schedule_.batch.micro_batches(step_);
  }

  const Standing& stand(int form) {
    const auto found = standings_.find(form);
    if (found != standings_.end()) return found->second;
    return standings_[form] = compare(engine_.terms(form, watch_.rank, watch_.buffer));
  }

  Standing compare(const std::vector<Term>& terms) const {
    Standing standing;
    std::optional<Rational> ratio;
    for (const Term& term : terms) {
      if (!term.leftover.empty()) {
        standing.kind = Standing::Kind::leftover;
        standing.what = term.leftover;
        return standing;
      }
      const auto weight = weights_.find(key_of(term));
      if (term.foreign || weight == weights_.end()) {
        standing.kind = term.foreign               ? Standing::Kind::foreign
                        : is_now(term.micro_batch) ? Standing::Kind::left_out
                                                   : Standing::Kind::other_step;
        return standing;
      }
      const Rational here = term.coefficient / weight->second;
      if (ratio && *ratio != here) standing.kind = Standing::Kind::other_weights;
      ratio = here;
    }
    if (standing.kind == Standing::Kind::part && ratio && terms.size() == reference_.size()) {
      standing.kind = Standing::Kind::multiple;
      standing.ratio = *ratio;
    }
    return standing;
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  int step_;
  diagnosis::Watch watch_;
  const std::vector<diagnosis::Moment>& moments_;
  SymbolicEngine& engine_;
  diagnosis::Formulas& formulas_;
  std::vector<Term> reference_;
  std::map<TermKey, Rational> weights_;
  std::map<int, Standing> standings_;
};

/// Fills in the points of `turns` from one replay.
void trace_turns(const CheckResult& result, const std::vector<diagnosis::Watch>& watches, std::vector<Turn>& turns) {
  const Schedule& schedule = *result.scenario->schedule;
  const diagnosis::ContentHistory history = diagnosis::record_history(schedule, *result.timeline, watches, result.step);
  diagnosis::Formulas formulas(schedule, *history.engine);
  for (std::size_t index = 0; index < turns.size(); ++index) {
    turns[index].point = Tracer(result, watches[index], history.moments[index], *history.engine, formulas).trace();
  }
}

}  // namespace

namespace diagnosis {

std::vector<Turn> find_turns(const CheckResult& result) {
  std::vector<Turn> turns;
  const SymbolicResult* symbolic = symbolic_of(result);
  if (symbolic == nullptr || result.verdict != Verdict::mismatch) return turns;
  const Model& model = result.scenario->schedule->model;
  std::vector<Watch> watches;
  std::set<std::pair<int, int>> seen;
  std::map<std::string, int> of_pattern;
  for (const BufferResult& buffer : symbolic->buffers) {
    for (const PieceResult& piece : buffer.pieces) {
      if (piece.right || turns.size() == most_turns || !seen.emplace(piece.form, piece.reference).second) continue;
      const int parameter = model.local(buffer.rank).buffers[at(buffer.buffer)].parameters.front();
      const std::string& name = model.parameters()[at(parameter)].name;
      if (++of_pattern[folded_name(name)] > most_turns_of_a_pattern) continue;
      turns.push_back({buffer.rank, buffer.buffer, piece.form, piece.reference, {}});
      watches.push_back({buffer.rank, buffer.buffer, piece.elements.begin});
    }
  }
  if (!turns.empty()) trace_turns(result, watches, turns);
  return turns;
}

}  // namespace diagnosis

std::optional<TurningPoint> turning_point(const CheckResult& result, int rank, int buffer) {
  const SymbolicResult* symbolic = symbolic_of(result);
  if (symbolic == nullptr) return std::nullopt;
  for (const BufferResult& candidate : symbolic->buffers) {
    if (candidate.rank != rank || candidate.buffer != buffer) continue;
    for (const PieceResult& piece : candidate.pieces) {
      if (piece.right) continue;
      std::vector<Turn> turns = {{rank, buffer, piece.form, piece.reference, {}}};
      trace_turns(result, {{rank, buffer, piece.elements.begin}}, turns);
      return turns.front().point;
    }
  }
  return std::nullopt;
}

namespace diagnosis {

std::vector<Blame> blame_of(const std::vector<Turn>& turns) {
  std::map<std::size_t, const TurningPoint*> by_event;
  for (const Turn& turn : turns) {
    if (turn.point.broken && !turn.point.step.empty()) by_event.emplace(turn.point.event, &turn.point);
  }
  std::vector<Blame> blame;
  for (const auto& [event, point] : by_event) {
    const bool known =
        std::any_of(blame.begin(), blame.end(), [&](const Blame& other) { return other.step == point->step; });
    if (known) continue;
    blame.push_back({point->step, fmt::format("{}: {} becomes {}", point->why, point->before, point->after)});
  }
  return blame;
}

}  // namespace diagnosis

}  // namespace lockstep
