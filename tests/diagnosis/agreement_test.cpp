// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/agreement.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// The host's finding about `output` on rank 2: of 150 elements it owns [0, 115), wrong in [40, 115).
HostBuffer& output_on_rank_2(CheckResult& result) {
  HostResult& numbers = numbers_in(result);
  for (HostBuffer& buffer : numbers.buffers) {
    if (buffer.rank == 2 && !buffer.right) return buffer;
  }
  FAIL("the host finds nothing wrong on rank 2");
  return numbers.buffers.front();
}

}  // namespace

TEST_CASE("engines that find the same agree") {
  const CheckResult result = check_text(megatron_844());
  CHECK(diagnosis::find_disagreement(result, {}).empty());
}

TEST_CASE("a buffer that only one engine finds wrong is a disagreement that says how to replay it") {
  CheckResult result = check_text(megatron_844());
  result.file = "case.json";
  output_on_rank_2(result).right = true;
  CheckOptions options;
  options.seed = 7;
  const std::string sentence = diagnosis::find_disagreement(result, options);
  CHECK(sentence.find("output on rank 2 is wrong for symbolic and right for host") != std::string::npos);
  CHECK(sentence.find("lockstep check case.json --seed 7 -v") != std::string::npos);
}

TEST_CASE("both engines take \"on\": \"owned\" of a local step for what the rank owns, and nothing else") {
  // Each of the two ranks owns half and hands on that half; what it does to the rest would be added to the other's.
  const auto check = [](const std::string& result, const std::string& own_steps) {
    return check_text(
        R"json({ "lockstep": 1, "layout": { "tp": 2 }, "model": { "parameters": [ { "name": "w", "shape": [4] } ] },
      "batch": { "micro_batches": 1 }, "schedule": { "result": ")json" +
        result + R"json(", "steps": [
        { "name": "own", "op": "own", "over": "tp" }, )json" +
        own_steps + R"json(,
        { "name": "gather", "op": "all_reduce", "over": "tp", "buffer": ")json" +
        result + R"json(" },
        { "name": "all", "op": "own", "over": [] },
        { "name": "mean", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)", "buffer": ")json" +
        result + R"json(" } ] } })json");
  };
  const std::string backward =
      R"json({ "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] })json";
  const auto moved = [&](const std::string& op) {
    return backward + R"json(, { "name": "move", "op": ")json" + op +
           R"json(", "from": "grad", "to": "other", "on": "owned" })json";
  };
  const std::string backward_there =
      R"json({ "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "on": "owned" } ] })json";
  for (const CheckResult& result :
       {check("other", moved("copy")), check("other", moved("accumulate")), check("grad", backward_there)}) {
    CHECK(result.disagreement.empty());
    CHECK(result.verdict == Verdict::match);
  }
}

TEST_CASE("rows of what is owned are as long as the tensor's, also where a part of a row is owned") {
  const CheckResult result = check_text(
      scenario_text(R"({ "dp_shard": 2, "dp_replicate": 2 })", R"([ { "name": "w", "shape": [3, 2] } ])",
                    R"([ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                    { "name": "inside", "op": "reduce_scatter", "over": "dp_shard" },
                    { "name": "between", "op": "reduce_scatter", "over": "dp_replicate", "on": "owned",
                      "geometry": { "kind": "rows" } },
                    { "name": "mean", "op": "scale", "by": "1 / dp" } ])"));
  CHECK(result.verdict == Verdict::match);
}

TEST_CASE("a sample may miss wrong elements where others of the buffer are right") {
  CheckResult result = check_text(megatron_844());
  output_on_rank_2(result).right = true;
  numbers_in(result).sampled = true;
  CHECK(diagnosis::find_disagreement(result, {}).empty());
}

