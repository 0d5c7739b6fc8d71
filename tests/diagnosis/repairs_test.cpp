// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/repairs.h"

#include <algorithm>

#include "src/base/budget.h"
#include "src/diagnosis/repair_order.h"
#include "src/diagnosis/shrink.h"
#include "src/diagnosis/verify_repair.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string with_batch(std::string text, const std::string& batch) {
  const std::string old = R"("batch": { "micro_batches": 1, "tokens": "even" })";
  return text.replace(text.find(old), old.size(), "\"batch\": " + batch);
}

/// Four data-parallel ranks, four micro-batches, uneven tokens; `tail` follows the backward of 8 layers.
std::string eight_layers(const std::string& tail) {
  std::string parameters;
  for (int layer = 0; layer < 8; ++layer) {
    parameters += R"({ "name": "layers.)" + std::to_string(layer) +
                  R"(.weight", "shape": [8], "shard": { "tp": 0 } }, )" + R"({ "name": "layers.)" +
                  std::to_string(layer) + R"(.norm", "shape": [4], "partial": ["tp"], "tags": ["norm"] }, )";
  }
  parameters.resize(parameters.size() - 2);
  return with_batch(scenario_text(R"({ "dp": 4, "tp": 4 })", "[" + parameters + "]",
                                  R"J([ { "name": "micro_batches", "op": "each", "steps": [
                                    { "name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)" } ] }, )J" +
                                      tail + " ]"),
                    R"({ "micro_batches": 4 })");
}

std::vector<std::string> lines_of(const diagnosis::RepairSearch& search) {
  std::vector<std::string> lines;
  for (const diagnosis::FoundRepair& repair : search.repairs) {
    std::string line;
    for (const diagnosis::Candidate& edit : repair.edits) line += one_line(to_json(edit.edit));
    lines.push_back(line);
  }
  return lines;
}

bool has(const diagnosis::RepairSearch& search, const std::string& line) {
  const std::vector<std::string> lines = lines_of(search);
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

}  // namespace

TEST_CASE("both known repairs of Megatron-LM#844 are found, and they stand at the file's own sizes") {
  const CheckResult result = check_text(megatron_844());
  const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
  CHECK(has(search, R"({ "move": "embedding_all_reduce", "after": "micro_batches" })"));
  CHECK(has(search, R"({ "set": "dp_reduce_scatter", "geometry": { "separate": ["tied:embedding"] } })"));
  REQUIRE(search.repairs.size() > 2);
  for (std::size_t at = 0; at < 3; ++at) {
    Repair repair = search.repairs[at].plain();
    CHECK(diagnosis::verify_repair(result, repair));
    CHECK(repair.verified == std::vector<std::string>{"symbolic", "host"});
    CHECK(repair.edits.size() == 1);
  }
}

TEST_CASE("the same goes wrong at the smallest sizes, with one parameter of each class") {
  const CheckResult result =
      check_text(eight_layers(R"({ "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" })"));
  REQUIRE(result.verdict == Verdict::mismatch);
  const diagnosis::FileSizes sizes = diagnosis::smallest_layout(result).sizes;
  CHECK(sizes.to_string() == "tp 2, dp 2, micro-batches 2");
  CHECK(diagnosis::one_of_each_class(*result.scenario->schedule).size() == 2);
  CHECK(diagnosis::folded_wrong_names(result) == std::set<std::string>{"layers.*.norm", "mismatch"});
}

TEST_CASE("a reduction that is missing is put where the least is sent, for just the parameters that lack it") {
  const CheckResult result =
      check_text(eight_layers(R"({ "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" })"));
  const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
  REQUIRE(!search.repairs.empty());
  const diagnosis::FoundRepair& best = search.repairs.front();
  CHECK(one_line(to_json(best.edits.front().edit)) ==
        R"({ "insert": { "name": "tp_all_reduce", "op": "all_reduce", "params": ["tag:norm"], "over": "tp" }, )"
        R"("after": "dp_all_reduce" })");
  CHECK(best.everywhere());
  CHECK(best.sizes >= 5);
  CHECK_FALSE(best.touches_right);
  Repair plain = best.plain();
  REQUIRE(diagnosis::verify_repair(result, plain));
  // 8 norms of 4 float32: a ring of 4 sends 2 * 3/4 of 128 bytes.
  CHECK(plain.added_bytes == 192);
}

