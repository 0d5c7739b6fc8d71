// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "lockstep/operation.h"
#include "lockstep/timeline.h"
#include "src/base/at.h"
#include "src/base/bytes_text.h"
#include "src/schedule/selector_list.h"

namespace lockstep::diagnosis {

namespace {

// Beyond these a check would take hours. A Llama 3 405B on 16,384 ranks needs a tenth.
constexpr double most_calls = 5e8;
constexpr double most_terms = 2e9;
constexpr double most_elements = 4.6e18;  // just below 2^62: they are counted in 64 bits
constexpr double most_products = 1e18;

/// A step with the number of times that it runs.
struct Leaf {
  const Step* step = nullptr;
  bool in_each = false;
};

void add_leaves(const std::vector<Step>& steps, bool in_each, std::vector<Leaf>& leaves) {
  for (const Step& step : steps) {
    if (step.op == Op::each) {
      add_leaves(step.steps, true, leaves);
    } else if (step.op != Op::wait) {
      leaves.push_back({&step, in_each});
    }
  }
}

/// How the formulas of one buffer grow on the ranks that hold such a one.
struct Growth {
  double forms = 1;          ///< different ones among the ranks
  double terms = 0;          ///< of one
  double contributions = 0;  ///< that a rank has added so far
  double products = 1;       ///< of clipping factors, that a contribution has in different places: of those before
  double clips = 0;          ///< of a part, by the factor that ranks have now
  double segments = 1;       ///< stretches of the buffer that differ
  double bits = 1;           ///< of a coefficient

  double clip_products() const { return std::min(products * (1 + clips), most_products); }
  /// Ranks clip by another factor from now on.
  void change_factor() {
    products = clip_products();
    clips = 0;
  }
};

class Estimate {
 public:
  explicit Estimate(const Schedule& schedule) : schedule_(schedule), contributions_(schedule) {
    add_leaves(schedule.steps, false, leaves_);
    one_buffer_ = std::all_of(leaves_.begin(), leaves_.end(), [&](const Leaf& leaf) {
      return leaf.step->buffer == schedule.result && leaf.step->from.empty();
    });
    const auto& locals = schedule.model.locals();
    ranks_of_.resize(locals.size());
    first_rank_.assign(locals.size(), 0);
    for (int rank = schedule.mesh.world() - 1; rank >= 0; --rank) {
      const auto id = static_cast<std::size_t>(schedule.model.local(rank).id);
      ranks_of_[id] += 1;
      first_rank_[id] = rank;
    }
  }

  Workload run() {
    result_.ranks = schedule_.mesh.world();
    for (std::size_t id = 0; id < ranks_of_.size(); ++id) {
      const LocalModel& local = *schedule_.model.locals()[id];
      result_.buffers += ranks_of_[id] * static_cast<double>(local.buffers.size());
      for (const LocalBuffer& buffer : local.buffers) {
        result_.elements += ranks_of_[id] * static_cast<double>(buffer.numel);
      }
    }
    for (std::size_t id = 0; id < ranks_of_.size() && within_limits(); ++id) count(id);
    const double steps = schedule_.batch.steps();
    // Measured with layouts of 1,024 to 16,384 ranks, and rounded up.
    result_.bytes =
        1e7 + 250 * result_.buffers * (1 + (steps - 1) / 2) + 250 * meetings_ + 2 * result_.calls + 18 * result_.terms;
    result_.host_bytes = 60 * result_.calls;
    return result_;
  }

 private:
  bool within_limits() const { return result_.calls <= most_calls && result_.terms <= most_terms; }

  double group_size(const Step& step) {
    if (!step.over) return 1;
    const auto [found, is_new] = group_size_.emplace(&step, 1.0);
    if (!is_new) return found->second;
    for (const Over::Pick& pick : step.over->picks) {
      found->second *=
          pick.coordinates ? static_cast<double>(pick.coordinates->size()) : schedule_.mesh.size(pick.axis);
    }
    return found->second;
  }

  /// Bits that one run of the step adds to a coefficient.
  double bits_of(const Step& step, double group) const {
    const Operation& row = operation(step.op);
    const double own = row.reduces() ? std::log2(group) : 0;
    const bool multiplies = row.keeps == Operation::Keeps::multiple || row.adds == Operation::Adds::gradient;
    if (!step.by || !multiplies) return own;
    Environment environment;
    environment.mesh = &schedule_.mesh;
    environment.counts = &schedule_.batch;
    environment.rank = environment.step = environment.micro_batch = 0;
    try {
      const Rational by = step.by->number(environment);
      return own + std::max(by.numerator().bits(), by.denominator().bits());
    } catch (const ExpressionError&) {
      return own;  // the walk says it better
    }
  }

