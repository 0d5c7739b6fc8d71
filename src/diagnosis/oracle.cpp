// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/oracle.h"

#include <algorithm>

#include "lockstep/communication.h"
#include "lockstep/symbolic.h"
#include "src/base/at.h"

namespace lockstep::diagnosis {

namespace {

OracleAnswer answer_of(const SymbolicResult& result, const Model& model) {
  OracleAnswer answer;
  answer.state = result.match ? OracleAnswer::State::right : OracleAnswer::State::wrong;
  if (result.match) return answer;
  answer.wrong_buffers.assign(model.parameters().size(), 0);
  answer.wrong_norms.assign(model.parameters().size(), 0);
  answer.wrong_clips.assign(model.parameters().size(), 0);
  const auto add = [&](int parameter, int distance) {
    ++answer.wrong_buffers[at(parameter)];
    ++answer.count;
    answer.distance += distance;
  };
  const auto parameter_of = [&](int rank, int buffer) {
    return model.local(rank).buffers[at(buffer)].parameters.front();
  };
  for (const BufferResult& buffer : result.buffers) {
    const auto any = [&](const auto& is) { return std::any_of(buffer.pieces.begin(), buffer.pieces.end(), is); };
    if (!any([](const PieceResult& piece) { return !piece.right; })) continue;
    const int parameter = parameter_of(buffer.rank, buffer.buffer);
    add(parameter,
        any([](const PieceResult& piece) { return !piece.right && !piece.ratio && !piece.right_unclipped; }) ? 2 : 1);
    if (!any([](const PieceResult& piece) { return !piece.right && !piece.right_unclipped; }))
      ++answer.wrong_clips[at(parameter)];
  }
  for (const UnownedResult& unowned : result.unowned) add(parameter_of(unowned.rank, unowned.buffer), 2);
  for (const NormResult& norm : result.norm) {
    add(norm.parameter, 1);
    ++answer.wrong_norms[at(norm.parameter)];
  }
  return answer;
}

std::size_t owners_of(const Timeline& timeline) {
  std::size_t hash = 0;
  const auto mix = [&](std::int64_t value) {
    hash ^= std::hash<std::int64_t>()(value) + 0x9e3779b97f4a7c15U + (hash << 6U) + (hash >> 2U);
  };
  for (const auto& ranks : timeline.owned) {
    for (const std::vector<Intervals>& buffers : ranks) {
      for (const Intervals& owned : buffers) {
        mix(-1);
        for (const Interval& interval : owned) {
          mix(interval.begin);
          mix(interval.end);
        }
      }
    }
  }
  return hash;
}

}  // namespace

OracleAnswer SymbolicOracle::answer(const std::vector<Edit>& edits) {
  std::optional<std::vector<Step>> steps = steps_.edited(edits);
  return steps ? answer_in_place(*steps) : OracleAnswer{};
}

void SymbolicOracle::add_what_ran(OracleAnswer& answer) const {
  try {
    const Timeline timeline = walk(steps_.schedule_of(), AtRace::waits);
    if (timeline.outcome.kind != Outcome::Kind::complete && timeline.outcome.kind != Outcome::Kind::race) return;
    answer.ran = true;
    answer.sent_bytes = static_cast<double>(communication(steps_.schedule_of(), timeline).most_bytes_of_a_rank);
    answer.owners = owners_of(timeline);
  } catch (const InputError&) {
    // It ends before that.
  }
}

OracleAnswer SymbolicOracle::answer_for(std::vector<Step> steps) { return answer_in_place(steps); }

OracleAnswer SymbolicOracle::answer_in_place(std::vector<Step>& steps) {
  if (!steps_.are_valid(steps)) return {};
  struct Swapped {  // until the end, also where a budget is used up
    std::vector<Step>&of_candidate, &of_schedule;
    ~Swapped() { of_candidate.swap(of_schedule); }
  };
  steps.swap(steps_.schedule().steps);
  const Swapped swapped{steps, steps_.schedule().steps};
  try {
    return known_answer();
  } catch (const InputError&) {
    return {};  // what the walk meets on a rank: a division by zero, a bucket that n does not divide
  }
}

OracleAnswer SymbolicOracle::known_answer() {
  const Schedule& schedule = steps_.schedule_of();
  if (walks_ == nullptr) {
    walks_ = std::make_shared<schedule::WalkMemory>(schedule);
    resolved_ = std::make_unique<ResolvedSteps>(schedule, *walks_);
  }
  const std::uint64_t hash = resolved_->hash(schedule.steps);
  if (const auto known = answers_.find(hash); known != answers_.end()) return known->second;
  return answers_[hash] = replay();
}

OracleAnswer SymbolicOracle::replay() {
  // Thousands of candidates may each leave something new.
  constexpr std::size_t most_remembered = 20'000;
  const Schedule& schedule = steps_.schedule_of();
  if (memory_ == nullptr || memory_->size() > most_remembered)
    memory_ = std::make_unique<symbolic::SymbolicMemory>(schedule);
  const Timeline timeline = walk(schedule, AtRace::ends, walks_);
  if (timeline.outcome.kind != Outcome::Kind::complete) return {.state = OracleAnswer::State::failed};
  OracleAnswer answer = answer_of(SymbolicEngine(schedule, timeline, *memory_).run(), schedule.model);
  answer.ran = true;
  answer.sent_bytes = static_cast<double>(communication(schedule, timeline).most_bytes_of_a_rank);
  answer.owners = owners_of(timeline);
  return answer;
}

}  // namespace lockstep::diagnosis