TEST_CASE("a repair that is right by accident at the small sizes is none") {
  // 1/2 and 1/dp are one at dp 2, which nobody may conclude from.
  const CheckResult result = check_text(eight_layers(
      R"({ "name": "norms", "op": "all_reduce", "over": "tp", "params": ["tag:norm"] },
         { "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" }, { "name": "twice", "op": "scale", "by": "1 / dp" })"));
  const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
  REQUIRE(!search.repairs.empty());
  // The scale makes a mean of the sum before it, which is as it should be, so that the loss is not divided enough.
  CHECK(lines_of(search).front() == R"J({ "set": "backward", "by": "dp / sum(tokens, dp, micro_batch)" })J");
  CHECK(has(search, R"({ "drop": "twice" })"));
  unsigned number = 0;
  for (const diagnosis::FoundRepair& repair : search.repairs) {
    if (number++ % test::one_in != 0) continue;
    Repair plain = repair.plain();
    CHECK(diagnosis::verify_repair(result, plain));
  }
  // tp and dp are both 4 here, but not everywhere: such a repair stands behind all others of one edit.
  bool accident = false;
  for (const diagnosis::FoundRepair& repair : search.repairs) {
    if (repair.other_owners) break;
    CHECK((!accident || !repair.everywhere()));
    accident = accident || !repair.everywhere();
  }
  CHECK(accident);
}

TEST_CASE("two mistakes need two edits, and no pair is looked for where one edit does") {
  if (test::one_in > 1) return;  // a search like others, and a long one: the release build's
  const std::string tail =
      R"({ "name": "dp_all_reduce", "op": "all_reduce", "over": "dp", "params": ["!tag:norm"], "reduce": "avg" },
         { "name": "norms", "op": "all_reduce", "over": ["tp", "dp"], "params": ["tag:norm"], "reduce": "avg" })";
  const diagnosis::RepairSearch search = diagnosis::find_repairs(check_text(eight_layers(tail)));
  REQUIRE(!search.repairs.empty());
  CHECK(search.repairs.front().edits.size() == 2);
  diagnosis::RepairOptions single;
  single.pairs = false;
  CHECK(diagnosis::find_repairs(check_text(eight_layers(tail)), single).repairs.empty());
}

TEST_CASE("two owners, each of which is reduced to in a step of its own, are mended together") {
  const CheckResult result = check_text(
      with_batch(scenario_text(R"({ "dp": 2 })", R"([ { "name": "a", "shape": [4] }, { "name": "b", "shape": [4] } ])",
                               R"J([ { "name": "micro_batches", "op": "each", "steps": [
                            { "name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)" },
                            { "name": "first", "op": "reduce", "over": "dp", "root": 0, "params": ["a"] },
                            { "name": "second", "op": "reduce", "over": "dp", "root": 1, "params": ["b"] } ] } ])J"),
                 R"({ "micro_batches": 2 })"));
  const std::vector<std::string> lines = lines_of(diagnosis::find_repairs(result));
  const auto mends_both = [](const std::string& line) {
    return line.find(R"({ "move": "first", "after": )") != std::string::npos &&
           line.find(R"({ "move": "second", "after": )") != std::string::npos;
  };
  CHECK(std::any_of(lines.begin(), lines.end(), mends_both));
}

TEST_CASE("a deadlock is repaired as well, and a schedule that is right is left alone") {
  const diagnosis::RepairSearch search = diagnosis::find_repairs(check_text(
      two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg", "when": "rank.dp == 0" })")));
  CHECK(has(search, R"({ "set": "mean", "when": null })"));
  const diagnosis::RepairSearch none = diagnosis::find_repairs(
      check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })")));
  CHECK(none.repairs.empty());
  CHECK(none.tried == 0);
}

TEST_CASE("of repairs that do the same elsewhere one is shown before the others") {
  const diagnosis::RepairSearch search = diagnosis::find_repairs(
      check_text(eight_layers(R"({ "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" })")));
  const std::vector<diagnosis::FoundRepair> distinct = diagnosis::distinct_repairs(search.repairs);
  CHECK(distinct.size() < search.repairs.size());
  int all_reduces = 0, alike = 0;
  for (const diagnosis::FoundRepair& repair : distinct) {
    const Edit& edit = repair.edits.front().edit;
    if (edit.action == Edit::Action::insert && edit.values.op == Op::all_reduce)
      ++(repair.is_alike ? alike : all_reduces);
  }
  CHECK(all_reduces == 1);
  CHECK(alike > 0);
  const auto is_alike = [](const diagnosis::FoundRepair& repair) { return repair.is_alike; };
  const auto first = std::find_if(distinct.begin(), distinct.end(), is_alike);
  CHECK(
      std::all_of(first, distinct.end(), [&](const auto& one) { return one.is_alike || diagnosis::is_strange(one); }));
}

