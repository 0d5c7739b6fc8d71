// SPDX-License-Identifier: Apache-2.0
#include "src/live/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/at.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

constexpr std::size_t most_stretches = 1 << 16;

/// The stretches of a box in row-major order within another box that holds it.
std::optional<Intervals> stretches(const std::vector<Interval>& inner, const std::vector<Interval>& outer) {
  Intervals found = {{0, 1}};
  for (std::size_t dim = 0; dim < inner.size(); ++dim) {
    const Interval cut = {inner[dim].begin - outer[dim].begin, inner[dim].end - outer[dim].begin};
    const std::int64_t size = outer[dim].size();
    if (cut.begin < 0 || cut.end > size) return std::nullopt;
    Intervals next;
    // Stretches that span whole rows stay one.
    for (const Interval& interval : found) {
      if (cut.begin == 0 && cut.end == size) {
        next.push_back({interval.begin * size, interval.end * size});
        continue;
      }
      for (std::int64_t row = interval.begin; row < interval.end; ++row) {
        if (next.size() == most_stretches) return std::nullopt;
        next.push_back({row * size + cut.begin, row * size + cut.end});
      }
    }
    found = std::move(next);
  }
  return found;
}

bool is_unexplained(const VerifiedPiece& piece) { return piece.unexplained > piece.noise; }

std::string measured_words(const VerifiedPiece& piece) {
  std::string text = piece.formula.empty() ? "no formula was recovered" : piece.formula + " was measured";
  if (is_unexplained(piece))
    text += fmt::format(", with {} that is none of the recorded contributions", percent(piece.unexplained));
  return text;
}

}  // namespace

void Meetings::add(const Meeting& meeting) {
  all_.certain = all_.certain && meeting.certain;
  if (all_.meets && !meeting.meets) {
    all_.meets = false;
    all_.why = meeting.why;
  }
  if (meeting.nothing_arrives()) return;
  same_ = same_ && meeting.ratio && (!any_ || all_.ratio == meeting.ratio);
  any_ = true;
  all_.ratio = same_ ? meeting.ratio : std::nullopt;
}

Prediction::Prediction(const Recording& recording, std::shared_ptr<const Scenario> scenario, Evidence& evidence,
                       bool formulas)
    : recording_(recording), scenario_(std::move(scenario)), evidence_(evidence) {
  const Schedule& schedule = *scenario_->schedule;
  timeline_ = std::make_shared<const Timeline>(walk(schedule));
  if (!formulas) return;
  if (timeline_->outcome.kind != Outcome::Kind::complete) {
    const std::string& why = timeline_->outcome.why;
    throw InputError({Diagnostic{
        {},
        fmt::format("{}: what it did is no schedule whose collectives meet: the ranks of one own different parts{}",
                    recording.run->folder, why.empty() ? "." : fmt::format(" ({}).", why))}});
  }
  engine_ = std::make_unique<SymbolicEngine>(schedule, *timeline_);
  engine_->run();
}

int Prediction::buffer_of(int rank, int parameter) const {
  const Experts& experts = recording_.experts;
  const int coordinate = experts.coordinate[at(parameter)];
  if (coordinate >= 0 && experts.mesh->coordinate(rank, Axis::ep) != coordinate) return -1;
  const Model& model = scenario_->schedule->model;
  return model.buffer_of(rank, model.logical_of(recording_.in_model[at(parameter)]));
}

std::optional<std::size_t> Prediction::index_of(int step) const {
  const auto found = std::lower_bound(recording_.steps.begin(), recording_.steps.end(), step);
  if (found == recording_.steps.end() || *found != step) return std::nullopt;
  return static_cast<std::size_t>(found - recording_.steps.begin());
}

std::optional<Intervals> Prediction::local_of(int parameter, int piece, int rank, int buffer) const {
  const Model& model = scenario_->schedule->model;
  const LocalBuffer& local = model.local(rank).buffers[at(buffer)];
  std::vector<Interval> held = model.pieces(local.logical)[at(local.piece)].dims;
  if (recording_.experts.coordinate[at(parameter)] >= 0) held.erase(held.begin());  // ep
  const DeclaredParameter& declared = recording_.run->parameters[at(parameter)].declared;
  const std::vector<std::int64_t>& shape = recording_.placements[at(parameter)].shape;
  const auto bounds = bounds_of_piece(declared, piece, shape);
  if (!bounds) return Intervals{};
  const std::vector<Interval>& own = declared.pieces[at(piece)];
  if (own.size() > 1) {
    const auto box = box_of_piece(declared, piece, shape);
    return box ? stretches(*box, held) : std::nullopt;
  }
  // A range that spans several rows of a dimension spans all of the later ones, and so does what holds it.
  std::int64_t first = 0, last = 0, size = 1, begin = own.front().begin, end = own.front().end - 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    if ((*bounds)[dim].begin < held[dim].begin || (*bounds)[dim].end > held[dim].end) return std::nullopt;
    first += (begin % shape[dim] - held[dim].begin) * size;
    last += (end % shape[dim] - held[dim].begin) * size;
    begin /= shape[dim];
    end /= shape[dim];
    size *= held[dim].size();
  }
  return Intervals{{first, last + 1}};
}

