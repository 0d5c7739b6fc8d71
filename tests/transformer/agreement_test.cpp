// SPDX-License-Identifier: Apache-2.0
// The transformer engine against the symbolic one, on schedules that are wrong: the same buffers, and the coefficients
// that least squares finds in real gradients are those of the formulas.
#include <algorithm>

#include "tests/catch.h"
#include "tests/transformer/small_scenario.h"

using namespace lockstep;
using namespace lockstep::transformer::test;

namespace {

struct Compared {
  int wrong = 0;     ///< buffers
  int formulas = 0;  ///< pieces whose coefficients were found
  int undetermined = 0;
};

bool is_wrong(const BufferResult& buffer) {
  for (const PieceResult& piece : buffer.pieces) {
    if (!piece.right) return true;
  }
  return false;
}

std::string print(const std::vector<Term>& terms, const std::vector<Term>& unseen) {
  std::string text;
  for (const Term& term : terms) {
    const auto same = [&](const Term& other) {
      return other.rank == term.rank && other.micro_batch == term.micro_batch && other.site_use == term.site_use;
    };
    if (std::any_of(unseen.begin(), unseen.end(), same)) continue;
    text += " " + term.coefficient.to_string() + " g" + std::to_string(term.rank) + "." +
            std::to_string(term.micro_batch) + "/" + std::to_string(term.site_use);
  }
  return text;
}

Compared compare(const Run& run) {
  if (run.result.failure) FAIL(run.result.failure->what);
  REQUIRE(run.symbolic.buffers.size() == run.result.buffers.size());
  REQUIRE(run.symbolic.step == run.result.step);
  Compared compared;
  for (std::size_t i = 0; i < run.result.buffers.size(); ++i) {
    const BufferResult& exact = run.symbolic.buffers[i];
    const TransformerBuffer& found = run.result.buffers[i];
    INFO(run.name_of(found.rank, found.buffer) << ": error " << found.error);
    CHECK(found.right != is_wrong(exact));
    // A wrong one is far beyond any rounding.
    if (!found.right) CHECK(found.error > 1e4);
    compared.wrong += found.right ? 0 : 1;
    for (const TransformerPiece& piece : found.pieces) {
      if (piece.right) continue;
      if (!piece.terms) {
        ++compared.undetermined;
        continue;
      }
      for (const PieceResult& stretch : exact.pieces) {
        if (stretch.elements.end <= piece.elements.begin || piece.elements.end <= stretch.elements.begin) continue;
        INFO("elements from " << piece.elements.begin);
        CHECK(print(*piece.terms, {}) == print(run.engine.terms(stretch.form, found.rank, found.buffer), piece.unseen));
        ++compared.formulas;
      }
    }
  }
  return compared;
}

}  // namespace

TEST_CASE("a mean of means over uneven tokens: every parameter on every rank, with its coefficients") {
  const Run run(R"("dp": 2)", gpt2, R"("framework": "megatron")", R"("micro_batches": 2, "loss": "token_mean")");
  const Compared compared = compare(run);
  CHECK(compared.wrong == static_cast<int>(run.result.buffers.size()));
  CHECK(compared.formulas == compared.wrong);
}

TEST_CASE("norms that are not reduced over tp under sequence parallelism") {
  const Run run(R"("tp": 2, "dp": 2, "sequence_parallel": true)", llama,
                R"("framework": "megatron", "options": { "calculate_per_token_loss": true },
                   "edits": [ { "drop": "norm_all_reduce" } ])");
  const Compared compared = compare(run);
  CHECK(compared.wrong == 5 * 4);
  CHECK(compared.formulas == compared.wrong);
  CHECK(run.result.smallest_wrong > 1e6);
  CHECK(run.result.largest_right < 0.25);
}

TEST_CASE("the tied embedding after the reduce-scatter, cut differently (Megatron 844), by elements") {
  const Run run(R"("pp": 2, "dp": 2)", gpt2,
                R"("framework": "megatron", "options": { "use_distributed_optimizer": true,
                   "ddp_average_in_collective": true, "calculate_per_token_loss": false },
                   "edits": [ { "set": "dp_reduce_scatter", "geometry": { "separate": [] } } ])",
                R"("micro_batches": 1, "tokens": "even")");
  const Compared compared = compare(run);
  CHECK(compared.wrong > 0);
  CHECK(compared.formulas > 0);
}

