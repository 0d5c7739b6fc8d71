// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/comparison.h"
#include "lockstep/operation.h"
#include "lockstep/report.h"
#include "src/base/bytes_text.h"
#include "src/base/counted.h"
#include "src/base/shell_quoted.h"
#include "src/diagnosis/fold_names.h"
#include "src/diagnosis/outcome_verdict.h"
#include "src/report/brief_statement.h"
#include "src/report/clean_text.h"
#include "src/report/differing_gradients.h"
#include "src/report/elide.h"
#include "src/report/plain_table.h"
#include "src/report/style.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

constexpr std::size_t most_differences = 12, most_owners = 6, most_intervals = 4;

std::string intervals_text(const Intervals& intervals) {
  if (intervals.empty()) return "nothing";
  std::string text;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    if (i == most_intervals) return text + fmt::format(" and {} more", intervals.size() - i);
    text += (i == 0 ? "" : " ") + report::interval_text(intervals[i]);
  }
  return text;
}

std::string group_text(const StepCommunication& step) {
  if (step.smallest_group == step.largest_group) return std::to_string(step.largest_group);
  return fmt::format("{}-{}", step.smallest_group, step.largest_group);
}

/// "all_reduce", "all_reduce (avg)"
std::string op_text(const StepCommunication& step) {
  const char* average = step.step->reduction == Reduction::average ? " (avg)" : "";
  return fmt::format("{}{}", operation(step.step->op).name, average);
}

/// "16" or "16 → 8"; "-" for what is not there.
std::string change_text(const std::string& before, const std::string& after) {
  return before == after ? after : before + " → " + after;
}

class TextComparison {
 public:
  TextComparison(const ScheduleComparison& comparison, bool verbose, bool color, const Write& write)
      : comparison_(comparison), verbose_(verbose), style_(color), write_(write) {}

  void run() {
    head();
    if (!comparison_.apart.empty()) return;
    every_size();
    gradients();
    norms();
    ownership();
    steps();
  }

 private:
  void every_size() const {
    if (!comparison_.every_size) return;
    const EverySize& every = *comparison_.every_size;
    const SameProof& proof = every.proof;
    const bool other = proof.verdict == SameProof::Verdict::other;
    const std::string text = verbose_ ? proof.statement : report::brief_statement(proof.statement);
    const std::string statement = other                                       ? style_.bad(text)
                                  : proof.verdict == SameProof::Verdict::same ? style_.good(text)
                                                                              : text;
    write_(fmt::format("  For every size: {} ({}).\n", statement, report::open_text(proof.axes, proof.micro_batches)));
    if (other) {
      const DifferingElements& where = every.difference.where.front();
      const auto formula = [&](const std::string& whole) {
        return verbose_ ? whole : report::unbroken(report::elided(whole, report::widest_in_sentence));
      };
      const std::string line = fmt::format(
          "  The smallest: {}: rank {} gets {} for {}, {} {}.", describe(*every.smallest), where.ranks.front(),
          formula(every.difference.before), every.difference.parameter,
          where.new_ranks.empty() ? "from the new one" : fmt::format("in the new one rank {}", where.new_ranks.front()),
          formula(every.difference.after));
      write_((verbose_ ? line : report::wrapped(line, 4)) + "\n");
    }
    for (const SameProof::RefusedBy& one : proof.refused) {
      const auto is_the_same = [&](const SameProof::RefusedBy& other) {
        return other.side != one.side && other.refused.axis == one.refused.axis &&
               other.refused.sizes == one.refused.sizes && other.refused.from == one.refused.from &&
               other.refused.why == one.refused.why;
      };
      const bool both = std::any_of(proof.refused.begin(), proof.refused.end(), is_the_same);
      if (both && one.side == "new") continue;
      const bool more = one.refused.sizes.size() > 1 || one.refused.from;
      write_(fmt::format("  {} {} {} refused by {}: {}\n", name_of(one.refused.axis), one.refused.sizes.front(),
                         more ? "and others are" : "is", both ? "both" : fmt::format("the {} one", one.side),
                         one.refused.why));
    }
    constexpr std::size_t most_limits = 3;
    for (std::size_t i = 0; i < proof.limits.size(); ++i) {
      if (i == most_limits && !verbose_) {
        const std::size_t more = proof.limits.size() - i;
        write_(fmt::format("  and {} not decided (-v shows all)\n",
                           counted(more, "more case") + (more == 1 ? " that is" : " that are")));
        break;
      }
      const Proof::Limit& limit = proof.limits[i];
      write_(fmt::format("  not decided for {}: {}{}\n", limit.sizes.empty() ? "every size" : limit.sizes,
                         limit.step.empty() ? "" : limit.step + ": ", limit.why));
    }
  }

  /// As an argument of a command, with what was changed.
  static std::string command_file(const ComparedSchedule& side) {
    std::string text = argument_for(side.scenario->file);
    for (const std::string& change : side.scenario->changes) text += " --set " + shell_quoted(change);
    return text;
  }

