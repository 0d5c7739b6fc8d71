// SPDX-License-Identifier: Apache-2.0
#include "src/live/gradient_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/base/refuse.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

std::string words_of(const CapturedCollective& call) {
  const std::string text =
      call.op == "scale" ? call.op : fmt::format("{} of {} {}", call.op, call.elements, call.dtype);
  return call.call.empty() ? text : text + " at " + call.call;
}

/// A call of one parameter on one rank in one optimizer step.
struct Instance {
  GradientCall call;
  int pass = 0;
  bool in_backward = false, whole = false;
  std::size_t order = 0;

  bool same(const Instance& other) const { return pass == other.pass && call.same_kind(other.call); }
};

void leave_out_scales(std::vector<Instance>& calls) {
  std::erase_if(calls, [](const Instance& instance) { return instance.call.scales(); });
}

bool are_same(const std::vector<Instance>& own, const std::vector<Instance>& other) {
  return std::equal(own.begin(), own.end(), other.begin(), other.end(),
                    [](const Instance& a, const Instance& b) { return a.same(b); });
}

/// Whether two ranks' calls differ in what multiplies gradients, and in no collective.
bool is_scaling_alone(std::vector<Instance> own, std::vector<Instance> other) {
  leave_out_scales(own);
  leave_out_scales(other);
  return are_same(own, other);
}

class CallFinder {
 public:
  CallFinder(const CapturedRun& run, const std::vector<int>& steps, const AxisNames& axes, const Experts& experts)
      : run_(run), steps_(steps), axes_(axes), experts_(experts) {}

  GradientCalls find() {
    join_members();
    // By parameter and optimizer step, as the lowest rank has it.
    std::map<std::pair<int, int>, std::vector<Instance>> known;
    std::map<int, int> first_rank;
    for (const RankRecord& rank : run_.ranks) {
      const std::map<std::pair<int, int>, std::vector<Instance>> own = of_rank(rank);
      std::set<int> held;
      for (const auto& [step, content] : rank.steps) {
        for (const SketchedTensor& tensor : content.contributions) held.insert(tensor.parameter);
        for (const SketchedTensor& tensor : content.results) held.insert(tensor.parameter);
      }
      for (const auto& [key, instances] : own) held.insert(key.first);
      for (const int parameter : held) {
        const auto [first, is_new] = first_rank.try_emplace(parameter, rank.header.rank);
        for (const int step : steps_) {
          const auto found = own.find({parameter, step});
          const std::vector<Instance> instances = found == own.end() ? std::vector<Instance>{} : found->second;
          std::vector<Instance>& same = known[{parameter, step}];
          if (is_new) {
            same = instances;
          } else if (!are_same(same, instances)) {
            // A rank whose gradient of a parameter is not its own, as zeros in its place, does not scale that.
            if (is_scaling_alone(same, instances)) {
              scaled_apart_.insert(parameter);
              continue;
            }
            refuse(fmt::format(
                "{}: in optimizer step {}, rank {} calls other collectives for the gradient of {} than rank {}, and no "
                "step of a schedule says that.",
                run_.folder, step, rank.header.rank, name(parameter), first->second));
          }
        }
      }
    }
    for (const int parameter : scaled_apart_) {
      for (const int step : steps_) leave_out_scales(known[{parameter, step}]);
      auto& entry = left_out_["ranks multiply it by different numbers, or not all of them do"];
      if (entry.second++ == 0) entry.first = "scale of " + name(parameter);
    }
    result_.of_parameter.resize(run_.parameters.size());
    for (std::size_t i = 0; i < run_.parameters.size(); ++i) join(static_cast<int>(i), known);
    check_experts();
    for (const auto& [why, words] : left_out_)
      result_.left_out.push_back(fmt::format(
          "{}{}: {}.", words.second > 1 ? fmt::format("{} calls such as ", words.second) : "", words.first, why));
    return std::move(result_);
  }

 private:
  using Place = std::pair<std::vector<std::string>, std::vector<int>>;  // axes, and some stages

  const std::string& name(int parameter) const { return run_.parameters[at(parameter)].declared.name; }

  /// What one member of a group puts in all of them do: those that had no gradient of a parameter, zeros.
  void join_members() {
    for (const RankRecord& rank : run_.ranks) {
      std::map<std::vector<int>, std::size_t> next;
      for (const CapturedCollective& call : rank.collectives) {
        std::vector<std::set<int>>& of_group = carried_[call.group];
        const std::size_t place = next[call.group]++;
        if (of_group.size() <= place) of_group.resize(place + 1);
        of_group[place].insert(call.parameters.begin(), call.parameters.end());
      }
    }
  }

