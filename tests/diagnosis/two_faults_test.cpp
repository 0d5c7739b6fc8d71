// SPDX-License-Identifier: Apache-2.0
// A norm that counts a part of the model several times, one step that is wrong in two ways, and two steps that are.
#include <fmt/format.h>

#include "src/diagnosis/repairs.h"
#include "src/diagnosis/verify_repair.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// With uneven tokens, and what sums and divides by them behind the backward.
std::string faulty_text(const std::string& layout, const std::string& parameters, const std::string& steps) {
  return fmt::format(
      R"({{ "lockstep": 1, "name": "small", "layout": {}, "model": {{ "parameters": [{}] }}, "schedule": {{ "steps": [
           {{ "name": "micro_batches", "op": "each", "steps": [ {{ "name": "backward", "op": "backward" }} ] }}, {} ] }} }})",
      layout, parameters, steps);
}

const std::string sum_of_all = R"({ "name": "ar", "op": "all_reduce", "over": "dp" }, )",
                  by_tokens = R"J({ "name": "tok", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)" }, )J",
                  clip_last = R"({ "name": "clip", "op": "clip" })",
                  two_wholes = R"({ "name": "a", "shape": [8] }, { "name": "b", "shape": [8] })";

struct Diagnosed {
  std::string blamed;  ///< steps
  std::string repair;  ///< the first, an edit a line
  std::vector<Repair> repairs = {};
};

Diagnosed diagnosed(const std::string& text) {
  Diagnosed found;
  const CheckResult result = check_text(text);
  REQUIRE(result.verdict == Verdict::mismatch);
  for (const Blame& blame : result.blame) found.blamed += (found.blamed.empty() ? "" : " ") + blame.step;
  found.repairs = diagnosis::best_repairs(result, diagnosis::find_repairs(result), 3);
  if (found.repairs.empty()) return found;
  CHECK(found.repairs.front().keeps_norms == true);
  for (const Edit& edit : found.repairs.front().edits) found.repair += one_line(to_json(edit)) + "\n";
  return found;
}

/// What cuts the step "norm" in two.
std::string cut(const std::string& once, const std::string& several, const std::string& over,
                const std::string& count) {
  return fmt::format(
      R"({{ "set": "norm", "params": ["{}"] }}
{{ "insert": {{ "name": "norm_replicated", "op": "norm", "over": {}, "params": ["{}"], "count": "{}" }}, "after": "norm" }}
)",
      once, over, several, count);
}

}  // namespace

TEST_CASE("a norm that counts a part of the model on several ranks is cut in two, whatever keeps the parts apart") {
  // Both stages hold the tied embedding.
  const Diagnosed tied = diagnosed(faulty_text(
      R"({ "dp": 2, "pp": 2 })",
      R"({ "name": "emb", "shape": [8], "stage": 0, "tied": "w" }, { "name": "l", "shape": [8], "stage": 0 },
         { "name": "m", "shape": [8], "stage": 1 }, { "name": "head", "shape": [8], "stage": 1, "tied": "w" })",
      R"({ "name": "e", "op": "all_reduce", "over": { "pp": ["first", "last"] }, "params": "tied:w" }, )" + sum_of_all +
          by_tokens + R"({ "name": "norm", "op": "norm", "over": "pp" }, )" + clip_last));
  CHECK(tied.blamed == "norm");
  CHECK(tied.repair == cut("!tied:w", "tied:w", "\"pp\"", "rank.pp == 0"));
  // Each rank has a slice of the one, and all of the other.
  const Diagnosed slices =
      diagnosed(faulty_text(R"({ "dp": 2 })", two_wholes,
                            R"({ "name": "rs", "op": "reduce_scatter", "over": "dp", "params": "a" },
         { "name": "ar", "op": "all_reduce", "over": "dp", "params": "b" }, )" +
                                by_tokens + R"({ "name": "norm", "op": "norm", "over": "dp" }, )" + clip_last));
  CHECK(slices.blamed == "norm");
  CHECK(slices.repair == cut("!b", "b", "\"dp\"", "rank.dp == 0"));
  CHECK_FALSE(slices.repairs.front().other_owners);
  // Other ranks hold other experts.
  const Diagnosed experts =
      diagnosed(faulty_text(R"({ "dp": 4, "ep": 2 })",
                            R"({ "name": "b", "shape": [8] },
         { "name": "e0", "shape": [4, 8], "tags": ["expert"], "shard": { "ep": 0 }, "dispatch": ["ep"] })",
                            R"({ "name": "ar", "op": "all_reduce", "over": "dp", "params": "!tag:expert" },
         { "name": "ear", "op": "all_reduce", "over": "edp", "params": "tag:expert" }, )" +
                                by_tokens + R"({ "name": "norm", "op": "norm", "over": "ep" })"));
  CHECK(experts.blamed == "norm");
  CHECK(experts.repair == cut("tag:expert", "!tag:expert", "\"ep\"", "rank.ep == 0"));
  // Of a list of names, along both axes at once.
  const Diagnosed named = diagnosed(
      faulty_text(R"({ "dp": 2, "tp": 2 })", two_wholes + R"(, { "name": "c", "shape": [8], "shard": { "tp": 0 } })",
                  R"({ "name": "rs", "op": "reduce_scatter", "over": "dp", "params": "!a" },
         { "name": "ar", "op": "all_reduce", "over": "dp", "params": "a" }, )" +
                      by_tokens +
                      R"({ "name": "norm", "op": "norm", "over": ["tp", "dp"], "params": ["a", "c"] },
             { "name": "of_b", "op": "norm", "over": "dp", "params": "b" })"));
  CHECK(named.repair ==
        R"({ "set": "norm", "params": ["a", "c", "!a"] }
{ "insert": { "name": "norm_replicated", "op": "norm", "over": ["tp", "dp"], "params": ["a"], "count": "rank.tp == 0 and rank.dp == 0" }, "after": "norm" }
)");
}