TEST_CASE("no reduction over dp, experts reduced over the wrong group, one micro-batch lost") {
  CHECK(compare(Run(R"("dp": 3)", llama,
                    R"("framework": "megatron", "options": { "calculate_per_token_loss": true },
                       "edits": [ { "drop": "dp_all_reduce" } ])"))
            .formulas > 0);
  CHECK(compare(Run(R"("dp": 4, "ep": 2)", moe,
                    R"("framework": "megatron", "options": { "calculate_per_token_loss": true },
                       "edits": [ { "set": "expert_dp_all_reduce", "over": "dp" } ])"))
            .wrong > 0);
  CHECK(compare(Run(R"("dp": 2)", llama,
                    R"("framework": "megatron", "options": { "calculate_per_token_loss": true },
                       "edits": [ { "insert": { "name": "again", "op": "zero" }, "after": "backward[0]" } ])"))
            .formulas > 0);
}

// Of ranks that share tokens each has a factor of its own, or none: the others' gradients do not change with it.
TEST_CASE("a backward that some ranks are left out of, or take part in with factors of their own") {
  const auto edited = [](const std::string& layout, const std::string& model, const std::string& edit) {
    const Run run(layout, model, megatron + R"(, "edits": [ { "set": "backward", )" + edit + " } ]");
    INFO(layout << ", " << edit);
    const Compared compared = compare(run);
    CHECK(compared.wrong > 0);
    CHECK(compared.wrong < static_cast<int>(run.result.buffers.size()));
    CHECK(compared.formulas > 0);
    CHECK(compared.undetermined == 0);
  };
  edited(R"("tp": 2)", gpt2, R"("only": { "tp": [0] })");
  edited(R"("tp": 2)", gpt2, R"("by": "1 + rank.tp")");
  edited(R"("pp": 2)", llama, R"("only": { "pp": [0] })");
  edited(R"("pp": 2)", llama, R"("by": "1 + rank.pp")");
  edited(R"("tp": 2, "dp": 2)", llama, R"x("when": "rank.tp + rank.dp > 0", "by": "1 / (rank.tp + rank.dp)")x");
}

TEST_CASE("Ulysses: a sum over all ranks that share tokens is right, and one over dp alone is not") {
  const auto steps = [](const std::string& axes) {
    return R"x("steps": [ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward",
        "by": "1 / sum(tokens, dp, cp, sp, micro_batch)" } ] },
      { "name": "all_reduce", "op": "all_reduce", "over": )x" +
           axes + " } ]";
  };
  const std::string untied = gpt2 + R"(, "tied_embeddings": false)";
  for (const char* layout : {R"("sp": 2)", R"("sp": 2, "dp": 2)", R"("sp": 2, "cp": 2)", R"("sp": 2, "tp": 2)"}) {
    INFO(layout);
    const Run right(layout, untied, steps(R"(["dp", "cp", "sp"])"));
    CHECK(compare(right).wrong == 0);
    CHECK(right.result.match);
  }
  const Run wrong(R"("sp": 2, "dp": 2)", untied, steps(R"("dp")"));
  const Compared compared = compare(wrong);
  CHECK(compared.wrong == static_cast<int>(wrong.result.buffers.size()));
  CHECK(compared.formulas > compared.wrong / 2);
}

TEST_CASE("several optimizer steps") {
  const Run run(R"("dp": 2)", llama,
                R"("framework": "megatron", "options": { "calculate_per_token_loss": true },
                   "edits": [ { "set": "zero", "when": "step == 0" } ])",
                R"("micro_batches": 2, "steps": 2)");
  CHECK(run.result.step == 1);
  CHECK(compare(run).wrong > 0);
}

TEST_CASE("the coefficients of two losses are found apart") {
  const auto steps = [](const std::string& aux) {
    return R"x("steps": [ { "name": "micro_batches", "op": "each", "steps": [
        { "name": "backward", "op": "backward", "uses": ["main"], "by": "1 / sum(tokens, dp, cp, micro_batch)" },
        { "name": "backward_aux", "op": "backward", "uses": ["aux"], "by": ")x" +
           aux + R"x(" } ] },
      { "name": "all_reduce", "op": "all_reduce", "over": ["dp", "cp"] } ])x";
  };
  const std::string model = moe + R"(, "moe_aux_loss_coeff": 0.5, "tied_embeddings": false)";
  const std::string batch = R"("loss": { "main": "token_mean", "aux": "micro_batch_mean" })";
  for (const char* by : {"1 / (3 * sum(tokens.aux, cp) * micro_batches * dp)", "1 / (tokens.aux * micro_batches)"}) {
    INFO(by);
    const Compared compared = compare(Run(R"("cp": 2, "dp": 2)", model, steps(by), batch));
    CHECK(compared.wrong > 0);
    CHECK(compared.formulas > compared.wrong / 2);
  }
}

TEST_CASE("tokens of which none came to an expert have a contribution of which no one can see the coefficient") {
  // Found by random schedules: the coefficients of such contributions were taken for 0.
  const Run run(R"("tp": 2, "dp": 2, "ep": 2, "etp": 1, "sequence_parallel": true)", moe,
                R"("framework": "megatron",
                   "edits": [ { "insert": { "name": "half", "op": "scale", "by": "1/2" }, "after": "dp_scale" } ])");
  CHECK_FALSE(run.result.match);
  int unseen = 0;
  for (const TransformerBuffer& buffer : run.result.buffers) {
    if (run.name_of(buffer.rank, buffer.buffer).find(".experts.") == std::string::npos) continue;
    for (const TransformerPiece& piece : buffer.pieces) {
      if (!piece.terms) continue;
      // Two micro-batches of the tokens of four ranks: each contribution is measured, or known not to be.
      CHECK(piece.terms->size() + piece.unseen.size() == 8);
      unseen += static_cast<int>(piece.unseen.size());
    }
  }
  CHECK(unseen > 0);
  CHECK(compare(run).formulas > 0);
}