  std::map<std::pair<int, int>, std::vector<Instance>> of_rank(const RankRecord& rank) {
    std::map<std::pair<int, int>, std::vector<Instance>> found;
    // Elements that the rank holds, and those that its optimizer gets.
    std::map<int, std::int64_t> whole, owned;
    count(rank, whole, owned);
    std::set<int> scattered;
    std::size_t order = 0;
    std::map<std::vector<int>, std::size_t> next;
    std::vector<Carrying> calls;
    std::map<Line, std::size_t> lines;
    std::vector<Parts> parts;
    for (const CapturedCollective& call : rank.collectives) {
      ++order;
      const std::set<int>& parameters = carried_[call.group][next[call.group]++];
      const bool scales = call.op == "scale";
      if (parameters.empty() || (call.group.size() < 2 && !scales)) continue;
      if (!std::binary_search(steps_.begin(), steps_.end(), call.step)) continue;
      std::int64_t all = 0, owned_of_all = 0;
      bool is_scattered = true;
      for (const int parameter : parameters) {
        all += whole[parameter];
        owned_of_all += owned[parameter];
        is_scattered = is_scattered && scattered.contains(parameter);
      }
      const std::size_t line = lines.try_emplace(line_of(call), lines.size()).first->second;
      parts.resize(lines.size());
      calls.push_back({&call, &parameters, is_scattered ? owned_of_all : all, all, order, line});
      if (call.op == "reduce_scatter") scattered.insert(parameters.begin(), parameters.end());
      if (!scales && why_left_out(call, 0).empty()) parts[line].add(calls.back());
    }
    const bool is_first = rank.header.rank == run_.ranks.front().header.rank;
    for (Parts& each : parts) each.find_whole(whole);
    std::set<std::pair<std::size_t, int>> seen;
    for (const Carrying& carrying : calls) {
      const CapturedCollective& call = *carrying.call;
      const Parts& together = parts[carrying.line];
      const bool part = together.make_whole;
      const std::string why = why_left_out(call, part ? 0 : carrying.expected);
      if (!why.empty()) {
        if (is_first) note(why, call);
        continue;
      }
      Instance instance;
      instance.call = gradient_call(call);
      instance.pass = call.passes - 1;
      instance.in_backward = call.in_backward && !part;
      instance.whole = part || call.op == "scale" || call.elements >= carrying.all;
      instance.order = carrying.order;
      if (part && together.roots.size() > 1) {
        instance.call.op = "reduce_scatter";
        instance.call.root = -1;
        if (is_first)
          note("it takes a part of the gradients to its owner; together they are recorded as a reduce_scatter", call);
      }
      for (const int parameter : *carrying.parameters) {
        if (part && !seen.emplace(carrying.line, parameter).second) continue;
        found[{parameter, call.step}].push_back(instance);
      }
    }
    return found;
  }

  /// A call that carries gradients.
  struct Carrying {
    const CapturedCollective* call = nullptr;
    const std::set<int>* parameters = nullptr;
    std::int64_t expected = 0;  // elements, if it carries all that is not stale
    std::int64_t all = 0;       // and what is
    std::size_t order = 0, line = 0;
  };

  /// Optimizer step, backward passes before, op, reduction, group and place in the program.
  using Line = std::tuple<int, int, std::string, std::string, std::vector<int>, std::string>;
  static Line line_of(const CapturedCollective& call) {
    return {call.step, call.passes, call.op, call.reduce, call.group, site_of(call.call)};
  }

  /// The calls of one line. DeepSpeed reduces buckets in parts, each to its owner or as large as a buffer of its own.
  struct Parts {
    std::int64_t elements = 0;
    std::set<int> parameters, roots;
    bool any = false;         // carries gradients in part
    bool make_whole = false;  // together

    void add(const Carrying& carrying) {
      elements += carrying.call->elements;
      parameters.insert(carrying.parameters->begin(), carrying.parameters->end());
      roots.insert(carrying.call->root);
      any = any || carrying.call->elements < carrying.expected;
    }
    void find_whole(const std::map<int, std::int64_t>& whole) {
      std::int64_t all = 0;
      for (const int parameter : parameters) {
        const auto found = whole.find(parameter);
        all += found == whole.end() ? 0 : found->second;
      }
      make_whole = any && elements >= all;
    }
  };