TEST_CASE("a sample may not find anything wrong where all is right, nor right where all is wrong") {
  CheckResult result = check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"));
  REQUIRE(result.verdict == Verdict::mismatch);
  numbers_in(result).sampled = true;
  CHECK(diagnosis::find_disagreement(result, {}).empty());
  numbers_in(result).buffers.front().right = true;
  CHECK_FALSE(diagnosis::find_disagreement(result, {}).empty());

  CheckResult right = check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })"));
  numbers_in(right).sampled = true;
  numbers_in(right).buffers.front().right = false;
  CHECK_FALSE(diagnosis::find_disagreement(right, {}).empty());
}

TEST_CASE("what was not replayed at all counts neither for nor against") {
  CheckResult result = check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"));
  REQUIRE(result.verdict == Verdict::mismatch);
  for (HostBuffer& buffer : numbers_in(result).buffers) {
    buffer.right = true;
    buffer.replayed = false;
  }
  CHECK(diagnosis::find_disagreement(result, {}).empty());
  numbers_in(result).buffers.back().replayed = true;
  CHECK_FALSE(diagnosis::find_disagreement(result, {}).empty());
  // In an earlier step than the host's last, too.
  numbers_in(result).step = symbolic_in(result).step + 1;
  CHECK_FALSE(diagnosis::find_disagreement(result, {}).empty());
  numbers_in(result).buffers.back().replayed = false;
  CHECK(diagnosis::find_disagreement(result, {}).empty());
}

TEST_CASE("engines that find something wrong after different optimizer steps disagree, and it is said which does") {
  CheckResult result = check_text(megatron_844());
  symbolic_in(result).step = 1;
  CHECK(diagnosis::find_disagreement(result, {})
            .find("host finds wrong values after optimizer step 0, symbolic none before step 1") != std::string::npos);
  symbolic_in(result).step = 0;
  numbers_in(result).step = 1;
  CHECK(diagnosis::find_disagreement(result, {})
            .find("symbolic finds wrong values after optimizer step 0, host none before step 1") != std::string::npos);
  numbers_in(result).sampled = true;  // a sample may have missed them
  CHECK(diagnosis::find_disagreement(result, {}).empty());
}

TEST_CASE("hashes of host and mpi must be equal to the bit, and so must everything else about the numbers") {
  CheckResult result = check_text(megatron_844());
  result.file = "case.json";
  find_the_same(result, "mpi");
  engine_in(result, "mpi").processes = 3;
  CHECK(diagnosis::find_disagreement(result, {}).empty());
  const auto differs = [&](const std::function<void(HostResult&)>& change) {
    CheckResult changed = result;
    change(numbers_in(changed, "mpi"));
    return diagnosis::find_disagreement(changed, {});
  };
  const std::string sentence = differs([](HostResult& mpi) { mpi.buffers.back().hash.lanes[1] ^= 1; });
  CHECK(sentence.find("output on rank 3 is") != std::string::npos);
  CHECK(sentence.find(
            "for mpi. Replay it with: lockstep check case.json --engine symbolic,host,mpi --ranks 3 --seed 0") !=
        std::string::npos);
  CHECK_FALSE(differs([](HostResult& mpi) { mpi.buffers.back().expected_hash.lanes[0] ^= 1; }).empty());
  CHECK_FALSE(differs([](HostResult& mpi) { mpi.reference.back().lanes[0] ^= 1; }).empty());
  CHECK_FALSE(differs([](HostResult& mpi) { mpi.elements += 1; }).empty());
  CHECK_FALSE(differs([](HostResult& mpi) { mpi.step += 1; }).empty());
  CHECK_FALSE(differs([](HostResult& mpi) { mpi.buffers.pop_back(); }).empty());
}

TEST_CASE("the mpi engine is held against the formulas where the host engine did not run") {
  CheckResult result = check_text(megatron_844());
  output_on_rank_2(result).right = true;
  find_the_same(result, "mpi");
  forget(result, "host");
  CHECK(diagnosis::find_disagreement(result, {}).find("output on rank 2 is wrong for symbolic and right for mpi") !=
        std::string::npos);
}

