// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/report.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

namespace {

/// Turns bytes into choices; when they are used up, every choice is the first one.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}

  int below(int count) {
    if (bytes_.empty()) return 0;
    const int byte = static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte % count;
  }
  bool one_in(int count) { return below(count) == count - 1; }
  const char* of(const std::vector<const char*>& words) {
    return words[static_cast<std::size_t>(below(static_cast<int>(words.size())))];
  }

 private:
  std::string_view bytes_;
};

/// Writes a scenario that is nearly always valid: what would not be is a mistake that must be reported well.
class Writer {
 public:
  explicit Writer(std::string_view bytes) : choose_(bytes) {}

  std::string scenario() {
    std::string text = "{\"lockstep\": 1, \"layout\": " + layout();
    text += ", \"model\": {\"parameters\": [" + list(1 + choose_.below(4), [&](int i) { return parameter(i); }) + "]}";
    text += ", \"batch\": " + batch();
    text += ", \"schedule\": {\"steps\": [" + schedule() + "]";
    if (choose_.one_in(3)) text += ", \"edits\": [" + list(1 + choose_.below(2), [&](int) { return edit(); }) + "]";
    return text + "}}\n";
  }

 private:
  template <class Function>
  static std::string list(int count, Function item) {
    std::string text;
    for (int i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + item(i);
    return text;
  }
  static std::string key(const std::string& name, const std::string& value) {
    return fmt::format(", \"{}\": {}", name, value);
  }
  static std::string quoted(const std::string& text) { return "\"" + text + "\""; }

  std::string layout() {
    std::string text = fmt::format("\"pp\": {}, \"tp\": {}", 1 + choose_.below(2), 1 + choose_.below(2));
    text += choose_.of({", \"dp\": 2", ", \"dp\": 3", ", \"dp\": 4", ", \"dp_shard\": 2, \"dp_replicate\": 2", ""});
    if (choose_.one_in(4)) text += ", \"cp\": 2";
    if (choose_.one_in(4)) text += ", \"sp\": 2";
    if (choose_.one_in(3)) text += ", \"ep\": 2";
    if (choose_.one_in(6)) text += key("order", quoted(choose_.of({"dp-tp-cp-sp-ep-pp", "pp-dp-tp-cp-sp-ep"})));
    return "{" + text + "}";
  }

  std::string parameter(int index) {
    names_.push_back(fmt::format("w{}", index));
    std::string text = key("name", quoted(names_.back())).substr(2);
    const int dims = choose_.below(3);
    text += key("shape", "[" + list(dims, [&](int) { return std::to_string(1 + choose_.below(12)); }) + "]");
    if (choose_.one_in(3)) text += key("stage", choose_.of({"-1", "\"all\""}));
    if (dims > 0 && choose_.one_in(3)) {
      text += fmt::format(", \"shard\": {{\"{}\": {{\"dim\": {}, \"uneven\": true}}}}",
                          choose_.of({"tp", "dp", "ep", "etp"}), choose_.below(dims));
    }
    if (choose_.one_in(4)) text += key("partial", choose_.of({"[\"tp\"]", "[\"ep\"]"}));
    if (choose_.one_in(6)) text += key("dispatch", choose_.of({"[\"ep\"]", "[\"ep\", \"edp\"]"}));
    if (choose_.one_in(4)) {
      text += key("tied", quoted("group"));
      if (choose_.one_in(3)) text += key("copy", choose_.of({"\"second\"", "\"third\""}));
    }
    if (choose_.one_in(5)) text += key("uses", choose_.of({"[\"main\", \"aux\"]", "[\"aux\"]"}));
    if (choose_.one_in(8)) text += key("micro_batches", choose_.of({"[0]", "[]", "[1]"}));
    if (choose_.one_in(8)) text += key("only", choose_.of({"{\"dp\": [0]}", "{\"dp\": \"last\"}"}));
    if (choose_.one_in(12)) text += key("frozen", "true");
    if (choose_.one_in(6)) text += key("dtype", choose_.of({"\"float64\"", "\"bfloat16\""}));
    if (choose_.one_in(3)) text += key("tags", "[\"norm\"]");
    return "{" + text + "}";
  }

  std::string batch() {
    std::string text = fmt::format("\"micro_batches\": {}", 1 + choose_.below(3));
    if (choose_.one_in(4)) text += ", \"steps\": 2";
    if (choose_.one_in(4)) text += ", \"tokens\": \"even\"";
    text += key("loss", choose_.of({"\"token_mean\"", "\"micro_batch_mean\"", "\"local_mean\"", "\"sum\"",
                                    "{\"weight\": \"1 / (tokens + rank.dp)\"}"}));
    return "{" + text + "}";
  }

  std::string schedule() {
    std::string body = step({"backward"});
    if (choose_.one_in(3)) body += ", " + step(inner_);
    std::string text = fmt::format("{{\"name\": \"micro_batches\", \"op\": \"each\", \"steps\": [{}]}}", body);
    steps_.push_back("micro_batches");
    const int count = choose_.below(6);
    for (int i = 0; i < count; ++i) text += ", " + step(outer_);
    return choose_.one_in(3) ? step({"zero"}) + ", " + text : text;
  }

  std::string step(const std::vector<const char*>& ops) {
    const std::string op = choose_.of(ops);
    steps_.push_back(fmt::format("s{}", steps_.size()));
    std::string text = fmt::format("\"name\": \"{}\", \"op\": \"{}\"", steps_.back(), op);
    if (op == "wait") return "{" + text + key("for", quoted(any_step())) + "}";
    if (choose_.one_in(3)) text += key("params", choose_.of({"\"w0\"", "\"!w0\"", "\"numel>0\"", "[\"w*\", \"!w0\"]"}));
    const bool cuts = op == "reduce_scatter" || op == "all_gather" || op == "own";
    if (cuts || op == "all_reduce" || op == "broadcast" || op == "reduce" || op == "all_to_all")
      text += key("over", over());
    if (op == "norm" && choose_.one_in(2)) text += key("over", over());
    if ((op == "all_reduce" || op == "reduce_scatter") && choose_.one_in(3)) text += ", \"reduce\": \"avg\"";
    if (op == "broadcast" || op == "reduce") text += key("root", choose_.of({"0", "{\"dp\": \"last\"}", "1"}));
    if (op == "scale") text += key("by", by());
    if ((op == "backward" || op == "leftover") && choose_.one_in(3)) text += key("by", by());
    if (cuts && choose_.one_in(2)) text += key("geometry", geometry());
    if (op == "copy" || op == "accumulate")
      text += choose_.of({", \"from\": \"grad\", \"to\": \"main\"", ", \"from\": \"main\""});
    if (op == "leftover") text += choose_.of({", \"what\": \"parameter\"", ", \"what\": \"noise\", \"per\": \"rank\""});
    if (op != "all_gather" && op != "norm" && op != "own" && op != "copy" && choose_.one_in(8))
      text += ", \"on\": \"owned\"";
    if (choose_.one_in(8))
      text += key("when", choose_.of({"\"rank.dp == first\"", "\"rank.pp == last\"", "\"rank.tp == 0\""}));
    if (choose_.one_in(8)) text += ", \"only\": {\"pp\": [0]}";
    if (choose_.one_in(8)) text += ", \"async\": true";
    return "{" + text + "}";
  }

  std::string over() {
    return choose_.of({"\"dp\"", "\"tp\"", "[\"dp\", \"cp\"]", "\"pp\"", "\"edp\"", "\"ep\"", "\"dp_shard\"",
                       "[\"dp\", \"tp\", \"cp\", \"sp\", \"pp\"]", "{\"pp\": [\"first\", \"last\"]}",
                       "{\"dp\": [0], \"tp\": \"all\"}", "[]"});
  }
  std::string by() {
    return choose_.of({"\"1/2\"", "\"1 / dp\"", "\"1 / sum(tokens, dp, cp, sp, micro_batch)\"", "3", "\"rank.dp + 1\"",
                       "\"1 / sum(tokens, dp, micro_batch)\"", "\"-1/3\"", "\"1 / micro_batches\"", "0",
                       "\"1/rank.dp\""});
  }
  std::string geometry() {
    return choose_.of(
        {"{\"kind\": \"parameter\"}", "{\"kind\": \"rows\"}", "{\"kind\": \"flat\"}",
         "{\"kind\": \"flat\", \"align\": \"4*n\"}", "{\"kind\": \"bucket\"}",
         "{\"kind\": \"bucket\", \"size\": 20, \"align_parameter\": 2, \"align_bucket\": \"n\"}",
         "{\"kind\": \"bucket\", \"align_parameter\": 1, \"align_bucket\": \"n\", \"separate\": [\"w0\"]}"});
  }
  std::string any_step() {
    return steps_.empty() ? "s0" : steps_[static_cast<std::size_t>(choose_.below(static_cast<int>(steps_.size())))];
  }

  std::string edit() {
    switch (choose_.below(5)) {
      case 0:
        return fmt::format("{{\"drop\": \"{}\"}}", any_step());
      case 1:
        return fmt::format("{{\"duplicate\": \"{}\"}}", any_step());
      case 2: {
        const std::string moved = any_step();
        return fmt::format("{{\"move\": \"{}\", \"{}\": \"{}\"}}", moved, choose_.of({"before", "after"}), any_step());
      }
      case 3:
        return fmt::format("{{\"set\": \"{}\", \"when\": \"rank.dp == 0\"}}", any_step());
      default: {
        const std::string inserted = step(outer_);
        return fmt::format("{{\"insert\": {}, \"{}\": \"{}\"}}", inserted, choose_.of({"before", "after"}), any_step());
      }
    }
  }

  const std::vector<const char*> inner_ = {"scale",    "all_reduce", "reduce_scatter", "accumulate", "zero",
                                           "leftover", "wait"};
  const std::vector<const char*> outer_ = {
      "all_reduce", "reduce_scatter", "scale", "all_gather", "broadcast", "reduce",     "own",
      "copy",       "accumulate",     "zero",  "leftover",   "norm",      "all_to_all", "wait"};
  Choices choose_;
  std::vector<std::string> names_, steps_;
};

CheckResult check_text(const std::string& text) {
  const auto source = std::make_shared<const Source>(Source{"fuzz.json", text});
  CheckOptions options;
  options.host_forced = true;
  options.blame = false;
  return check_scenario(std::make_shared<const Scenario>(read_scenario(source)), options);
}

void write_everything(const CheckResult& result) {
  std::size_t written = 0;
  const auto count = [&](std::string_view text) { written += text.size(); };
  ReportOptions options;
  options.all = options.verbose = true;
  for (const std::string& kind : report_kinds()) {
    const auto reporter = make_reporter(kind, options, count);
    reporter->add(result);
    reporter->finish();
  }
  explain_text(result, {}, count);
  explain_json(result, {}, count);
  if (written == 0) throw Finding("reports without a word");
}

}  // namespace

std::string scenario_from(std::string_view input) { return Writer(input).scenario(); }

void run_engines(std::string_view input) {
  try {
    const CheckResult result = check_text(scenario_from(input));
    if (!result.disagreement.empty()) throw Finding(result.disagreement);
    unmet_expectations(result);
    if (result.verdict == Verdict::error) return;
    write_everything(result);
    const CheckResult again = check_text(write_json(result.scenario->resolved));
    if (again.verdict != result.verdict || again.step != result.step) {
      throw Finding("what the scenario expands to has another verdict");
    }
  } catch (const InputError& error) {
    if (error.diagnostics().empty()) throw Finding("an InputError that says nothing");
  }
}

}  // namespace lockstep::fuzz
