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

TEST_CASE("parts of the model in the wrong place: norms, logits, layers") {
  check_fault(sequence, llama, R"({ "drop": "attention.norm" })");
  check_fault(sequence, gpt2, R"({ "drop": "mlp.norm" })");
  check_fault(sequence, llama, R"({ "drop": "head.norm" })");
  check_fault(tp, llama, R"({ "drop": "cross_entropy.logits" })");
  check_fault(R"("pp": 2)", llama, R"({ "drop": "pp.layer_offset" })");
  check_fault(R"("pp": 2, "virtual_stages": 2)", deep(llama, 4), R"({ "drop": "pp.layer_offset" })");
  check_fault(R"("pp": 2)", deep(llama, 3), R"({ "drop": "pp.remainder" })");
}

TEST_CASE("a norm behind the gather has its whole gradient on every tp rank, and all else is right") {
  const Run run(sequence, with_edit(llama, R"({ "drop": "attention.norm" })"), megatron);
  CHECK(wrong_parameters(run) ==
        std::set<std::string>{"decoder.layers.0.input_layernorm.weight", "decoder.layers.1.input_layernorm.weight"});
  // Summed over tp it is tp times too large, and the same on both ranks.
  for (const TransformerBuffer& buffer : run.result.buffers) {
    if (!buffer.right) CHECK(buffer.relative == Approx(1).epsilon(1e-9));
  }
  for (const bool agree : run.result.replicas_agree) CHECK(agree);
  // What lies before it is untouched, as its input gradient is the same; the observer sees R where P is claimed.
  const PlacementReport seen = observe_placements(run.scenario);
  int not_as_claimed = 0;
  for (const ObservedPlacement& row : seen.placements) {
    if (row.agrees) continue;
    CHECK((row.claimed == "P" && row.observed == "R" && row.axis == Axis::tp));
    ++not_as_claimed;
  }
  CHECK(not_as_claimed == 2);
}

TEST_CASE("gathered logits in a vocabulary-parallel loss: probabilities over tp, and targets of the first part alone") {
  // As Megatron-LM 7452 finds it: .0160, .0436, .1184, .3220 where .0321, .0871, .2369, -.3561 is right.
  const Run run(R"("tp": 2)", with_edit(llama, R"({ "drop": "cross_entropy.logits" })"), megatron);
  const std::set<std::string> wrong = wrong_parameters(run);
  CHECK(wrong.count("output_layer.weight") == 1);
  CHECK(wrong.count("embedding.word_embeddings.weight") == 1);
}

TEST_CASE("layers that are left out have no gradient") {
  const Run run(R"("pp": 2)", with_edit(deep(llama, 3), R"({ "drop": "pp.remainder" })"), megatron);
  for (const TransformerBuffer& buffer : run.result.buffers) {
    if (run.name_of(buffer.rank, buffer.buffer).find("decoder.layers.1.") != 0) continue;
    INFO(run.name_of(buffer.rank, buffer.buffer));
    CHECK(buffer.relative == Approx(1).epsilon(1e-9));
  }
}

TEST_CASE("what is cut into pieces goes along axes of as many ranks, and rows go back where they came from") {
  const auto failure = [](const std::string& layout, const std::string& model, const std::string& edit) {
    const Run run(layout, with_edit(model, edit), megatron);
    REQUIRE(run.result.failure);
    CHECK_FALSE(run.result.failure->deadlock);
    return run.result.failure->what;
  };
  CHECK(failure(R"("cp": 2, "dp": 4)", llama, R"({ "set": "cp.gather_key", "over": "dp" })") ==
        "cp.gather_key over dp has 4 ranks, and the model there has pieces for the 2 ranks of cp");
  CHECK(failure(R"("cp": 2)", llama, R"({ "set": "cp.dkv_reduce", "over": "tp" })").find("for the 2 ranks of cp") !=
        std::string::npos);
  CHECK(failure(R"("tp": 2, "dp": 2, "ep": 2, "etp": 1, "sequence_parallel": true)", moe,
                R"({ "set": "moe.combine", "over": "dp" })")
            .find("rows in moe.combine from the ranks of its group, and has room for") != std::string::npos);
  CHECK(failure(R"("tp": 2, "dp": 2, "ep": 2, "etp": 1, "sequence_parallel": true)", moe,
                R"({ "set": "moe.dispatch_backward", "over": "dp" })")
            .find("rows in moe.dispatch_backward") != std::string::npos);
  CHECK(failure(R"("tp": 2, "dp": 2, "ep": 2, "etp": 2, "sequence_parallel": true)", moe,
                R"({ "set": "moe.reduce_to_etp_backward", "over": "dp" })") ==
        "rank 3 gets 3, 5 rows in moe.reduce_to_etp_backward from the ranks of its group, and has room for 5, 5");
}

TEST_CASE("a layer cannot start with the weights of one of another make") {
  try {
    const Run run(R"("pp": 2)",
                  with_edit(deep(moe, 2) + R"(, "first_dense_layers": 1)", R"({ "drop": "pp.layer_offset" })"),
                  megatron);
    FAIL("it ran");
  } catch (const InputError& error) {
    CHECK(error.diagnostics().front().message.find("layer 1 would get the weights of layer 0") != std::string::npos);
  }
}