  void note(const std::string& why, const CapturedCollective& call) {
    auto& entry = left_out_[why];
    if (entry.second++ == 0) entry.first = words_of(call);
  }

  void count(const RankRecord& rank, std::map<int, std::int64_t>& whole, std::map<int, std::int64_t>& owned) const {
    std::map<int, std::set<int>> pieces, results;
    for (const auto& [step, content] : rank.steps) {
      for (const SketchedTensor& tensor : content.contributions) pieces[tensor.parameter].insert(tensor.piece);
      for (const SketchedTensor& tensor : content.results) results[tensor.parameter].insert(tensor.piece);
    }
    const auto sum = [&](const std::map<int, std::set<int>>& all, std::map<int, std::int64_t>& counts) {
      for (const auto& [parameter, of_parameter] : all) {
        for (const int piece : of_parameter) counts[parameter] += run_.parameters[at(parameter)].numel(piece);
      }
    };
    sum(pieces, whole);
    sum(results, owned);
  }

  static std::string why_left_out(const CapturedCollective& call, std::int64_t expected) {
    static const std::set<std::string> known = {"all_reduce", "reduce_scatter", "all_gather",
                                                "broadcast",  "reduce",         "scale"};
    if (!known.contains(call.op)) return "it moves gradients, and a schedule has no such step for them";
    if (!call.reduce.empty() && call.reduce != "sum" && call.reduce != "avg" && call.reduce != "premul_sum")
      return fmt::format("it takes the {} of gradients, which no step of a schedule does", call.reduce);
    if (call.after_results)
      return "it comes after what the optimizer gets was looked at, which is before clipping or the step";
    if (call.passes < 1) return "it comes before the first backward pass of the optimizer step";
    if (call.op == "scale")
      return call.factor ? "" : "gradients are multiplied with a number that is no small fraction";
    if (call.elements < expected)
      return fmt::format("it carries {} of {} of the gradients that went into it, and a step takes whole ones",
                         call.elements, counted(expected, "element"));
    return "";
  }

  GradientCall gradient_call(const CapturedCollective& call) {
    GradientCall result;
    result.op = call.op;
    result.members = static_cast<int>(call.group.size());
    result.average = call.reduce == "avg";
    result.site = site_of(call.call);
    if (call.factor) result.factor = *call.factor;
    if (call.root >= 0 && !std::binary_search(call.group.begin(), call.group.end(), call.root))
      refuse(fmt::format("{}: {} has rank {} as its root, which is not in its group.", run_.folder, words_of(call),
                         call.root));
    if (call.root >= 0)
      result.root =
          static_cast<int>(std::lower_bound(call.group.begin(), call.group.end(), call.root) - call.group.begin());
    const auto [found, is_new] = place_of_group_.try_emplace(call.group);
    if (is_new) found->second = place_of(call);
    std::tie(result.axes, result.stages) = found->second;
    return result;
  }

  /// Axes and, where these are not all, stages.
  Place place_of(const CapturedCollective& call) const {
    if (call.group.back() >= run_.header.world)
      refuse(fmt::format("{}: {} is among {}, and the run has {} ranks.", run_.folder, words_of(call),
                         rank_words(call.group), run_.header.world));
    const auto over = [&](const auto& names, const auto& size, const auto& coordinate) {
      Place found;
      std::int64_t product = 1;
      for (std::size_t axis = 0; axis < names.size(); ++axis) {
        std::set<int> coordinates;
        for (const int rank : call.group) coordinates.insert(coordinate(rank, axis));
        if (coordinates.size() == 1) continue;
        found.first.emplace_back(names[axis]);
        const bool picks = names[axis] == name_of(Axis::pp) && static_cast<int>(coordinates.size()) < size(axis);
        if (picks) found.second.assign(coordinates.begin(), coordinates.end());
        product *= picks ? static_cast<int>(coordinates.size()) : size(axis);
      }
      return product == static_cast<std::int64_t>(call.group.size()) ? std::optional(found) : std::nullopt;
    };
    std::optional<Place> found = over(
        axes_, [&](std::size_t axis) { return run_.header.sizes[axis]; },
        [&](int rank, std::size_t axis) { return run_.coordinates(rank, std::uint32_t{1} << axis); });
    if (!found && experts_.mesh) {
      const Mesh& mesh = *experts_.mesh;
      const std::vector<Axis> axes = {Axis::pp, Axis::edp, Axis::ep};
      const std::vector<std::string_view> names = {name_of(Axis::pp), name_of(Axis::edp), name_of(Axis::ep)};
      found = over(
          names, [&](std::size_t axis) { return mesh.size(axes[axis]); },
          [&](int rank, std::size_t axis) { return mesh.coordinate(rank, axes[axis]); });
    }
    if (!found)
      refuse(
          fmt::format("{}: {} is among {}, which are no whole axes of the mesh; a step of a schedule runs over axes.",
                      run_.folder, words_of(call), rank_words(call.group)));
    return *found;
  }