  /// Whether nothing of a buffer is left unclipped anywhere.
  ///
  /// Why Growth::clip_products() is no less than the number of products that a contribution is multiplied by in all
  /// places together, where all ranks have one factor in each run of a clip: let P be the set of these products. Steps
  /// that copy, move, add or scale bring no product that was not somewhere. A clip by f leaves in place what it does
  /// not act on, and turns the rest of P into f times it; where it acts on everything, P becomes f·P, which is as
  /// large. So after n clips by f of a part each product is one from before times f to a power of 0 to n: at most n + 1
  /// times as many. A rank's factor is another one only where it counts in between, or in another optimizer step.
  /// Schedules that copy, count, clip the copy and add it have all of them: 2^n. Where ranks' norms differ there can be
  /// more, up to (1 + ranks)^n. That is not assumed of a schedule of which nothing is known: one that reduces and clips
  /// each micro-batch would be refused for it.
  bool clips_all_alike(const Step& step) const {
    return one_buffer_ && step.only.empty() && !step.on_owned && !(step.when && step.when->uses_rank());
  }

  void count(std::size_t id) {
    const LocalModel& local = *schedule_.model.locals()[id];
    std::vector<std::vector<const Leaf*>> of_buffer(local.buffers.size());
    for (const Leaf& leaf : leaves_) {
      bool called = false;
      const double runs = leaf.in_each ? schedule_.batch.total_micro_batches() : schedule_.batch.steps();
      const schedule::SelectorList selectors(leaf.step->params.items());
      for (std::size_t buffer = 0; buffer < local.buffers.size(); ++buffer) {
        const bool chosen = selectors.chooses(schedule_.model, local.buffers[buffer]);
        // What other buffers add to a norm changes the factor of all.
        if (chosen || operation(leaf.step->op).counts) of_buffer[buffer].push_back(&leaf);
        if (!chosen) continue;
        result_.calls += ranks_of_[id] * runs;
        called = true;
      }
      if (called) meetings_ += ranks_of_[id] * runs;
      result_.calls += ranks_of_[id] * runs / 16;  // looked at, whether it calls or not
      if (!within_limits()) return;
    }
    // Buffers with like contributions that go through the same steps share their formulas.
    std::set<std::pair<int, std::vector<const Leaf*>>> seen;
    for (std::size_t buffer = 0; buffer < local.buffers.size() && within_limits(); ++buffer) {
      const int alike = contributions_.class_of(first_rank_[id], static_cast<int>(buffer));
      if (seen.emplace(alike, of_buffer[buffer]).second) grow(id, static_cast<int>(buffer), of_buffer[buffer]);
    }
  }

  void grow(std::size_t id, int buffer, const std::vector<const Leaf*>& leaves) {
    Growth growth;
    growth.forms = ranks_of_[id];
    elements_ = static_cast<double>(schedule_.model.locals()[id]->buffers[at(buffer)].numel);
    const double each = static_cast<double>(
        contributions_.of(first_rank_[id], buffer, 0, 0, {}).size());  // with dispatch: from many ranks
    for (int step = 0; step < schedule_.batch.steps(); ++step) {
      growth.change_factor();
      for (std::size_t i = 0; i < leaves.size();) {
        if (!leaves[i]->in_each) {
          happen(*leaves[i++]->step, each, id, growth);
          continue;
        }
        std::size_t end = i;
        while (end < leaves.size() && leaves[end]->in_each) ++end;
        for (int m = 0; m < schedule_.batch.micro_batches(step) && within_limits(); ++m) {
          for (std::size_t j = i; j < end; ++j) happen(*leaves[j]->step, each, id, growth);
        }
        i = end;
      }
      if (!within_limits()) return;
    }
  }