TEST_CASE("what is missing of a scale and its reduction is one edit") {
  const std::string steps =
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "half", "op": "scale", "by": "1 / dp", "params": ["a"] },
           { "name": "sum", "op": "all_reduce", "over": "dp", "params": ["a"] } ])";
  const CheckResult result = check_text(
      scenario_text(R"({ "dp": 2 })", R"([ { "name": "a", "shape": [8] }, { "name": "b", "shape": [8] } ])", steps));
  const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
  REQUIRE(!search.repairs.empty());
  CHECK(lines_of(search).front() == R"({ "set": "half", "params": null }{ "set": "sum", "params": null })");
  CHECK(search.repairs.front().count() == 1);
  Repair plain = search.repairs.front().plain();
  CHECK(diagnosis::verify_repair(result, plain));
  REQUIRE(result.blame.size() == 2);
  CHECK(result.blame[0].step == "half");
  CHECK(result.blame[1].step == "sum");
}

TEST_CASE("a step in one iteration is moved out of the loop, however the file put it there") {
  const auto repairs = [](const std::string& steps, const std::string& edits) {
    const std::string text = scenario_text(R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
                                           "[" + steps + "], \"edits\": [" + edits + "]");
    return diagnosis::find_repairs(check_text(with_batch(text, R"({ "micro_batches": 3 })")));
  };
  const std::string sum = R"({ "name": "sum", "op": "all_reduce", "over": "dp")";
  const std::string loop =
      R"J({ "name": "micro_batches", "op": "each", "steps": [
            { "name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)" })J";
  // As an edit says one iteration, and as a condition.
  const diagnosis::RepairSearch moved =
      repairs(loop + " ] }, " + sum + " }", R"({ "move": "sum", "after": "backward[0]" })");
  const diagnosis::RepairSearch written = repairs(loop + ", " + sum + R"(, "when": "micro_batch == 0" } ] })", "");
  for (const diagnosis::RepairSearch* search : {&moved, &written}) {
    const auto found = std::find_if(search->repairs.begin(), search->repairs.end(), [](const auto& repair) {
      return one_line(to_json(repair.edits.front().edit)) == R"({ "move": "sum", "after": "micro_batches" })";
    });
    REQUIRE(found != search->repairs.end());
    CHECK(found->count() == 1);
    CHECK(found->everywhere());
  }
  // Another iteration is nearer than none.
  CHECK(lines_of(written).front() == R"({ "set": "sum", "when": "micro_batch == last" })");
  // Between iterations, by the place: what put it into the one stays, whatever a "when" says.
  CHECK(has(moved, R"({ "set": "sum", "when": null }{ "move": "sum", "after": "backward[last]" })"));
}

TEST_CASE("steps that do the same to other parameters get one edit each, before a step is added") {
  const std::string text =
      scenario_text(R"({ "dp": 2 })", R"([ { "name": "a", "shape": [4] }, { "name": "b", "shape": [4] } ])",
                    R"J([ { "name": "micro_batches", "op": "each", "steps": [
              { "name": "backward", "op": "backward", "by": "dp / sum(tokens, dp, micro_batch)" },
              { "name": "first", "op": "reduce", "over": "dp", "root": 0, "params": ["a"], "reduce": "avg" },
              { "name": "second", "op": "reduce", "over": "dp", "root": 1, "params": ["b"], "reduce": "avg" } ] } ])J");
  const CheckResult result = check_text(with_batch(text, R"({ "micro_batches": 3 })"));
  CHECK(lines_of(diagnosis::find_repairs(result)).front() ==
        R"({ "move": "first", "after": "micro_batches" }{ "move": "second", "after": "first" })");
  REQUIRE(result.blame.size() == 2);
  CHECK(result.blame.back().step == "second");
}

TEST_CASE("a loss whose mean is over two data axes is normalized by both") {
  const std::string text = scenario_text(
      R"({ "dp": 2, "cp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
      R"J([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1 / tokens" } ] },
            { "name": "mean", "op": "all_reduce", "over": ["dp", "cp"], "reduce": "avg" } ])J");
  const diagnosis::RepairSearch search =
      diagnosis::find_repairs(check_text(with_batch(text, R"({ "micro_batches": 2 })")));
  CHECK(has(search, R"J({ "set": "backward", "by": "dp * cp / sum(tokens, cp, dp, micro_batch)" })J"));
}