namespace {

/// A small model whose data-parallel all-reduce is missing, with all three engines.
CheckResult unreduced_model(const std::string& edits = R"([ { "drop": "dp_all_reduce" } ])",
                            const std::string& layout = R"("dp": 2)", const std::string& of_model = "") {
  CheckOptions options;
  options.transformer = true;
  CheckResult result = check_text(
      R"json({ "lockstep": 1, "layout": {)json" + layout + R"json(}, "model": { "preset": "llama", "layers": 1,
      "hidden": 8, "heads": 2, "query_groups": 2, "ffn": 8, "vocab": 16)json" +
          of_model + R"json( }, "schedule": { "framework": "megatron", "options": { "calculate_per_token_loss": true },
      "edits": )json" +
          edits + " } }",
      options);
  result.file = "case.json";
  forget(result, "host");  // so that there is nothing else to disagree with
  return result;
}

/// A buffer that is wrong and that every contribution stands out in.
TransformerBuffer& wrong_and_clear(CheckResult& result) {
  for (TransformerBuffer& buffer : transformer_in(result).buffers) {
    if (!buffer.right && !buffer.clear.empty() && buffer.pieces.front().terms) return buffer;
  }
  FAIL("the transformer finds nothing wrong");
  return transformer_in(result).buffers.front();
}

}  // namespace

TEST_CASE("the transformer finds what the symbolic engine finds, coefficients and all") {
  const CheckResult result = unreduced_model();
  CHECK(result.verdict == Verdict::mismatch);
  CHECK(result.disagreement.empty());
}

TEST_CASE("a transformer that finds another buffer wrong disagrees, and it is said how to replay it") {
  CheckResult result = unreduced_model();
  TransformerBuffer& buffer = wrong_and_clear(result);
  buffer.right = true;
  buffer.pieces.clear();
  const std::string sentence = diagnosis::find_disagreement(result, {});
  CHECK(sentence.find("is wrong for symbolic and right for transformer") != std::string::npos);
  CHECK(sentence.find("lockstep check case.json --engine symbolic,transformer --seed 0 -v") != std::string::npos);
  // Where nothing could have been seen, nothing is missing.
  buffer.clear.clear();
  CHECK(diagnosis::find_disagreement(result, {}).empty());

  CheckResult right = unreduced_model("[]");
  REQUIRE(right.verdict == Verdict::match);
  transformer_in(right).buffers.back().right = false;
  CHECK(diagnosis::find_disagreement(right, {}).find("is right for symbolic and wrong for transformer") !=
        std::string::npos);
}

TEST_CASE("a transformer that measures other coefficients disagrees") {
  CheckResult result = unreduced_model();
  TransformerPiece& piece = wrong_and_clear(result).pieces.front();
  const Rational right = piece.terms->front().coefficient;
  piece.terms->front().coefficient = Rational(17, 19);
  const std::string sentence = diagnosis::find_disagreement(result, {});
  INFO(sentence);
  CHECK(sentence.find(" for symbolic and 17/19 g0.0 + ") != std::string::npos);
  CHECK(sentence.find(" for transformer. Replay it with: lockstep check case.json --engine symbolic,transformer") !=
        std::string::npos);
  piece.terms->front().coefficient = right;
  CHECK(diagnosis::find_disagreement(result, {}).empty());
  const Term first = piece.terms->front();
  piece.terms->erase(piece.terms->begin());
  CHECK_FALSE(diagnosis::find_disagreement(result, {}).empty());
  piece.unseen.push_back(first);  // no one could have measured it
  CHECK(diagnosis::find_disagreement(result, {}).empty());
}

TEST_CASE("a transformer that cannot go on, or is wrong in an earlier step, disagrees") {
  CheckResult result = unreduced_model();
  symbolic_in(result).step = 1;
  CHECK(diagnosis::find_disagreement(result, {})
            .find("transformer finds wrong values after optimizer step 0, symbolic none before step 1") !=
        std::string::npos);
  symbolic_in(result).step = 0;
  // One that passed the step in which the symbolic engine finds something, and could have seen it.
  CheckResult late = unreduced_model();
  transformer_in(late).step = 1;
  transformer_in(late).clear_before.resize(1);
  for (const TransformerBuffer& buffer : transformer_in(late).buffers)
    transformer_in(late).clear_before.front().push_back(buffer.clear);
  CHECK(diagnosis::find_disagreement(late, {}).find(
            "symbolic finds wrong values after optimizer step 0, transformer none before step 1") != std::string::npos);
  for (Intervals& clear : transformer_in(late).clear_before.front()) clear.clear();
  CHECK(diagnosis::find_disagreement(late, {}).empty());
  transformer_in(result).failure = TransformerFailure{true, "2 ranks wait", {}};
  CHECK(diagnosis::find_disagreement(result, {}).find("the transformer's ranks do not find together: 2 ranks wait") !=
        std::string::npos);
}