TEST_CASE("what a norm counts of the rank's own shard is counted over all shards, in a norm of its own") {
  const Diagnosed found = diagnosed(faulty_text(
      R"({ "dp": 2, "tp": 2 })",
      R"({ "name": "up.weight", "shape": [8], "shard": { "tp": 0 } }, { "name": "norm.weight", "shape": [4] })",
      sum_of_all + by_tokens + R"({ "name": "norm", "op": "norm" }, )" + clip_last));
  CHECK(found.blamed == "norm");
  CHECK(found.repair ==
        R"({ "set": "norm", "params": ["!shard:tp"] }
{ "insert": { "name": "norm_sharded", "op": "norm", "params": ["shard:tp"], "over": "tp" }, "after": "norm" }
)");
}

TEST_CASE("a norm that is right with another condition is not cut in two") {
  const Diagnosed found = diagnosed(
      faulty_text(R"({ "dp": 1, "pp": 2 })",
                  R"({ "name": "t", "shape": [8], "stage": "all" }, { "name": "l", "shape": [8], "stage": 0 })",
                  R"({ "name": "e", "op": "all_reduce", "over": "pp", "params": "t" }, )" + by_tokens +
                      R"({ "name": "norm", "op": "norm", "over": "pp" })"));
  CHECK(found.repair == "{ \"set\": \"norm\", \"count\": \"rank.pp == 0\" }\n");
  CHECK(found.repairs.size() > 1);
}

TEST_CASE("a sum that is missing and a norm that has to be cut in two are found together") {
  const Diagnosed found =
      diagnosed(faulty_text(R"({ "dp": 2, "tp": 2 })",
                            R"({ "name": "a", "shape": [8], "shard": { "tp": 0 } }, { "name": "b", "shape": [8] },
         { "name": "c", "shape": [8], "partial": ["tp"] })",
                            R"({ "name": "rs", "op": "reduce_scatter", "over": "dp" }, )" + by_tokens +
                                R"({ "name": "norm", "op": "norm", "over": ["tp", "dp"] })"));
  // What the norm counts twice is more than what the sum is missing of.
  CHECK(found.blamed == "norm tp_all_reduce");
  CHECK(
      found.repair ==
      cut("shard:tp", "!shard:tp", R"(["tp", "dp"])", "rank.tp == 0") +
          R"({ "insert": { "name": "tp_all_reduce", "op": "all_reduce", "params": ["c"], "over": "tp" }, "after": "rs" })"
          "\n");
}

TEST_CASE("a wrong value and a wrong norm are two faults behind a clip as well, which is wrong with either") {
  const Diagnosed found =
      diagnosed(faulty_text(R"({ "dp": 2, "cp": 2 })", two_wholes,
                            R"({ "name": "ar", "op": "all_reduce", "over": ["dp", "cp"] }, )" + by_tokens +
                                R"({ "name": "norm", "op": "norm", "over": "cp" }, )" + clip_last));
  CHECK(found.blamed == "tok norm");
  CHECK(found.repair ==
        R"J({ "set": "tok", "by": "1 / sum(tokens, cp, dp, micro_batch)" }
{ "set": "norm", "count": "rank.cp == 0" }
)J");
  for (const Repair& repair : found.repairs) CHECK_FALSE(repair.edits.back().changes("combine"));
}