std::string Prediction::formula(int form, int rank, int buffer, std::size_t step) const {
  const Schedule& schedule = *scenario_->schedule;
  const LocalBuffer& local = schedule.model.local(rank).buffers[at(buffer)];
  return print_formula(schedule, rank, buffer, engine_->terms(form, rank, buffer),
                       reference_terms(schedule, local.logical, local.piece, static_cast<int>(step)));
}

Meeting Prediction::meet(const VerifiedPiece& piece) const {
  const auto step = index_of(piece.step);
  if (!step) throw InternalError("a result of an optimizer step that was not recorded");
  if (piece.ranks.empty()) return {false, true, "no rank's optimizer gets it, which no schedule says", {}};
  Meetings ranks;
  for (const int rank : piece.ranks) ranks.add(meet_on(piece, rank, *step));
  return ranks.all();
}

Meeting Prediction::meet_on(const VerifiedPiece& piece, int rank, std::size_t step) const {
  const int buffer = buffer_of(rank, piece.parameter);
  if (buffer < 0) return {false, true, "the schedule's rank does not hold it", {}};
  const std::optional<Intervals> elements = local_of(piece.parameter, piece.piece, rank, buffer);
  if (!elements) return {false, true, "it is cut into pieces that no schedule has", {}};
  Meetings forms;
  std::set<int> known;
  const std::vector<SymbolicEngine::Content> held = engine_->handed_over(rank, buffer, static_cast<int>(step));
  for (const Interval& stretch : *elements) {
    if (!owns(rank, buffer, step, stretch))
      return {false, true, "the schedule gives it to another rank's optimizer", {}};
    auto next = std::upper_bound(
        held.begin(), held.end(), stretch.begin,
        [](std::int64_t begin, const SymbolicEngine::Content& part) { return begin < part.elements.end; });
    for (; next != held.end() && next->elements.begin < stretch.end; ++next) {
      if (!known.insert(next->form).second) continue;
      const std::optional<Coefficients> predicted =
          coefficients(engine_->terms(next->form, rank, buffer), piece.parameter);
      Meeting met = predicted ? compare(piece, *predicted, step) : Meeting{};
      if (!met.meets)
        met.why = fmt::format("the schedule predicts {}, and {}", formula(next->form, rank, buffer, step),
                              measured_words(piece));
      forms.add(met);
    }
  }
  return forms.all();
}

std::optional<Prediction::Coefficients> Prediction::coefficients(const std::vector<Term>& terms, int parameter) const {
  const Experts& experts = recording_.experts;
  const bool is_expert = experts.coordinate[at(parameter)] >= 0;
  Coefficients found;
  std::map<std::tuple<int, int, int>, std::map<int, Rational>> dispatched;  // of each, by whose tokens
  for (const Term& term : terms) {
    // A captured run is looked at before it clips, which tells nothing of terms that are clipped apart.
    if (term.clips != terms.front().clips) return std::nullopt;
    if (!term.leftover.empty() || (term.foreign && !is_expert)) return std::nullopt;
    if (!is_expert) {
      found[{parameter, term.rank, term.micro_batch}] += term.coefficient;
      continue;
    }
    int source = parameter;
    if (term.foreign) {
      // The same place of another expert.
      const Model& model = scenario_->schedule->model;
      if (term.offset != 0 || term.logical != model.logical_of(recording_.in_model[at(parameter)])) return std::nullopt;
      const auto coordinate = model.pieces(term.logical)[at(term.piece)].dims.front().begin;
      source = experts.together[at(experts.lead[at(parameter)])][at(coordinate)];
      const CapturedRun& run = *recording_.run;
      if (run.parameters[at(source)].declared.pieces != run.parameters[at(parameter)].declared.pieces)
        return std::nullopt;
    }
    const int holder = experts.group[at(term.rank)][at(experts.coordinate[at(source)])];
    dispatched[{source, holder, term.micro_batch}][term.rank] += term.coefficient;
  }
  // What a rank yields of an expert has the tokens of all ranks of its group in it, but for those that have none.
  for (const auto& [source, by_rank] : dispatched) {
    const Rational& first = by_rank.begin()->second;
    if (std::any_of(by_rank.begin(), by_rank.end(), [&](const auto& entry) { return entry.second != first; }))
      return std::nullopt;
    found[source] = first;
  }
  return found;
}