  void head() const {
    const std::string verdict = !comparison_.apart.empty()       ? style_.bad("cannot be compared")
                                : comparison_.same()             ? style_.good("same gradients")
                                : comparison_.same_gradients()   ? style_.bad("other norms")
                                : !comparison_.gradients.empty() ? style_.bad("other gradients")
                                                                 : style_.bad("not complete");
    const auto name = [](const ComparedSchedule& side) {
      return report::one_line_text(side.scenario->file) + report::changes_text(*side.scenario);
    };
    write_(fmt::format("{}  {} → {}\n", verdict, name(comparison_.before), name(comparison_.after)));
    for (const std::string& reason : comparison_.apart) write_("  " + reason + "\n");
    if (!comparison_.apart.empty()) return;
    write_("  " + report::layout_text(*comparison_.after.scenario) + "\n");
    for (const auto& [which, side] : {std::pair("old", &comparison_.before), std::pair("new", &comparison_.after)}) {
      if (side->outcome != Outcome::Kind::complete)
        write_(fmt::format("  The {} one ends in a {} (lockstep check {}).\n", which,
                           style_.bad(diagnosis::name_of(side->outcome)), report::one_line_text(command_file(*side))));
    }
    if (comparison_.step < 0) {
      write_("  There is no optimizer step that both complete, so no gradients are compared.\n");
    } else if (comparison_.same_gradients() && comparison_.elements == 0) {
      write_("  No element has an optimizer in both, so no gradients are compared.\n");
    } else if (comparison_.same_gradients()) {
      write_(fmt::format("  Every optimizer gets the same, in {} of all ranks together.\n",
                         counted(comparison_.elements, "element")));
    }
  }

  void gradients() const {
    report::differing_gradients(comparison_.gradients,
                                comparison_.step > 0 ? fmt::format(" in optimizer step {}", comparison_.step + 1) : "",
                                verbose_, style_, write_);
    if (comparison_.plain)
      write_("  Here g is the gradient of a rank's loss as it is: the two `backward` steps multiply it differently.\n");
  }

  void norms() const {
    if (comparison_.has_norm && comparison_.norms.empty() && comparison_.same_gradients())
      write_("  The gradient norms count every element as often.\n");
    if (comparison_.norms.empty()) return;
    write_(fmt::format("\n{} count\n", style_.bold("what gradient norms")));
    std::size_t shown = 0;
    for (const NormDifference& each : comparison_.norms) {
      if (!verbose_ && shown++ == most_differences) {
        write_(fmt::format("  and {} more (-v shows all)\n", comparison_.norms.size() - most_differences));
        break;
      }
      if (each.parameter.empty())
        write_(fmt::format("  {}, now {}\n", each.before, each.after));
      else
        write_(fmt::format("  {}: rank {} counted {}, now {}\n", each.parameter, each.rank, each.before, each.after));
    }
  }

  void ownership() const {
    if (comparison_.ownership.empty()) return;
    write_(fmt::format("\n{} of elements by ranks' optimizers\n", style_.bold("ownership")));
    std::size_t shown = 0;
    std::set<std::string> names;  // one layer stands for all
    for (const OwnershipDifference& each : comparison_.ownership) {
      const std::string name = verbose_ ? each.parameter : diagnosis::folded_name(each.parameter);
      if (!names.insert(name).second) continue;
      if (!verbose_ && shown++ == most_owners) {
        write_("  and more (-v shows all)\n");
        break;
      }
      write_(fmt::format("  {}: {} other elements; rank {} owned {}, now {}\n", name,
                         each.ranks == 1 ? "1 rank owns" : fmt::format("{} ranks own", each.ranks), each.rank,
                         intervals_text(each.before), intervals_text(each.after)));
    }
  }

  void steps() const {
    const std::vector<StepDifference> all = step_differences(comparison_);
    const auto changed = static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const StepDifference& each) { return each.changed(); }));
    const Communication &before = comparison_.before.communication, &after = comparison_.after.communication;
    write_(fmt::format("\n{} in an optimizer step\n", style_.bold("communication")));
    std::vector<std::vector<std::string>> rows = {{"", "step", "", "calls", "ranks", "sent by all ranks"}};
    for (const StepDifference& each : all) {
      if (!verbose_ && !each.changed()) continue;
      rows.push_back(row(each));
    }
    rows.push_back({"", "all steps", "", change_text(std::to_string(before.calls), std::to_string(after.calls)), "",
                    change_text(bytes_text(before.bytes), bytes_text(after.bytes))});
    rows.push_back({"", "the busiest rank", "", "", "",
                    change_text(bytes_text(before.most_bytes_of_a_rank), bytes_text(after.most_bytes_of_a_rank))});
    report::plain_table(rows, write_);
    if (changed != 0 || all.empty()) return;
    // Steps that do not communicate are not listed, and may differ.
    const auto steps_of = [](const ComparedSchedule& side) {
      const Json* schedule = side.scenario->resolved.find("schedule");
      const Json* steps = schedule == nullptr ? nullptr : schedule->find("steps");
      return steps == nullptr ? std::string() : write_json(*steps);
    };
    write_(steps_of(comparison_.before) == steps_of(comparison_.after)
               ? "  The same steps in the same order.\n"
               : "  The steps that communicate have the same names, calls and bytes, in the same order.\n");
  }

  static std::vector<std::string> row(const StepDifference& each) {
    const StepCommunication& any = each.after != nullptr ? *each.after : *each.before;
    const auto both = [&](const auto& text) {
      return change_text(each.before != nullptr ? text(*each.before) : "-",
                         each.after != nullptr ? text(*each.after) : "-");
    };
    const char* sign = each.before == nullptr ? "+" : each.after == nullptr ? "-" : each.moved ? "~" : " ";
    std::string op = each.before == nullptr || each.after == nullptr ? op_text(any) : both(op_text);
    if (each.moved) op += ", moved";
    return {sign,
            any.step->name,
            op,
            both([](const StepCommunication& step) { return std::to_string(step.calls); }),
            both(group_text),
            both([](const StepCommunication& step) { return bytes_text(step.bytes); })};
  }

  const ScheduleComparison& comparison_;
  bool verbose_;
  report::Style style_;
  const Write& write_;
};

}  // namespace

void comparison_text(const ScheduleComparison& comparison, bool verbose, bool color, const Write& write) {
  TextComparison(comparison, verbose, color, write).run();
}

}  // namespace lockstep