TEST_CASE("multi-token prediction: the projection's input and output") {
  const std::string model = llama + R"(, "mtp_num_layers": 1)";
  const auto check = [&](const std::string& layout, const std::string& edit) {
    INFO(edit << " with " << layout);
    const std::string schedule =
        R"("framework": "megatron", "options": { "calculate_per_token_loss": true, "mtp_num_layers": 1 })";
    const Run broken(layout, with_edit(model, edit), schedule);
    if (broken.result.failure) FAIL(broken.result.failure->what);
    CHECK(broken.symbolic.match);
    CHECK_FALSE(broken.result.match);
    CHECK(broken.result.smallest_wrong > 1e3);
  };
  check(tp, R"({ "drop": "mtp.copy_to_tp" })");
  check(tp, R"({ "drop": "mtp.gather_from_tp" })");
  check(sequence, R"({ "drop": "mtp.gather_sequence_backward" })");
  check(sequence, R"({ "drop": "mtp.scatter_backward" })");
  check(sequence, R"({ "drop": "mtp.gather_sequence" })");
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
  const auto message = [](const std::string& edit, const std::string& layout = tp,
                          const std::string& model = gpt2) -> std::string {
    try {
      const Run run(layout, with_edit(model, edit), megatron);
    } catch (const InputError& error) {
      return error.diagnostics().front().message;
    }
    return "";
  };
  CHECK(message(R"({ "drop": "mlp.copy_to_pp" })") ==
        "the transformer has no communication site \"mlp.copy_to_pp\"; did you mean \"mlp.copy_to_tp\"?");
  CHECK(message(R"({ "duplicate": "pp.forward" })").find("only a sum can be duplicated") == 0);
  CHECK(message(R"({ "set": "pp.forward", "over": "tp" })").find("\"pp.forward\" is no collective") == 0);
  CHECK(message(R"({ "set": "mlp.norm", "over": "tp" })").find("\"mlp.norm\" is no collective") == 0);
  CHECK(message(R"({ "over": "tp" })").find("expected an edit of the model with one of") == 0);
  CHECK(message(R"({ "set": "mlp.copy_to_tp" })").find("missing key \"over\"") == 0);
  // What would change nothing and pass for a repair.
  CHECK(message(R"({ "drop": "mlp.copy_to_tp" })", R"("dp": 2)") ==
        "the edit of \"mlp.copy_to_tp\" changes nothing: with this layout and these sizes the model does the same "
        "without it; edit a site at which it does not");
  const auto changes_nothing = [&](const std::string& edit, const std::string& layout, const std::string& model) {
    INFO(edit << " with " << layout);
    CHECK(message(edit, layout, model).find("changes nothing") != std::string::npos);
  };
  changes_nothing(R"({ "drop": "attention.rotary_positions" })", R"("dp": 2)", llama);
  changes_nothing(R"({ "drop": "embedding.positions" })", R"("dp": 2)", gpt2);
  changes_nothing(R"({ "drop": "cp.gather_key" })", R"("dp": 2)", llama);
  changes_nothing(R"({ "drop": "pp.remainder" })", R"("pp": 2)", llama);
  changes_nothing(R"({ "drop": "pp.layer_offset" })", R"("dp": 2)", llama);
  changes_nothing(R"({ "drop": "cross_entropy.logits" })", R"("dp": 2)", llama);
  changes_nothing(R"({ "set": "attention.copy_to_tp", "over": "tp" })", tp, llama);
  changes_nothing(R"({ "set": "attention.gather_sequence", "over": "tp" })", sequence, llama);
  changes_nothing(R"({ "set": "moe.combine", "over": "dp" })", tp_experts, moe);
  CHECK(message(R"({ "drop": "mlp.copy_to_tp" }, { "set": "mlp.copy_to_tp", "over": "dp" })") ==
        "\"mlp.copy_to_tp\" is edited twice, and one of the two would be without effect; keep one");
  // The observer refuses what check refuses.
  const std::string untouched = R"({ "lockstep": 1, "layout": { "dp": 2 }, "model": {)" +
                                with_edit(llama, R"({ "drop": "mlp.norm" })") + R"(}, "schedule": {)" + megatron +
                                "} }";
  const Scenario scenario = read_scenario(std::make_shared<Source>(Source{"test.json", untouched}));
  CHECK_THROWS_AS(observe_placements(scenario), InputError);
  const std::string ring = R"(, "cp_comm_type": "p2p")";
  CHECK(message(R"({ "drop": "cp.dkv_reduce" })", R"("cp": 2)", gpt2 + ring).find("changes nothing") !=
        std::string::npos);
  CHECK(message(R"({ "drop": "cp.ring_dkv" })", R"("cp": 2)").find("changes nothing") != std::string::npos);
  CHECK(message(R"({ "drop": "attention.rotary_positions" })", R"("cp": 2)").find("changes nothing") !=
        std::string::npos);
  CHECK(message(R"({ "drop": "cp.ring_dkv" })", R"("cp": 2)", gpt2 + ring).empty());
}