TEST_CASE("one step that is wrong in two ways is changed in both, rather than gone around by a new one") {
  const Diagnosed left_out =
      diagnosed(faulty_text(R"({ "dp": 2 })", two_wholes,
                            R"({ "name": "ar", "op": "all_reduce", "over": "dp", "params": "a", "reduce": "avg" }, )" +
                                by_tokens.substr(0, by_tokens.rfind(','))));
  CHECK(left_out.blamed == "ar");
  CHECK(left_out.repair == "{ \"set\": \"ar\", \"reduce\": \"sum\", \"params\": null }\n");
  const Diagnosed counted = diagnosed(
      faulty_text(R"({ "dp": 2 })", two_wholes,
                  sum_of_all + by_tokens +
                      R"({ "name": "norm", "op": "norm", "count": "rank.dp == 0", "params": "!a" }, )" + clip_last));
  CHECK(counted.blamed == "norm");
  CHECK(counted.repair == "{ \"set\": \"norm\", \"params\": null, \"count\": null }\n");
}

TEST_CASE("two steps that are wrong in one way each are not taken for one that is wrong in two") {
  const Diagnosed found =
      diagnosed(faulty_text(R"({ "dp": 2 })", two_wholes,
                            R"({ "name": "ar", "op": "all_reduce", "over": "dp", "params": "a" }, )" + by_tokens +
                                R"({ "name": "x", "op": "scale", "by": "2", "params": "a" })"));
  CHECK(found.repair == "{ \"drop\": \"x\" }\n{ \"set\": \"ar\", \"params\": null }\n");
}

TEST_CASE("of two edits that say the same key of a step the last one is told") {
  const Diagnosed found = diagnosed(faulty_text(
      R"({ "dp": 4, "ep": 2 })",
      two_wholes +
          R"(, { "name": "e0", "shape": [4, 8], "tags": ["expert"], "shard": { "ep": 0 }, "dispatch": ["ep"] })",
      R"J({ "name": "ar", "op": "all_reduce", "over": "dp", "params": "!tag:expert" },
          { "name": "ear", "op": "all_reduce", "over": "edp", "params": "a" },
          { "name": "tok", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)", "params": "a" },
          { "name": "norm1", "op": "norm", "params": "!tag:expert" },
          { "name": "norm2", "op": "norm", "params": "tag:expert", "over": "ep" }, )J" +
          clip_last));
  CHECK(found.blamed == "tok ear");
  CHECK(found.repair == "{ \"set\": \"tok\", \"params\": null }\n{ \"set\": \"ear\", \"params\": [\"tag:expert\"] }\n");
}

TEST_CASE("tokens are counted over all axes where on some ranks the factor is one of the sizes") {
  const Diagnosed found = diagnosed(faulty_text(R"({ "dp": 2, "cp": 2 })", two_wholes,
                                                R"J({ "name": "ar", "op": "all_reduce", "over": ["dp", "cp"] },
          { "name": "tok", "op": "scale", "by": "1 / sum(tokens, micro_batch)" })J"));
  CHECK(found.blamed == "tok");
  CHECK(found.repair == "{ \"set\": \"tok\", \"by\": \"1 / sum(tokens, cp, dp, micro_batch)\" }\n");
}

TEST_CASE("a norm that comes to count nothing stands behind one that counts what is missing") {
  const Diagnosed found = diagnosed(faulty_text(
      R"({ "dp": 2, "pp": 2 })",
      R"({ "name": "emb", "shape": [8], "stage": 0, "tied": "w" }, { "name": "l", "shape": [8], "stage": 0 },
         { "name": "m", "shape": [8], "stage": 1 }, { "name": "head", "shape": [8], "stage": -1, "tied": "w" })",
      R"({ "name": "e", "op": "all_reduce", "over": { "pp": ["first", "last"] }, "params": "tied:w" }, )" + sum_of_all +
          by_tokens +
          R"({ "name": "norm1", "op": "norm", "params": "!head", "over": "pp" },
             { "name": "norm2", "op": "norm", "params": "tied:w", "over": "pp", "count": "rank.pp == 0" }, )" +
          clip_last));
  CHECK(found.blamed == "norm1");
  CHECK(found.repair == "{ \"set\": \"norm1\", \"params\": [\"!head\", \"!tied:w\"] }\n");
}

TEST_CASE("beside another fault a factor is looked for where it is looked for alone") {
  const Diagnosed found =
      diagnosed(faulty_text(R"({ "dp": 2 })", two_wholes,
                            R"({ "name": "r", "op": "reduce", "root": 0, "over": "dp", "reduce": "avg" }, )" +
                                by_tokens + R"({ "name": "norm", "op": "norm" })"));
  CHECK(found.blamed == "tok norm");
  CHECK(found.repair.starts_with(R"J({ "set": "tok", "by": "dp / sum(tokens, dp, micro_batch)" })J"));
}
