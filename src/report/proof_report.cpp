// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "lockstep/report.h"
#include "src/base/counted.h"
#include "src/report/brief_statement.h"
#include "src/report/clean_text.h"
#include "src/report/elide.h"
#include "src/report/json_writer.h"
#include "src/report/style.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace report {

std::string open_text(const std::vector<Axis>& axes, bool micro_batches) {
  std::vector<std::string> names;
  names.reserve(axes.size() + 1);
  for (const Axis axis : axes) names.emplace_back(name_of(axis));
  if (micro_batches) names.emplace_back("micro_batches");
  if (names.empty()) return "nothing is open";
  return fmt::format("open: {}", fmt::join(names, ", "));
}

}  // namespace report

namespace {

std::string what_is_wrong(const Proof::Counterexample& example) {
  if (example.ended == Outcome::Kind::deadlock) return "a deadlock";
  if (example.ended == Outcome::Kind::invalid_collective) return "an invalid collective";
  if (example.parameter.empty()) return "a race";
  if (example.unowned)
    return fmt::format("nobody answers for some elements of {} on rank {}", example.parameter, example.rank);
  if (!example.counted.empty()) {
    const std::string times = example.counted == "mean_of_norms" ? "in a mean of norms"
                              : example.counted == "1"           ? "too early"
                                                                 : example.counted + " times";
    return fmt::format("the norm of rank {} counts {} {}, not once and at the end", example.rank, example.parameter,
                       times);
  }
  return fmt::format("rank {} gets {} for {}, not {}", example.rank, example.got, example.parameter, example.expected);
}

/// "  smallest: tp 1, dp 2: rank 0 gets …"; "  smallest that was found: " unless all sizes could be followed (`all`);
/// "  the file: " where it is its own layout; unless `verbose`, on lines of
/// page_width with short formulas.
std::string smallest_text(Proof::Counterexample example, bool all, bool verbose) {
  if (!verbose) {
    for (std::string* formula : {&example.got, &example.expected})
      *formula = report::unbroken(report::elided(*formula, report::widest_in_sentence));
  }
  const std::string line = fmt::format("  {}: {}: {}",
                                       example.of_file              ? "the file"
                                       : all && example.is_smallest ? "smallest"
                                                                    : "smallest that was found",
                                       describe(example.sizes), what_is_wrong(example));
  return (verbose ? line : report::wrapped(line, 4)) + "\n";
}

Json json_of(const Sizes& sizes) {
  Json result = Json::object();
  for (const auto& [axis, size] : sizes.axes) result.set(name_of(axis), Json::number(std::to_string(size)));
  if (sizes.micro_batches) result.set("micro_batches", Json::number(std::to_string(*sizes.micro_batches)));
  return result;
}

Json json_of(const Proof::Refused& refused) {
  std::vector<Json> sizes;
  sizes.reserve(refused.sizes.size());
  for (const int size : refused.sizes) sizes.push_back(Json::number(std::to_string(size)));
  Json result = Json::object({{"axis", {}, Json::string(std::string(name_of(refused.axis)))},
                              {"sizes", {}, Json::array(std::move(sizes))},
                              {"tried", {}, Json::number(std::to_string(refused.tried))},
                              {"why", {}, Json::string(refused.why)}});
  if (refused.from) result.set("from", Json::number(std::to_string(*refused.from)));
  return result;
}

/// A function: one line for each relation, or one alone where it is the same everywhere.
void add_function(const Json& rows, const std::string& indent, std::string& text) {
  if (rows.items().empty()) text += indent + "0\n";
  for (const Json& row : rows.items()) {
    std::vector<std::string> relations;
    for (const Json::Member& member : row.members()) {
      if (member.key != "value") relations.push_back(member.key + ": " + member.value.text());
    }
    text += fmt::format("{}{}{}\n", indent, row.find("value")->text(),
                        relations.empty() ? "" : fmt::format("   where {}", fmt::join(relations, "; ")));
  }
}

/// "  tp 3 and tp ≥ 5 are refused: tp 3: …"
std::string refused_text(const Proof::Refused& refused, bool verbose) {
  constexpr std::size_t most = 8;
  const std::string axis(name_of(refused.axis));
  std::vector<int> sizes = refused.sizes;
  // Those in front of them without a gap are said with them.
  std::optional<int> from = refused.from;
  if (from) std::erase_if(sizes, [&](int size) { return size >= *from; });
  for (; from && !sizes.empty() && sizes.back() == *from - 1; sizes.pop_back()) from = sizes.back();
  std::string list = sizes.empty() ? "" : axis + " " + report::number_list(sizes, verbose ? sizes.size() : most);
  if (from) list += fmt::format("{}{} ≥ {}", list.empty() ? "" : " and ", axis, *from);
  const std::size_t count = sizes.size() + (from ? 1 : 0);
  const bool all = refused.from && *refused.from <= refused.tried + 1;
  return fmt::format("  {} {} refused{}: {} {}: {}\n", list, count == 1 ? "is" : "are",
                     all ? "" : fmt::format(", and others above {} may be", refused.tried), axis, refused.sizes.front(),
                     refused.why);
}

/// "  ep 3, 5-7 are refused beside the other sizes that were tried, and larger ones may be: ep 3: …"
std::string refused_beside_text(const Proof::Refused& refused) {
  const std::string_view axis = name_of(refused.axis);
  if (refused.sizes.empty())
    return fmt::format("  sizes of {} above {} may be refused: {}\n", axis, refused.tried, refused.why);
  return fmt::format(
      "  {0} {1} {2} refused beside the other sizes that were tried, and larger ones may be: {0} {3}: {4}\n", axis,
      report::number_list(refused.sizes), refused.sizes.size() == 1 ? "is" : "are", refused.sizes.front(), refused.why);
}

/// What --open takes for an axis: with experts edp is what is left of dp.
std::string option_of(const Proof::Kept& kept) { return kept.axis == Axis::edp ? "dp" : kept.name(); }

/// "  cp and sp stay 1: the layout does not name them; --open cp,sp opens them"
std::string kept_text(const std::vector<Proof::Kept>& kept) {
  std::string text;
  std::vector<std::string> unnamed, options;
  for (const Proof::Kept& one : kept) {
    if (one.is_given) continue;
    if (one.is_unnamed) {
      unnamed.push_back(one.name());
      options.push_back(option_of(one));
    } else {
      text += fmt::format("  {} stays {}: {}\n", one.name(), one.size, one.why);
    }
  }
  if (unnamed.empty()) return text;
  const bool one = unnamed.size() == 1;
  return fmt::format("  {} {} 1: the layout does not name {}; --open {} opens {}\n{}", listed_words(std::move(unnamed)),
                     one ? "stays" : "stay", one ? "it" : "them", fmt::join(options, ","), one ? "it" : "them", text);
}

/// What was found; `options`: quiet gives one line, verbose every limit and parameter.
std::string findings_text(const Scenario& scenario, const Proof& proof, const ReportOptions& options) {
  const report::Style style(options.color);
  const bool right = proof.verdict == Proof::Verdict::right, wrong = proof.verdict == Proof::Verdict::wrong;
  const std::string mark = right ? style.good("proved") : wrong ? style.bad("wrong ") : style.bold("open  ");
  const std::string statement = options.verbose ? proof.statement : report::brief_statement(proof.statement);
  if (options.quiet)
    return fmt::format("{}  {}{}  {}\n", mark, report::one_line_text(scenario.file), report::changes_text(scenario),
                       statement);
  std::string text = fmt::format("{}  {}{}  {}\n  {}\n", mark, report::one_line_text(scenario.file),
                                 report::changes_text(scenario), scenario.name, style.bold(statement));
  text += fmt::format("  {}; {}, {} of parameters\n", report::open_text(proof.axes, proof.micro_batches),
                      counted(proof.cases, "case"), counted(proof.classes, "class"));
  text += kept_text(proof.kept);
  for (const Proof::Refused& refused : proof.refused) text += refused_text(refused, options.verbose);
  for (const Proof::Refused& refused : proof.refused_beside) text += refused_beside_text(refused);
  for (const Proof::RefusedTogether& refused : proof.refused_together)
    text += fmt::format("  {} are refused together: {}\n", describe(refused.sizes), refused.why);
  for (const Proof::Rule& rule : proof.rules)
    text += fmt::format("  sizes are refused where {}: {}\n", rule.condition, report::one_line_text(rule.why));
  if (wrong && !proof.wrong_parameters.empty()) {
    std::vector<std::string> names = proof.wrong_parameters;
    constexpr std::size_t most = 6;
    const std::size_t all = names.size();
    if (!options.verbose && all > most) {
      names.resize(most);
      names.push_back(fmt::format("and {} more", all - most));
    }
    text += fmt::format("  wrong: {}\n", fmt::join(names, ", "));
  }
  if (proof.counterexample) text += smallest_text(*proof.counterexample, proof.limits.empty(), options.verbose);
  std::size_t shown = 0;
  for (const Proof::Limit& limit : proof.limits) {
    if (!options.verbose && ++shown > 3) {
      const std::size_t more = proof.limits.size() - 3;
      text +=
          fmt::format("  and {} not decided; -v lists {}\n",
                      counted(more, "more case") + (more == 1 ? " that is" : " that are"), more == 1 ? "it" : "them");
      break;
    }
    text += fmt::format("  not decided for {}: {}{}\n", limit.sizes.empty() ? "any size" : limit.sizes,
                        limit.step.empty() ? "" : limit.step + ": ", limit.why);
  }
  return text;
}

/// What a step is: "all_reduce avg over dp".
std::string step_text(const Json& step) {
  std::string result = step.find("op")->text();
  for (const char* key : {"from", "for", "reduce", "by"}) {
    const Json* value = step.find(key);
    const std::string word = std::string(key) == "reduce" ? " " : fmt::format(" {} ", key);
    if (value != nullptr) result += word + value->text();
  }
  std::vector<std::string> over;
  if (const Json* axes = step.find("over")) {
    for (const Json& axis : axes->items()) over.push_back(axis.text());
  }
  if (const Json* picks = step.find("picks")) {
    for (const Json::Member& pick : picks->members()) {
      std::vector<std::string> coordinates;
      for (const Json& one : pick.value.items()) coordinates.push_back(one.text());
      over.push_back(fmt::format("{} ({})", pick.key, fmt::join(coordinates, ", ")));
    }
  }
  if (!over.empty()) result += fmt::format(" over {}", fmt::join(over, ", "));
  if (const Json* micro_batch = step.find("micro_batch"))
    result += fmt::format(", {} micro-batch{}", micro_batch->text() == "any" ? "in any" : "in",
                          micro_batch->text() == "any" ? "" : " " + micro_batch->text());
  return result;
}

void add_named(const Json* rows, const std::string& name, std::string& text) {
  if (rows == nullptr) return;
  text += fmt::format("      {}\n", name);
  add_function(*rows, "        ", text);
}

/// How the optimizer step ended for a class.
void add_end(const Json& end, std::string& text) {
  const Json* step = end.find("optimizer_step");
  text += fmt::format("    at the end{}\n", step == nullptr ? "" : " of optimizer step " + step->text());
  for (const Json::Member& one : end.find("expected")->members())
    add_named(&one.value, fmt::format("one device has of {}", one.key), text);
  for (const Json::Member& one : end.find("differs")->members())
    add_named(&one.value, fmt::format("an owner has too much of {}", one.key), text);
  for (const Json& family : end.find("answers")->items())
    add_named(family.find("owners"), "ranks that answer for an element", text);
  add_named(end.find("norm"), "the norm counts an element", text);
  if (const Json* early = end.find("norm_too_early")) {
    for (const Json& one : early->items()) {
      if (!one.items().empty()) add_named(&one, "what a norm counts that is not final", text);
    }
  }
  add_named(end.find("in_flight"), "not waited for", text);
}

/// For each case and class what is held before and after each step, and how the optimizer steps end.
std::string steps_text(const Proof& proof) {
  std::string text;
  for (const Json& one : proof.steps.items()) {
    const std::string sizes = one.find("sizes")->text();
    text += fmt::format("\n{}\n", sizes.empty() ? "the only sizes" : sizes);
    for (const Json& members : one.find("classes")->items()) {
      const std::vector<Json>& names = members.find("parameters")->items();
      text += fmt::format("  {}{}\n", names.front().text(),
                          names.size() == 1 ? "" : fmt::format(" and {} like it", names.size() - 1));
      const std::vector<Json>& owners = members.find("owners")->items();
      for (std::size_t i = 0; i < owners.size(); ++i)
        text += fmt::format("    owner {}: {}\n", i + 1, owners[i].text());
      std::map<std::pair<std::string, std::string>, Json> held;
      for (const Json& step : members.find("steps")->items()) {
        text += fmt::format("    {}: {}\n", step.find("step")->text(), step_text(step));
        for (const Json::Member& buffer : step.find("after")->members()) {
          for (const Json::Member& contribution : buffer.value.members()) {
            const auto [before, is_new] = held.try_emplace({buffer.key, contribution.key}, Json::array());
            add_named(&before->second, fmt::format("{} held of {}", buffer.key, contribution.key), text);
            add_named(&contribution.value, "and after it", text);
            before->second = contribution.value;
          }
        }
        add_named(step.find("owns"), "owns now", text);
        add_named(step.find("norm"), "counts an element", text);
        add_named(step.find("races"), "touches what is in flight", text);
      }
      for (const Json& end : members.find("ends")->items()) add_end(end, text);
      text += members.find("right")->as_boolean() ? "    right\n" : "    wrong\n";
    }
  }
  return text;
}

Json findings_json(const Scenario& scenario, const Proof& proof) {
  const auto text = [](const std::string& words) { return Json::string(words); };
  const auto number = [](int value) { return Json::number(std::to_string(value)); };
  Json result = Json::object();
  result.set("lockstep", number(1));
  result.set("file", text(scenario.file));
  result.set("scenario", text(scenario.name));
  result.set("verdict", text(proof.verdict == Proof::Verdict::right   ? "right"
                             : proof.verdict == Proof::Verdict::wrong ? "wrong"
                                                                      : "undecided"));
  result.set("statement", text(proof.statement));
  if (!scenario.changes.empty()) {
    std::vector<Json> changes;
    changes.reserve(scenario.changes.size());
    for (const std::string& change : scenario.changes) changes.push_back(text(change));
    result.set("set", Json::array(std::move(changes)));
  }
  std::vector<Json> open;
  open.reserve(proof.axes.size() + 1);
  for (const Axis axis : proof.axes) open.push_back(text(std::string(name_of(axis))));
  if (proof.micro_batches) open.push_back(text("micro_batches"));
  result.set("open", Json::array(std::move(open)));
  std::vector<Json> refused, beside, limits, wrong;
  refused.reserve(proof.refused.size());
  limits.reserve(proof.limits.size());
  wrong.reserve(proof.wrong_parameters.size());
  for (const Proof::Refused& one : proof.refused) refused.push_back(json_of(one));
  for (const Proof::Refused& one : proof.refused_beside) beside.push_back(json_of(one));
  for (const Proof::Limit& one : proof.limits) {
    limits.push_back(Json::object({{"sizes", {}, text(one.sizes)},
                                   {"step", {}, one.step.empty() ? Json() : text(one.step)},
                                   {"why", {}, text(one.why)}}));
  }
  for (const std::string& name : proof.wrong_parameters) wrong.push_back(text(name));
  result.set("refused", Json::array(std::move(refused)));
  result.set("refused_beside", Json::array(std::move(beside)));
  std::vector<Json> together;
  together.reserve(proof.refused_together.size());
  for (const Proof::RefusedTogether& one : proof.refused_together)
    together.push_back(Json::object({{"sizes", {}, json_of(one.sizes)}, {"why", {}, text(one.why)}}));
  result.set("refused_together", Json::array(std::move(together)));
  std::vector<Json> rules;
  rules.reserve(proof.rules.size());
  for (const Proof::Rule& rule : proof.rules)
    rules.push_back(Json::object({{"condition", {}, text(rule.condition)}, {"why", {}, text(rule.why)}}));
  result.set("rules", Json::array(std::move(rules)));
  std::vector<Json> kept;
  kept.reserve(proof.kept.size());
  for (const Proof::Kept& one : proof.kept) {
    const std::string why = one.is_unnamed ? fmt::format("{}; --open {} opens it", one.why, option_of(one)) : one.why;
    kept.push_back(
        Json::object({{"axis", {}, text(one.name())}, {"size", {}, number(one.size)}, {"why", {}, text(why)}}));
  }
  result.set("kept", Json::array(std::move(kept)));
  result.set("undecided", Json::array(std::move(limits)));
  result.set("wrong_parameters", Json::array(std::move(wrong)));
  Json example;
  if (proof.counterexample) {
    example = Json::object();
    example.set("sizes", json_of(proof.counterexample->sizes));
    example.set("what", text(what_is_wrong(*proof.counterexample)));
    example.set("scenario", proof.counterexample->document);
  }
  result.set("counterexample", example);
  result.set("cases", number(proof.cases));
  result.set("classes", number(proof.classes));
  if (!proof.steps.is_null()) result.set("proof", proof.steps);
  return result;
}

/// One scenario after the other, with an empty line between them.
class ProofText : public ProofReporter {
 public:
  ProofText(const ReportOptions& options, Write write) : options_(options), write_(std::move(write)) {}
  void add(const Scenario& scenario, const Proof& proof) override {
    if (!options_.quiet && !first_) write_("\n");
    first_ = false;
    write_(findings_text(scenario, proof, options_));
    if (!proof.steps.is_null()) write_(steps_text(proof));
  }
  void finish() override {}

 private:
  ReportOptions options_;
  Write write_;
  bool first_ = true;
};

class ProofJson : public ProofReporter {
 public:
  ProofJson(const ReportOptions& options, Write write) : several_(options.several), json_(std::move(write)) {
    if (several_) json_.begin_array();
  }
  void add(const Scenario& scenario, const Proof& proof) override {
    json_.value(findings_json(scenario, proof));
    empty_ = false;
  }
  void finish() override {
    if (several_) json_.end_array();
    if (several_ || !empty_) json_.finish();
  }

 private:
  bool several_, empty_ = true;
  report::JsonWriter json_;
};

}  // namespace

std::unique_ptr<ProofReporter> make_proof_reporter(std::string_view kind, const ReportOptions& options, Write write) {
  if (kind == "json") return std::make_unique<ProofJson>(options, std::move(write));
  return std::make_unique<ProofText>(options, std::move(write));
}

}  // namespace lockstep