TEST_CASE("edits of the model and untrue placements are no disagreement of the engines") {
  const CheckResult edited = unreduced_model("[]", R"("tp": 2)", R"(, "edits": [ { "drop": "mlp.copy_to_tp" } ])");
  CHECK(edited.verdict == Verdict::mismatch);
  CHECK(edited.disagreement.empty());
  CHECK(edited.notes.empty());
  // The schedule does what is right for a norm that every tp rank computes whole, and this one's are shares.
  const CheckResult untrue = unreduced_model(
      R"json([ { "parameter": "*layernorm.weight", "partial": [] }, { "drop": "norm_all_reduce" } ])json",
      R"("tp": 2, "sequence_parallel": true)");
  CHECK(untrue.verdict == Verdict::mismatch);
  CHECK(symbolic_of(untrue)->match);
  CHECK(untrue.disagreement.empty());
  REQUIRE(untrue.notes.size() == 1);
  CHECK(untrue.notes.front().find("`lockstep placements` compares the two") != std::string::npos);
}

TEST_CASE("with a list of model edits, be it empty, the transformer runs by itself") {
  const auto check = [](const std::string& of_model) {
    return check_text(R"json({ "lockstep": 1, "layout": { "dp": 2 }, "model": { "preset": "llama", "layers": 1,
      "hidden": 8, "heads": 2, "query_groups": 2, "ffn": 8, "vocab": 16)json" +
                      of_model + R"json( }, "schedule": { "framework": "megatron" } })json");
  };
  CHECK(transformer_of(check("")) == nullptr);
  CHECK(transformer_of(check(R"(, "edits": [])")) != nullptr);
}

TEST_CASE("the cuda engine is held against the formulas, against host and against mpi") {
  CheckResult result = check_text(megatron_844());
  result.file = "case.json";
  find_the_same(result, "cuda");
  CHECK(diagnosis::find_disagreement(result, {}).empty());
  numbers_in(result, "cuda").buffers.back().hash.lanes[1] ^= 1;
  const std::string sentence = diagnosis::find_disagreement(result, {});
  CHECK(sentence.find("for host and") != std::string::npos);
  CHECK(sentence.find("for cuda. Replay it with: lockstep check case.json --engine symbolic,host,cuda --seed 0") !=
        std::string::npos);
  find_the_same(result, "mpi");
  engine_in(result, "mpi").processes = 2;
  forget(result, "host");
  CHECK(diagnosis::find_disagreement(result, {}).find("--engine symbolic,mpi,cuda --ranks 2 --seed 0") !=
        std::string::npos);
  forget(result, "mpi");
  CHECK(diagnosis::find_disagreement(result, {}).empty());  // hashes that nobody else has
  for (HostBuffer& buffer : numbers_in(result, "cuda").buffers) buffer.right = true;
  CHECK(diagnosis::find_disagreement(result, {}).find("for symbolic and right for cuda") != std::string::npos);
}

TEST_CASE("what random schedules found: coefficients of a contribution that two backward steps add") {
  // Two backward steps with other factors: a coefficient is relative to what the last of them adds, for both engines.
  const CheckResult twice = unreduced_model(
      R"json([ { "duplicate": "backward" }, { "set": "backward", "by": "7/5" }, { "drop": "dp_all_reduce" } ])json");
  CHECK(twice.verdict == Verdict::mismatch);
  CHECK(twice.disagreement.empty());
}
