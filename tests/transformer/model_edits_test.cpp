// SPDX-License-Identifier: Apache-2.0
// Faults in the model's own communication: the schedule is right, so the other engines see nothing.
#include <algorithm>
#include <set>

#include "tests/catch.h"
#include "tests/transformer/small_scenario.h"

using namespace lockstep;
using namespace lockstep::transformer::test;

namespace {

std::string with_edit(const std::string& model, const std::string& edit) {
  return model + R"(, "edits": [)" + edit + "]";
}

/// Names of the parameters that are wrong on some rank.
std::set<std::string> wrong_parameters(const Run& run) {
  std::set<std::string> names;
  for (const TransformerBuffer& buffer : run.result.buffers) {
    if (buffer.right) continue;
    const std::string name = run.name_of(buffer.rank, buffer.buffer);
    names.insert(name.substr(0, name.find(" on rank")));
  }
  return names;
}

void check_fault(const std::string& layout, const std::string& model, const std::string& edit,
                 const std::string& batch = R"("micro_batches": 2)") {
  INFO(edit << " with " << layout);
  const Run broken(layout, with_edit(model, edit), megatron, batch);
  if (broken.result.failure) FAIL(broken.result.failure->what);
  CHECK(broken.symbolic.match);
  CHECK_FALSE(broken.result.match);
  CHECK(broken.result.smallest_wrong > 1e3);
  const Run fixed(layout, model, megatron, batch);
  CHECK(fixed.result.match);
}

const std::string tp = R"("tp": 2, "dp": 2)";
const std::string sequence = R"("tp": 2, "sequence_parallel": true)";
const std::string tp_experts = R"("tp": 2, "ep": 2, "etp": 2, "dp": 2, "sequence_parallel": true)";

}  // namespace

TEST_CASE("tensor parallelism: what is not summed, and what is summed twice") {
  check_fault(tp, gpt2, R"({ "drop": "attention.copy_to_tp" })");
  check_fault(tp, gpt2, R"({ "drop": "mlp.copy_to_tp" })");
  check_fault(tp, gpt2, R"({ "drop": "head.copy_to_tp" })");
  check_fault(tp, gpt2, R"({ "duplicate": "head.copy_to_tp" })");
  check_fault(tp, gpt2, R"({ "drop": "attention.reduce_from_tp" })");
  check_fault(tp, gpt2, R"({ "drop": "mlp.reduce_from_tp" })");
  check_fault(tp, gpt2, R"({ "drop": "embedding.reduce" })");
  check_fault(tp, gpt2, R"({ "drop": "cross_entropy.sum" })");
  check_fault(tp, llama, R"({ "set": "mlp.copy_to_tp", "over": "dp" })");
}

TEST_CASE("sequence parallelism: a gather whose backward only cuts") {
  check_fault(sequence, llama, R"({ "drop": "mlp.gather_sequence_backward" })");
  check_fault(sequence, llama, R"({ "drop": "head.gather_sequence_backward" })");
  check_fault(sequence, gpt2, R"({ "drop": "embedding.scatter_backward" })");
}

TEST_CASE("context and Ulysses parallelism: gradients of keys and values, and positions of slices") {
  check_fault(R"("cp": 2)", llama, R"({ "drop": "cp.dkv_reduce" })");
  check_fault(R"("cp": 2, "dp": 2)", llama, R"({ "set": "cp.dkv_reduce", "over": "dp" })");
  check_fault(R"("cp": 2)", llama, R"({ "drop": "attention.rotary_positions" })");
  const std::string ring = R"(, "cp_comm_type": "p2p")", trade = R"(, "cp_comm_type": "a2a")";
  check_fault(R"("cp": 3)", llama + ring, R"({ "drop": "cp.ring_key_value" })");
  check_fault(R"("cp": 3)", llama + ring, R"({ "drop": "cp.ring_key_value_backward" })");
  check_fault(R"("cp": 3, "dp": 2)", gpt2 + ring, R"({ "drop": "cp.ring_dkv" })");
  check_fault(R"("cp": 2)", gpt2 + trade, R"({ "drop": "ulysses.key_backward" })");
  check_fault(R"("cp": 2)", gpt2, R"({ "drop": "embedding.positions" })");
}

TEST_CASE("pipelines and experts: gradients that never come, results of another group") {
  check_fault(R"("pp": 2)", llama, R"({ "drop": "pp.backward" })");
  check_fault(R"("dp": 2, "ep": 2)", moe, R"({ "drop": "moe.combine" })");
  check_fault(R"("dp": 2, "ep": 2)", moe, R"({ "drop": "moe.combine_backward" })");
  check_fault(R"("dp": 2, "ep": 2)", moe, R"({ "drop": "moe.dispatch_backward" })");
  check_fault(tp_experts, moe, R"({ "drop": "moe.reduce_to_etp" })");
  const std::string balanced = moe + R"(, "moe_aux_loss_coeff": 0.5)";
  check_fault(tp_experts, balanced, R"({ "drop": "moe.reduce_load" })");
  check_fault(R"("cp": 2, "dp": 2)", balanced, R"({ "duplicate": "moe.reduce_load" })");
  check_fault(R"("cp": 2, "dp": 2)", balanced, R"({ "set": "moe.reduce_load", "over": "dp" })");
}

TEST_CASE("a missing all-reduce in the input gradient of attention spoils what lies before it, and nothing behind") {
  const Run run(R"("tp": 2)", with_edit(llama, R"({ "drop": "attention.copy_to_tp" })"), megatron);
  const std::set<std::string> wrong = wrong_parameters(run);
  CHECK(wrong.count("output_layer.weight") == 0);
  CHECK(wrong.count("decoder.final_layernorm.weight") == 0);
  CHECK(wrong.count("decoder.layers.1.mlp.linear_fc1.weight") == 0);
  CHECK(wrong.count("decoder.layers.1.self_attention.linear_qkv.weight") == 0);
  CHECK(wrong.count("decoder.layers.1.input_layernorm.weight") == 1);
  CHECK(wrong.count("decoder.layers.0.mlp.linear_fc2.weight") == 1);
  CHECK(wrong.count("embedding.word_embeddings.weight") == 1);
}

TEST_CASE("a collective over a group in which the others bring something else is reported with ranks and calls") {
  const Run run(R"("tp": 2, "pp": 2)", with_edit(llama, R"({ "set": "attention.copy_to_tp", "over": "pp" })"),
                megatron);
  REQUIRE(run.result.failure);
  CHECK_FALSE(run.result.failure->lines.empty());
}

TEST_CASE("edits that the model cannot bear are refused where they stand") {
  const auto message = [](const std::string& edit) -> std::string {
    try {
      const Run run(tp, with_edit(gpt2, edit), megatron);
    } catch (const InputError& error) {
      return error.diagnostics().front().message;
    }
    return "";
  };
  CHECK(message(R"({ "drop": "mlp.copy_to_pp" })") ==
        "the transformer has no communication site \"mlp.copy_to_pp\"; did you mean \"mlp.copy_to_tp\"?");
  CHECK(message(R"({ "duplicate": "pp.forward" })").find("only a sum can be duplicated") == 0);
  CHECK(message(R"({ "set": "pp.forward", "over": "tp" })").find("\"pp.forward\" is no collective") == 0);
  CHECK(message(R"({ "over": "tp" })").find("expected an edit of the model with one of") == 0);
  CHECK(message(R"({ "set": "mlp.copy_to_tp" })").find("missing key \"over\"") == 0);
}
