// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/check.h"
#include "lockstep/symbolic.h"
#include "lockstep/timeline.h"
#include "lockstep/transformer.h"
#include "src/base/at.h"
#include "src/diagnosis/expected_formulas.h"
#include "src/diagnosis/other_tests.h"
#include "src/schedule/selector_list.h"

namespace lockstep {

namespace {

using Names = std::set<std::string>;

std::string list(const Names& names) { return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")); }

/// Checks one `expect` against what came out; every method adds a sentence where it fails.
class Expectations {
 public:
  Expectations(const CheckResult& result, const Expect& expect)
      : result_(result),
        symbolic_(symbolic_of(result)),
        by_classes_(parametric_of(result) != nullptr),
        expect_(expect) {}

  std::vector<std::string> check() {
    compare_text("verdict", expect_.verdict, std::string(name_of(result_.verdict)));
    if (expect_.step) compare_text("step", std::to_string(*expect_.step), std::to_string(result_.step));
    if (expect_.stuck) compare_names("stuck", *expect_.stuck, stuck_steps());
    // With a file that is not valid there is nothing further to look at.
    if (result_.timeline == nullptr && !by_classes_) return std::move(unmet_);
    if (expect_.parameters) check_parameters();
    if (expect_.ranks) check_ranks();
    if (symbolic_ == nullptr && !by_classes_) return std::move(unmet_);
    diagnosis::check_formulas(result_, expect_, unmet_);
    if (expect_.ratio) check_ratio();
    if (symbolic_ == nullptr) {
      for (const auto& [name, counted] : expect_.norm) check_norm(name, counted);
      if (expect_.replicas_agree) not_known("replicas_agree");
      if (expect_.norm_squared_factor) not_known("norm_squared_factor");
      if (expect_.blame) compare_names("blame", *expect_.blame, blamed_steps());
      return std::move(unmet_);
    }
    if (expect_.replicas_agree) check_replicas();
    for (const auto& [name, counted] : expect_.norm) check_norm(name, counted);
    if (expect_.norm_squared_factor) check_norm_squared_factor();
    if (expect_.blame) compare_names("blame", *expect_.blame, blamed_steps());
    return std::move(unmet_);
  }

 private:
  const Model& model() const { return result_.scenario->schedule->model; }
  const std::string& name(int parameter) const { return model().parameters()[at(parameter)].name; }

  void compare_text(std::string_view key, const std::string& expected, const std::string& found) {
    if (expected != found) unmet_.push_back(fmt::format("{}: expected {}, found {}", key, expected, found));
  }

  void compare_names(std::string_view key, const std::vector<std::string>& expected, const Names& found) {
    const Names wanted(expected.begin(), expected.end());
    if (wanted != found) unmet_.push_back(fmt::format("{}: expected {}, found {}", key, list(wanted), list(found)));
  }

  /// What takes every rank.
  void not_known(std::string_view key) {
    unmet_.push_back(fmt::format(
        "{}: not known, as the layout is large and the parametric engine decided it alone; take it out, or check with "
        "--engine symbolic",
        key));
  }

  Names stuck_steps() const {
    Names steps;
    if (result_.timeline == nullptr || result_.verdict == Verdict::mismatch) return steps;
    for (const Outcome::Stuck& stuck : result_.timeline->outcome.stuck) steps.insert(stuck.waits_in);
    for (const Outcome::MemberCall& call : result_.timeline->outcome.member_calls) steps.insert(call.calls);
    for (const Outcome::Race& race : result_.timeline->outcome.races)
      steps.insert(race.step.empty() ? race.in_flight : race.step);
    return steps;
  }

  Names blamed_steps() const {
    Names steps;
    for (const Blame& blame : result_.blame) steps.insert(blame.step);
    return steps;
  }

  /// Reports name a buffer after its first parameter; selectors choose it by any of its names.
  void check_parameters() {
    const schedule::SelectorList selectors(*expect_.parameters);
    Names chosen, wrong;
    std::map<int, int> entry_of;
    for (const auto& local : model().locals()) {
      for (const LocalBuffer& buffer : local->buffers) {
        for (const int parameter : buffer.parameters) entry_of.emplace(parameter, buffer.parameters.front());
        if (!expect_.parameters->empty() && selectors.chooses(model(), buffer))
          chosen.insert(name(buffer.parameters.front()));
      }
    }
    for (const int parameter : wrong_set(result_).parameters) {
      const auto entry = entry_of.find(parameter);
      wrong.insert(name(entry == entry_of.end() ? parameter : entry->second));
    }
    if (chosen == wrong) return;
    Names missed, extra;
    std::set_difference(chosen.begin(), chosen.end(), wrong.begin(), wrong.end(), std::inserter(missed, missed.end()));
    std::set_difference(wrong.begin(), wrong.end(), chosen.begin(), chosen.end(), std::inserter(extra, extra.end()));
    std::string sentence =
        fmt::format("parameters: expected exactly [{}] to be wrong", fmt::join(*expect_.parameters, ", "));
    if (!missed.empty()) sentence += fmt::format("; found right: {}", list(missed));
    if (!extra.empty()) sentence += fmt::format("; found wrong as well: {}", list(extra));
    unmet_.push_back(std::move(sentence));
  }

  void check_ranks() {
    if (symbolic_ == nullptr && by_classes_) return not_known("ranks");
    std::vector<int> expected = *expect_.ranks;
    std::sort(expected.begin(), expected.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    const std::vector<int> found = wrong_set(result_).ranks;
    if (expected == found) return;
    unmet_.push_back(fmt::format("ranks: expected exactly [{}] to be wrong, found [{}]", fmt::join(expected, ", "),
                                 fmt::join(found, ", ")));
  }

  void check_ratio() {
    std::size_t wrong = 0;
    static const SymbolicResult nothing;
    const SymbolicResult* exact = exact_of(result_);
    for (const BufferResult& buffer : (exact == nullptr ? nothing : *exact).buffers) {
      for (const PieceResult& piece : buffer.pieces) {
        if (piece.right) continue;
        ++wrong;
        if (piece.ratio && *piece.ratio == *expect_.ratio) continue;
        unmet_.push_back(fmt::format(
            "ratio: expected {} × the right gradient for every wrong element, found {} on rank {}",
            expect_.ratio->to_string(), piece.ratio ? piece.ratio->to_string() : "no multiple of it", buffer.rank));
        return;
      }
    }
    if (wrong == 0) {
      unmet_.push_back(
          fmt::format("ratio: expected {} × the right gradient, found no wrong element", expect_.ratio->to_string()));
    }
  }

  void check_replicas() {
    const std::vector<bool>& agree =
        diagnosis::wrong_in_model_alone(result_) ? transformer_of(result_)->replicas_agree : symbolic_->replicas_agree;
    const bool found = std::all_of(agree.begin(), agree.end(), [](bool one) { return one; });
    compare_text("replicas_agree", *expect_.replicas_agree ? "true" : "false", found ? "true" : "false");
  }

  /// A norm counts logical elements: a tied parameter answers to each of its names.
  void check_norm(const std::string& parameter, const std::string& expected) {
    Names found;
    static const SymbolicResult nothing;
    const SymbolicResult* exact = exact_of(result_);
    for (const NormResult& norm : (exact == nullptr ? nothing : *exact).norm) {
      const std::vector<int> sites = model().sites(model().logical_of(norm.parameter));
      const bool named = std::any_of(sites.begin(), sites.end(), [&](int site) { return name(site) == parameter; });
      if (named) found.insert(norm.counted);
    }
    const auto same = [&](const std::string& counted) {
      const std::optional<Rational> a = Rational::parse(counted), b = Rational::parse(expected);
      return a && b ? *a == *b : counted == expected;
    };
    if (!found.empty() && std::all_of(found.begin(), found.end(), same)) return;
    unmet_.push_back(fmt::format("norm: expected {} to be counted {} times, found {}", parameter, expected,
                                 found.empty() ? "no wrong count" : list(found)));
  }

  /// There is one number only where all ranks count all elements equally often.
  void check_norm_squared_factor() {
    const std::optional<int>& found = symbolic_->norm_squared_factor;
    if (found && Rational(*found) == *expect_.norm_squared_factor) return;
    std::string other = symbolic_->norm.empty() ? "no wrong count" : "counts that make no one number";
    if (found) other = std::to_string(*found);
    unmet_.push_back(
        fmt::format("norm_squared_factor: expected {}, found {}", expect_.norm_squared_factor->to_string(), other));
  }

  const CheckResult& result_;
  const SymbolicResult* symbolic_;  ///< null where it did not run
  bool by_classes_;                 ///< the parametric engine has a verdict
  const Expect& expect_;
  std::vector<std::string> unmet_;
};

}  // namespace

std::vector<std::string> unmet_expectations(const CheckResult& result) {
  if (result.scenario == nullptr || !result.scenario->expect) return {};
  return Expectations(result, *result.scenario->expect).check();
}

}  // namespace lockstep