Meeting Prediction::compare(const VerifiedPiece& piece, const Coefficients& predicted, std::size_t step) const {
  // Nothing arrived, and rounding may have taken all that is expected.
  if (piece.verdict == VerifiedPiece::Verdict::undecided && piece.formula == "0") return {true, false, "", {}};
  const Batch& batch = scenario_->schedule->batch;
  Coefficients left = predicted;
  Meeting result;
  result.meets = true;
  bool proportional = true;
  for (const RecoveredCoefficient& recovered : piece.coefficients) {
    const auto own = index_of(recovered.step);
    if (!own) return {false, true, "", {}};
    Rational sum;
    for (const auto& [rank, micro_batch] : recovered.members) {
      const auto found =
          left.find({piece.parameter, rank, batch.first_micro_batch(static_cast<int>(*own)) + micro_batch});
      if (found == left.end()) continue;
      sum += found->second;
      left.erase(found);
    }
    if (recovered.exact) {
      result.meets = result.meets && sum == *recovered.exact;
      proportional = proportional && sum.is_zero() == recovered.exact->is_zero();
      if (sum.is_zero() || !proportional) continue;
      const Rational ratio = *recovered.exact / sum;
      proportional = !result.ratio || *result.ratio == ratio;
      result.ratio = ratio;
    } else {
      result.certain = proportional = false;
    }
  }
  const bool is_none = piece.coefficients.empty() && piece.formula == "0";  // the optimizer gets no gradient, or zeros
  if (is_none && piece.verdict != VerifiedPiece::Verdict::right) result.meets = predicted.empty();
  // Coefficients say nothing of what none of the contributions is.
  if (is_unexplained(piece) || (piece.coefficients.empty() && !is_none)) result.certain = false;
  // Contributions of this optimizer step that are not among the measured ones are zero, and enter with any coefficient.
  const int first = batch.first_micro_batch(static_cast<int>(step));
  for (const auto& [source, coefficient] : left) {
    const bool foreign = std::get<0>(source) != piece.parameter;
    if (coefficient.is_zero() || (!foreign && std::get<2>(source) >= first)) continue;
    proportional = false;
    // No coefficients say what of another parameter is in it.
    if (foreign) result.certain = false;
    if (!foreign) result.meets = false;
  }
  // Where the coefficients do not say it, the sketches do.
  if (!result.certain || (!result.meets && !piece.told_apart)) {
    result.certain = false;
    result.meets = explains(piece, predicted);
  }
  if (!proportional || is_unexplained(piece)) result.ratio.reset();
  const bool any =
      std::any_of(predicted.begin(), predicted.end(), [](const auto& entry) { return !entry.second.is_zero(); });
  if (result.meets && !result.certain && any) result.ratio = Rational(1);
  return result;
}

bool Prediction::explains(const VerifiedPiece& piece, const Coefficients& predicted) const {
  const Batch& batch = scenario_->schedule->batch;
  Evidence::Formula formula;
  for (const auto& [source, coefficient] : predicted) {
    const auto& [parameter, rank, micro_batch] = source;
    int step = 0;
    while (step + 1 < batch.steps() && batch.first_micro_batch(step + 1) <= micro_batch) ++step;
    formula[{parameter, recording_.steps[at(step)], rank, micro_batch - batch.first_micro_batch(step)}] = coefficient;
  }
  return evidence_.explains(piece, formula);
}

bool Prediction::owns(int rank, int buffer, std::size_t step, const Interval& elements) const {
  return intersect(timeline_->owned[step][at(rank)][at(buffer)], elements) == Intervals{elements};
}

std::optional<std::vector<bool>> Prediction::owned_alike(const std::vector<VerifiedPiece>& pieces) const {
  if (timeline_->outcome.kind != Outcome::Kind::complete) return std::nullopt;
  std::vector<bool> alike(recording_.run->parameters.size(), true);
  std::map<std::pair<int, int>, std::map<int, std::vector<int>>> of_rank;  // by parameter and step
  for (const VerifiedPiece& piece : pieces) {
    const auto step = index_of(piece.step);
    if (!step) continue;
    for (const int rank : piece.ranks) {
      of_rank[{piece.parameter, piece.step}][rank].push_back(piece.piece);
      const int buffer = buffer_of(rank, piece.parameter);
      const auto elements = buffer < 0 ? std::nullopt : local_of(piece.parameter, piece.piece, rank, buffer);
      if (!elements || !std::all_of(elements->begin(), elements->end(),
                                    [&](const Interval& interval) { return owns(rank, buffer, *step, interval); }))
        alike[at(piece.parameter)] = false;
    }
  }
  for (const auto& [key, ranks] : of_rank) {
    if (alike[at(key.first)] && !other_owners(key.first, key.second, ranks).empty()) alike[at(key.first)] = false;
  }
  return alike;
}

std::vector<int> Prediction::other_owners(int parameter, int step,
                                          const std::map<int, std::vector<int>>& pieces) const {
  std::vector<int> ranks;
  const auto index = index_of(step);
  if (!index) return ranks;
  for (int rank = 0; rank < scenario_->schedule->mesh.world(); ++rank) {
    const int buffer = buffer_of(rank, parameter);
    if (buffer < 0) continue;
    std::int64_t own = 0, gets = 0;
    for (const Interval& interval : timeline_->owned[*index][at(rank)][at(buffer)]) own += interval.size();
    if (const auto found = pieces.find(rank); found != pieces.end()) {
      for (const int piece : found->second) gets += recording_.run->parameters[at(parameter)].numel(piece);
    }
    if (own != gets) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace lockstep::live
