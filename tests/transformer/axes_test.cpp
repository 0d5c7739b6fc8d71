// SPDX-License-Identifier: Apache-2.0
// Features of the model against axes of the layout: models and layouts such that every pair of choices occurs together,
// and each of them computes on all its ranks what one device computes.
#include <cstdint>
#include <vector>

#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/transformer/small_scenario.h"

using namespace lockstep;
using namespace lockstep::transformer::test;

namespace {

enum Factor { norm_and_mlp, positions, tied, qk_norm, mixture, mtp, tensor, context, pipeline, data, expert, factors };
const std::vector<int> levels = {2, 2, 2, 2, 4, 2, 3, 4, 3, 2, 2};
using Row = std::vector<int>;

/// What a layout or model cannot have together.
bool is_possible(const Row& row) {
  if (row[mixture] > 0 && row[tensor] == 1) return false;  // experts with tp need sequence parallelism
  if (row[expert] == 1 && (row[mixture] == 0 || (row[context] == 0 && row[data] == 0))) return false;
  return true;
}

/// Rows in which every possible pair of levels of two factors occurs: each takes the best of some drawn from a seed.
std::vector<Row> pairwise_layouts(std::uint64_t seed) {
  std::vector<char> seen(factors * 4 * factors * 4, 0);
  const auto at = [&](const Row& row, int a, int b) -> char& {
    return seen[static_cast<std::size_t>(((a * 4 + row[static_cast<std::size_t>(a)]) * factors + b) * 4 +
                                         row[static_cast<std::size_t>(b)])];
  };
  std::uint64_t state = seed;
  std::vector<Row> rows;
  for (int fruitless = 0; fruitless < 4;) {
    Row best;
    int most = 0;
    for (int candidate = 0; candidate < 2000; ++candidate) {
      Row row;
      for (const int count : levels) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        row.push_back(static_cast<int>((state >> 33) % static_cast<std::uint64_t>(count)));
      }
      if (!is_possible(row)) continue;
      int fresh = 0;
      for (int a = 0; a < factors; ++a) {
        for (int b = a + 1; b < factors; ++b) fresh += at(row, a, b) == 0 ? 1 : 0;
      }
      if (fresh > most) {
        most = fresh;
        best = row;
      }
    }
    fruitless = most == 0 ? fruitless + 1 : 0;
    if (most == 0) continue;
    for (int a = 0; a < factors; ++a) {
      for (int b = a + 1; b < factors; ++b) at(best, a, b) = 1;
    }
    rows.push_back(best);
  }
  return rows;
}

std::string model_of(const Row& row) {
  std::string text =
      R"("preset": "gpt", "hidden": 16, "heads": 8, "query_groups": 4, "ffn": 12, "vocab": 32, "positions": 64)";
  text += R"(, "layers": )" + std::string(row[pipeline] == 2 ? "4" : "2");
  if (row[norm_and_mlp] == 1) text += R"(, "normalization": "RMSNorm", "swiglu": true)";
  if (row[positions] == 1) text += R"(, "position_embedding": "rope")";
  text += R"(, "tied_embeddings": )" + std::string(row[tied] == 1 ? "true" : "false");
  if (row[qk_norm] == 1) text += R"(, "qk_layernorm": true)";
  if (row[mixture] > 0) text += R"(, "linear_bias": false, "experts": 4, "moe_ffn": 4)";
  if (row[mixture] == 2)
    text += R"(, "shared_expert_ffn": 4, "shared_expert_gate": true, "moe_router_topk": 1,
    "moe_router_pre_softmax": true)";
  if (row[mixture] == 3)
    text += R"(, "moe_router_topk": 3, "moe_expert_capacity_factor": 0.75, "moe_aux_loss_coeff": 0.5)";
  if (row[mtp] == 1) text += R"(, "mtp_num_layers": 1)";
  if (row[context] > 0)
    text += R"(, "cp_comm_type": ")" +
            std::string(row[context] == 1   ? "all_gather"
                        : row[context] == 2 ? "p2p"
                                            : "a2a") +
            "\"";
  return text;
}

std::string layout_of(const Row& row) {
  std::string text = R"("tp": )" + std::string(row[tensor] == 0 ? "1" : "2");
  if (row[tensor] == 2) text += R"(, "sequence_parallel": true)";
  if (row[context] > 0) text += R"(, "cp": 2)";
  if (row[pipeline] > 0) text += R"(, "pp": 2)";
  if (row[pipeline] == 2) text += R"(, "virtual_stages": 2)";
  if (row[data] == 1) text += R"(, "dp": 2)";
  if (row[expert] == 1) text += R"(, "ep": 2)";
  return text;
}

/// Megatron's, with what it lacks: the other copy of learned positions, and a backward of its own for each loss.
std::string schedule_of(const Row& row) {
  std::string text = R"("framework": "megatron", "options": { "calculate_per_token_loss": true, "clip_grad": 0,
    "mtp_num_layers": )" +
                     std::to_string(row[mtp]) + R"( }, "edits": [)";
  std::string edits;
  if (row[mtp] == 1 && row[positions] == 0 && row[pipeline] > 0)
    edits += R"({ "set": "position_embedding_all_reduce", "over": { "pp": ["first", "last"] } })";
  if (row[mtp] == 1 && row[mixture] == 3) {
    edits += edits.empty() ? "" : ", ";
    edits += R"({ "insert": { "name": "backward_aux", "op": "backward", "uses": ["aux"] }, "after": "backward" })";
  }
  return text + edits + "]";
}

}  // namespace

TEST_CASE("every feature on every axis computes what one device computes") {
  constexpr std::uint64_t seed = 6;
  std::vector<Row> rows = pairwise_layouts(seed);
  CHECK(rows.size() >= 16);                            // four kinds of mixtures times four of context parallelism
  if (test::one_in > 1) rows.resize(rows.size() / 2);  // the first ones show the most pairs
  for (const Row& row : rows) {
    INFO("seed " << seed << ": " << layout_of(row) << "; " << model_of(row));
    const Run run(layout_of(row), model_of(row), schedule_of(row));
    if (run.result.failure) FAIL(run.result.failure->what);
    std::string wrong;
    for (const TransformerBuffer& buffer : run.result.buffers) {
      if (!buffer.right)
        wrong += "\n" + run.name_of(buffer.rank, buffer.buffer) + ": error " + std::to_string(buffer.error);
    }
    INFO("wrong:" << wrong);
    CHECK(run.symbolic.match);
    CHECK(run.result.match);
    CHECK(run.result.largest_right > 0);
    CHECK(run.result.largest_right < 0.25);
  }
}