  /// Experts that are together one parameter meet the same.
  void check_experts() const {
    for (const std::vector<int>& together : experts_.together) {
      for (const int parameter : together) {
        const auto& first = result_.of_parameter[at(together.front())];
        const auto& other = result_.of_parameter[at(parameter)];
        if (!std::equal(first.begin(), first.end(), other.begin(), other.end(),
                        [&](const ParameterCall& a, const ParameterCall& b) { return same(a, b); }))
          refuse(
              fmt::format("{}: the gradient of {} meets other collectives than that of {}, an expert of other ranks, "
                          "and no step of a schedule says that.",
                          run_.folder, name(together.front()), name(parameter)));
      }
    }
  }

  bool same(const ParameterCall& a, const ParameterCall& b) const {
    return a.passes == b.passes && result_.calls[at(a.call)].same_kind(result_.calls[at(b.call)]);
  }

  /// The calls of all optimizer steps and micro-batches as one list.
  void join(int parameter, const std::map<std::pair<int, int>, std::vector<Instance>>& known) {
    std::vector<ParameterCall>& met = result_.of_parameter[at(parameter)];
    bool is_first = true;
    for (const int step : steps_) {
      const auto found = known.find({parameter, step});
      if (found == known.end()) return;
      std::vector<ParameterCall> own = aligned(found->second);
      if (is_first) {
        met = std::move(own);
      } else if (!std::equal(met.begin(), met.end(), own.begin(), own.end(),
                             [&](const ParameterCall& a, const ParameterCall& b) { return same(a, b); })) {
        refuse(
            fmt::format("{}: the gradient of {} meets other collectives in optimizer step {} than in {}; --step "
                        "records one of them.",
                        run_.folder, name(parameter), step, steps_.front()));
      }
      is_first = false;
    }
  }

  /// Calls of several micro-batches that are the same are one.
  std::vector<ParameterCall> aligned(const std::vector<Instance>& instances) {
    std::vector<ParameterCall> met;
    std::size_t at = 0;
    int pass = -1;
    for (const Instance& instance : instances) {
      if (instance.pass != pass) at = 0;
      pass = instance.pass;
      const int call = number(instance.call);
      const auto found =
          std::find_if(met.begin() + static_cast<std::ptrdiff_t>(at), met.end(), [&](const ParameterCall& made) {
            return made.call == call && made.whole == instance.whole && !made.passes.contains(pass);
          });
      at = static_cast<std::size_t>(found - met.begin());
      if (found == met.end()) met.push_back({call, {}, instance.in_backward, instance.whole, instance.order});
      met[at++].passes.insert(pass);
    }
    return met;
  }

  int number(const GradientCall& call) {
    const auto [found, is_new] =
        numbers_.try_emplace({call.op, call.axes, call.stages, call.average, call.root, call.factor, call.site},
                             static_cast<int>(result_.calls.size()));
    if (is_new) result_.calls.push_back(call);
    return found->second;
  }

  const CapturedRun& run_;
  const std::vector<int>& steps_;
  const AxisNames& axes_;
  const Experts& experts_;
  std::map<std::tuple<std::string, std::vector<std::string>, std::vector<int>, bool, int, Rational, std::string>, int>
      numbers_;
  std::map<std::vector<int>, Place> place_of_group_;
  std::map<std::vector<int>, std::vector<std::set<int>>> carried_;  // by group, in the order of its calls
  std::map<std::string, std::pair<std::string, int>> left_out_;     // by why: the first call, and how many
  std::set<int> scaled_apart_;  // parameters that ranks multiply by different numbers
  GradientCalls result_;
};

}  // namespace

bool GradientCall::same_kind(const GradientCall& other) const {
  return std::tie(op, axes, stages, members, average, root, factor) ==
         std::tie(other.op, other.axes, other.stages, other.members, other.average, other.root, other.factor);
}

GradientCalls find_gradient_calls(const CapturedRun& run, const std::vector<int>& steps, const AxisNames& axes,
                                  const Experts& experts) {
  return CallFinder(run, steps, axes, experts).find();
}

}  // namespace lockstep::live
