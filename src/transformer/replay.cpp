// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/replay.h"

#include <cmath>

#include "lockstep/collective.h"
#include "lockstep/local_step.h"
#include "src/base/at.h"
#include "src/transformer/generator.h"

namespace lockstep::transformer {

namespace {

using Values = std::vector<double>;

/// The effect of a collective's table row on members' elements side by side.
struct Algebra {
  Values reduce(const std::vector<Values>& members, bool average) const {
    Values sum = members.front();
    for (std::size_t i = 1; i < members.size(); ++i) {
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += members[i][e];
    }
    if (average) {
      for (double& value : sum) value /= static_cast<double>(members.size());
    }
    return sum;
  }
  static void place(Values& target, const Intervals& elements, const Values& source) {
    for (const Interval& interval : elements) {
      for (auto e = static_cast<std::size_t>(interval.begin); e < static_cast<std::size_t>(interval.end); ++e)
        target[e] = source[e];
    }
  }
};

Values extract(const Values& values, const Intervals& view) {
  Values result;
  for (const Interval& interval : view)
    result.insert(result.end(), values.begin() + interval.begin, values.begin() + interval.end);
  return result;
}

void insert(Values& values, const Intervals& view, const Values& stretch) {
  auto next = stretch.begin();
  for (const Interval& interval : view) {
    std::copy(next, next + interval.size(), values.begin() + interval.begin);
    next += interval.size();
  }
}

}  // namespace

Replay::Content& Replay::held(const std::string& name, int rank, int buffer) {
  Content& content = contents_[{name, rank, buffer}];
  const auto numel = static_cast<std::size_t>(local(rank, buffer).numel);
  content.values.resize(numel);
  content.magnitudes.resize(numel);
  return content;
}

const std::vector<double>& Replay::values(const std::string& name, int rank, int buffer) {
  return held(name, rank, buffer).values;
}
const std::vector<double>& Replay::magnitudes(const std::string& name, int rank, int buffer) {
  return held(name, rank, buffer).magnitudes;
}

Intervals Replay::view(const Call& call, std::size_t position) const {
  if (!call.owned.empty()) return call.owned[position];
  const std::int64_t numel = local(call.rank, (*call.buffers)[position]).numel;
  return numel == 0 ? Intervals{} : Intervals{{0, numel}};
}

void Replay::run_to(std::size_t end) {
  for (; next_ < end; ++next_) {
    const Event& event = timeline_.events[next_];
    const Operation& row = operation(event.op);
    if (!row.changes()) continue;
    row.collective ? collective(event) : local_step(event);
  }
}

/// One buffer of a rank in a local step, for apply_local().
struct Replay::LocalChange {
  Replay& replay;
  const Event& event;
  int buffer;
  Intervals where;
  Content& content;

  const Call& call() const { return event.calls.front(); }
  const Step& step() const { return *call().step; }
  const Content& from() const { return replay.held(step().from, call().rank, buffer); }
  template <class Change>
  void each(const Change& change) {
    for (const Interval& interval : where) {
      for (std::int64_t e = interval.begin; e < interval.end; ++e)
        change(e, content.values[at(e)], content.magnitudes[at(e)]);
    }
  }

  void clear() {
    each([](std::int64_t, double& value, double& magnitude) { value = magnitude = 0; });
  }
  void multiply() {
    const double by = to_double(event.by);
    each([&](std::int64_t, double& value, double& magnitude) {
      value *= by;
      magnitude *= std::abs(by);
    });
  }
  void clip() {}
  void take_over() {
    const Content& other = from();
    each([&](std::int64_t e, double& value, double& magnitude) {
      value = other.values[at(e)];
      magnitude = other.magnitudes[at(e)];
    });
  }
  void add_buffer() {
    const Content& other = from();
    each([&](std::int64_t e, double& value, double& magnitude) {
      value += other.values[at(e)];
      magnitude += other.magnitudes[at(e)];
    });
  }
  void add_gradient() {
    for (const ContributionTable::Share& share :
         replay.table_.shares(step(), event.optimizer_step, event.micro_batch, call().rank, buffer)) {
      each([&](std::int64_t e, double& value, double& magnitude) {
        value += (*share.values)(e);
        magnitude += std::abs((*share.values)(e));
      });
    }
  }
  // "One unknown per element": a number that depends on the logical element, so that copies of it agree.
  void add_leftover() {
    const LocalBuffer& own = replay.local(call().rank, buffer);
    const Model& model = replay.schedule_.model;
    const std::string stream = step().what + "/" + model.logicals()[at(own.logical)].name +
                               (step().per_rank ? "/" + std::to_string(call().rank) : "");
    const Generator generator(replay.seed_, stream);
    const double by = to_double(event.by);
    each([&](std::int64_t e, double& value, double& magnitude) {
      const std::int64_t global = model.global_index(own.logical, own.piece, e);
      const double unknown = generator.uniform(static_cast<std::uint64_t>(global)) * by;
      value += unknown;
      magnitude += std::abs(unknown);
    });
  }
};

void Replay::local_step(const Event& event) {
  const Call& call = event.calls.front();
  for (std::size_t position = 0; position < call.buffers->size(); ++position) {
    const int buffer = (*call.buffers)[position];
    LocalChange change{*this, event, buffer, view(call, position), held(call.step->buffer, call.rank, buffer)};
    apply_local(operation(event.op), change);
  }
}

// Members bring stretches of equal length, whatever elements those are.
void Replay::collective(const Event& event) {
  for (std::size_t position = 0; position < event.calls.front().buffers->size(); ++position) {
    std::vector<Values> values, magnitudes;
    std::vector<Intervals> views, slices;
    for (const Call& call : event.calls) {
      const Content& content = held(call.step->buffer, call.rank, (*call.buffers)[position]);
      views.push_back(view(call, position));
      values.push_back(extract(content.values, views.back()));
      magnitudes.push_back(extract(content.magnitudes, views.back()));
    }
    const auto length = static_cast<std::int64_t>(values.front().size());
    const Intervals everything = length == 0 ? Intervals{} : Intervals{{0, length}};
    for (std::size_t i = 0; i < event.calls.size() && !event.cuts.empty(); ++i)
      slices.push_back(expand(everything, event.cuts[position].slice(static_cast<int>(i))));
    Algebra algebra;
    const Operation& row = operation(event.op);
    apply_collective(row, algebra, values, slices, everything, event.root, event.average);
    apply_collective(row, algebra, magnitudes, slices, everything, event.root, event.average);
    for (std::size_t i = 0; i < event.calls.size(); ++i) {
      const Call& call = event.calls[i];
      const int buffer = (*call.buffers)[position];
      Content& content = held(call.step->buffer, call.rank, buffer);
      insert(content.values, views[i], values[i]);
      insert(content.magnitudes, views[i], magnitudes[i]);
      std::set<std::int64_t>& cuts = cuts_[{call.rank, buffer}];
      for (const Interval& interval : views[i]) cuts.insert({interval.begin, interval.end});
      for (const Intervals& slice : slices) {
        for (const Interval& part : slice) {
          for (const Interval& at : expand(views[i], part)) cuts.insert({at.begin, at.end});
        }
      }
    }
  }
}

}  // namespace lockstep::transformer