  void happen(const Step& step, double each, std::size_t id, Growth& growth) {
    const double group = group_size(step);
    const Operation& row = operation(step.op);
    if (row.counts) growth.change_factor();
    if (!row.changes()) return;
    const bool adds_gradient = row.adds == Operation::Adds::gradient;
    if (row.keeps == Operation::Keeps::nothing && row.adds == Operation::Adds::nothing) {
      growth = Growth{ranks_of_[id]};
      return;
    }
    if (adds_gradient) {
      growth.contributions += each;
      growth.terms += each;
      growth.forms = ranks_of_[id];
    }
    if (row.clips() && !clips_all_alike(step)) growth.clips += 1;
    // No sum has more terms than there are contributions of all ranks, each with every product of clipping factors.
    const double most = growth.contributions * result_.ranks * growth.clip_products();
    if (row.keeps == Operation::Keeps::everything && row.adds == Operation::Adds::buffer)
      growth.terms = std::min(growth.terms * 2, std::max(growth.terms, most));
    if (const auto [found, is_new] = bits_.emplace(&step, 0.0); is_new) found->second = bits_of(step, group);
    if (row.reduces()) {
      growth.terms = std::min(growth.terms * group, most);
      growth.forms = std::max(1.0, growth.forms / group);
      growth.segments = std::min(growth.segments * group, growth.segments > 1 ? most_terms : 1.0);
    }
    if (row.writes == Operation::Writes::own_slice && group > 1) growth.segments += 2;
    growth.segments = std::min(growth.segments, std::max(elements_, 1.0));
    growth.bits += adds_gradient ? 0 : bits_[&step];
    result_.terms += growth.forms * growth.terms * growth.segments * (1 + growth.bits / 64);
  }

  const Schedule& schedule_;
  Contributions contributions_;
  std::vector<Leaf> leaves_;
  std::vector<double> ranks_of_;  // by local model
  std::vector<int> first_rank_;
  std::map<const Step*, double> group_size_, bits_;
  bool one_buffer_ = true;  // steps know no other than that of the optimizer
  double elements_ = 0;     // of the buffer that is looked at
  double meetings_ = 0;     // calls of steps by ranks, however many buffers each acts on
  Workload result_;
};

/// "2.3 million".
std::string in_words(double count) {
  if (count >= 1e9) return fmt::format("{:.3g} billion", count / 1e9);
  return count >= 1e6 ? fmt::format("{:.3g} million", count / 1e6) : fmt::format("{:.0f}", count);
}

/// With what it is, as far as it was counted.
std::string bounded(double count, double most) {
  return count > most ? "more than " + in_words(most) : "about " + in_words(count);
}

constexpr std::string_view advice =
    "A smaller one nearly always shows the same fault: halve dp, micro_batches or the layers until it fits";

}  // namespace

std::string Workload::describe() const {
  return fmt::format(
      "{} ranks hold {} gradient buffers together, their steps would be run {} times, one buffer at a time, "
      "and the formulas would have {} terms",
      ranks, in_words(buffers), bounded(calls, most_calls), bounded(terms, most_terms));
}

bool is_large(const Schedule& schedule) {
  constexpr int most_ranks = 2048;
  constexpr double most_replayed = 4e5, most_formed = 1e7;
  if (schedule.mesh.world() > most_ranks) return true;
  const Workload workload = estimate_workload(schedule);
  return workload.calls > most_replayed || workload.terms > most_formed;
}

bool is_quickly_replayed(const Schedule& schedule) {
  constexpr double most_calls = 10'000;
  return estimate_workload(schedule).calls <= most_calls;
}

Workload estimate_workload(const Schedule& schedule) { return Estimate(schedule).run(); }

std::string too_large(const Workload& workload) {
  if (workload.elements > most_elements) {
    return fmt::format(
        "the gradient buffers of all {} ranks have {} elements together, more than the 4.6e18 that can be "
        "counted; make the shapes smaller",
        workload.ranks, in_words(workload.elements));
  }
  if (workload.calls <= most_calls && workload.terms <= most_terms) return "";
  return fmt::format("this scenario is too large to be checked: {}; a check may run {} steps and have {} terms. {}",
                     workload.describe(), in_words(most_calls), in_words(most_terms), advice);
}

std::string too_large_here(const Workload& workload, double bytes) {
  // What any machine has; and asking takes longer than a small check.
  constexpr double always_free = 3e7;
  if (bytes <= always_free) return "";
  const double available = available_bytes();
  if (bytes <= available) return "";
  return fmt::format("this scenario needs about {} of memory, and {} are free here: {}. {}", bytes_text(bytes),
                     bytes_text(available), workload.describe(), advice);
}

}  // namespace lockstep::diagnosis