TEST_CASE("a norm that counts wrongly is changed and never dropped, unless another one counts the same") {
  const std::string wrong = two_ranks(mean_step + R"(, { "name": "grad_norm", "op": "norm", "over": "dp" })");
  const CheckResult result = check_text(wrong);
  const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
  CHECK(lines_of(search).front() == R"({ "set": "grad_norm", "count": "rank.dp == 0" })");
  const std::vector<Repair> best = diagnosis::best_repairs(result, search, 3);
  REQUIRE(best.size() == 3);
  CHECK(one_line(to_json(best.front().edits.front())) == R"({ "set": "grad_norm", "count": "rank.dp == 0" })");
  CHECK(search.without_norm > 0);
  CHECK_FALSE(has(search, R"({ "drop": "grad_norm" })"));
  for (const Repair& repair : best) CHECK(repair.keeps_norms == true);

  const diagnosis::RepairSearch twice = diagnosis::find_repairs(check_text(two_ranks(
      mean_step + R"(, { "name": "grad_norm", "op": "norm" }, { "name": "grad_norm_again", "op": "norm" })")));
  REQUIRE(!twice.repairs.empty());
  CHECK(lines_of(twice).front().starts_with(R"({ "drop": "grad_norm)"));
}

TEST_CASE("what is used before it is waited for is waited for, rather than made synchronous") {
  const diagnosis::RepairSearch search = diagnosis::find_repairs(check_text(two_ranks(
      R"({ "name": "sum", "op": "all_reduce", "over": "dp", "async": true }, { "name": "mean", "op": "scale", "by": "1 / dp" })")));
  REQUIRE(!search.repairs.empty());
  CHECK(lines_of(search).front() == R"({ "insert": { "op": "wait", "for": "sum" }, "after": "sum" })");
  CHECK(has(search, R"({ "set": "sum", "async": false })"));
}

TEST_CASE("the shares of one backward are summed in its own buffer, those of other data where it costs least") {
  const auto wrong = [](const std::string& layout, const std::string& parameter) {
    return with_batch(scenario_text(layout, "[" + parameter + "]",
                                    R"J([ { "name": "micro_batches", "op": "each", "steps": [
                              { "name": "clear", "op": "zero", "buffer": "one" },
                              { "name": "backward", "op": "backward", "buffer": "one" },
                              { "name": "add", "op": "accumulate", "from": "one", "to": "grad" } ] } ])J"),
                      R"({ "micro_batches": 2, "tokens": "even", "loss": "sum" })");
  };
  const diagnosis::RepairSearch shares = diagnosis::find_repairs(
      check_text(wrong(R"({ "tp": 2 })", R"({ "name": "norm", "shape": [4], "partial": ["tp"] })")));
  REQUIRE(!shares.repairs.empty());
  CHECK(
      lines_of(shares).front() ==
      R"({ "insert": { "name": "tp_all_reduce", "op": "all_reduce", "buffer": "one", "over": "tp" }, "after": "backward" })");
  const diagnosis::RepairSearch data =
      diagnosis::find_repairs(check_text(wrong(R"({ "dp": 2 })", R"({ "name": "norm", "shape": [4] })")));
  REQUIRE(!data.repairs.empty());
  CHECK(lines_of(data).front() ==
        R"({ "insert": { "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" }, "after": "micro_batches" })");
}

TEST_CASE("a repair says for which sizes it is proved right") {
  const auto first = [](const std::string& layout, const std::string& batch, const std::string& steps) {
    const CheckResult result = check_text(with_batch(
        scenario_text(layout, R"([ { "name": "w", "shape": [8] } ])",
                      R"([ { "name": "m", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
                          steps + " ]"),
        batch));
    const std::vector<Repair> best = diagnosis::best_repairs(result, diagnosis::find_repairs(result), 1);
    REQUIRE(best.size() == 1);
    CHECK(best.front().verified == std::vector<std::string>{"symbolic", "host"});
    return best.front();
  };
  const std::string one = R"({ "micro_batches": 1, "tokens": "even" })";
  const std::string sum = R"({ "micro_batches": 2, "tokens": "even", "loss": "sum" })";
  const Repair mean = first(R"({ "dp": 2 })", one, R"({ "name": "mean", "op": "all_reduce", "over": "dp" })");
  // A sum of means over micro-batches is none.
  CHECK(mean.proof == "right only at micro_batches = 1; the smallest wrong layout has dp 1, 2 micro-batches");
  CHECK(mean.reach == Repair::Reach::some_sizes);
  const Repair twice = first(
      R"({ "dp": 2, "cp": 2 })", sum,
      R"({ "name": "sum", "op": "all_reduce", "over": ["dp", "cp"] }, { "name": "double", "op": "scale", "by": 2 })");
  CHECK(one_line(to_json(twice.edits.front())) == R"({ "drop": "double" })");
  CHECK(twice.reach == Repair::Reach::every_size);
  CHECK(twice.proof == "right for every size of cp, dp and micro_batches");
  CHECK(twice.right_sizes == twice.sizes);
}

TEST_CASE("a search that costs too much says so") {
  const CheckResult result =
      check_text(eight_layers(R"({ "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" })"));
  const Budget budget(1000);
  const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
  CHECK_FALSE(search.cut_off.empty());
}

TEST_CASE("a search that ends early says what it left out") {
  const CheckResult result =
      check_text(eight_layers(R"({ "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" })"));
  const auto left_with = [&](std::int64_t units) {
    const Budget budget(units);
    return diagnosis::find_repairs(result);
  };
  std::int64_t all = 0;
  {
    const Budget budget(Budget::search);
    const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
    CHECK((search.cut_off.empty() && search.limit == 0 && !search.not_tried.any()));
    all = budget.spent();
  }
  const diagnosis::RepairSearch early = left_with(all / 8), late = left_with(all / 2);
  CHECK((!early.cut_off.empty() && !late.cut_off.empty()));
  CHECK((early.repairs.empty() && early.not_tried.pairs));
  // Where one edit does it, two together are not looked for.
  CHECK((!late.repairs.empty() && !late.not_tried.pairs));
}

TEST_CASE("wherever a search is cut off, what it had found is whole") {
  // What is right at two micro-batches is tried at all of them, which is most of the work.
  const std::string text = with_batch(scenario_text(R"({ "dp": 2 })", R"([ { "name": "weight", "shape": [8] } ])",
                                                    R"([ { "name": "micro_batches", "op": "each", "steps": [
                      { "name": "backward", "op": "backward" }, { "name": "s", "op": "scale", "by": 2 } ] },
                      { "name": "sum", "op": "all_reduce", "over": "dp" } ])"),
                                      R"({ "micro_batches": 32, "loss": "sum" })");
  CheckOptions options;
  options.blame = false;
  const CheckResult result = check_text(text, options);
  std::int64_t all = 0;
  {
    const Budget budget(Budget::search);
    CHECK(diagnosis::find_repairs(result).cut_off.empty());
    all = budget.spent();
  }
  constexpr int parts = one_in > 1 ? 5 : 40;
  for (int part = 1; part < parts; ++part) {
    const Budget budget(all * part / parts);
    const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
    INFO(part << " of " << parts);
    CHECK_FALSE(search.cut_off.empty());
    for (const diagnosis::FoundRepair& repair : search.repairs) {
      CHECK_FALSE(repair.edits.empty());
      CHECK_FALSE(repair.plain().edits.empty());
    }
  }
}

TEST_CASE("what clips wrongly is put right and not dropped, unless something else clips the same") {
  const std::string norm = R"(, { "name": "grad_norm", "op": "norm" })";
  const auto first = [](const std::string& steps) {
    const CheckResult result = check_text(two_ranks(steps));
    return one_line(to_json(diagnosis::best_repairs(result, diagnosis::find_repairs(result), 1).front().edits.front()));
  };
  const std::string copies =
      R"(, { "name": "copies", "op": "copy", "from": "grad", "to": "list" },
           { "name": "clip", "op": "clip", "buffer": "list" })";
  CHECK(first(mean_step + norm + copies) == R"({ "set": "clip", "buffer": "grad" })");
  CHECK(first(mean_step + norm + R"(, { "name": "clip", "op": "clip", "only": { "dp": 0 } })") ==
        R"({ "set": "clip", "only": null })");
  CHECK(first(mean_step + norm + R"(, { "name": "clip", "op": "clip" }, { "name": "clip_again", "op": "clip" })")
            .starts_with(R"({ "drop": "clip)"));
}
