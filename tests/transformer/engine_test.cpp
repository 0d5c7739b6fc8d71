// SPDX-License-Identifier: Apache-2.0
#include "lockstep/transformer.h"
#include "tests/catch.h"
#include "tests/transformer/small_scenario.h"

using namespace lockstep;
using namespace lockstep::transformer::test;

namespace {

void check_right(const std::string& layout, const std::string& model, const std::string& schedule = megatron,
                 const std::string& batch = R"("micro_batches": 2)") {
  INFO("layout " << layout << ", " << model << ", seed 0");
  const Run run(layout, model, schedule, batch);
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

}  // namespace

TEST_CASE("one rank is the single device") {
  check_right("", gpt2);
  check_right("", llama);
  check_right("", moe);
}

TEST_CASE("data and tensor parallel models compute what one device computes") {
  check_right(R"("dp": 2)", gpt2);
  check_right(R"("tp": 2)", gpt2);
  check_right(R"("tp": 4)", gpt2);
  check_right(R"("tp": 2, "dp": 2)", llama);
  check_right(R"("tp": 2, "dp": 2)", llama + R"(, "qk_layernorm": true)");
  check_right(R"("tp": 2, "dp": 2, "order": "dp-tp-cp-sp-ep-pp")", gpt2 + R"(, "tied_embeddings": false)");
}

TEST_CASE("sequence parallel models do") {
  check_right(R"("tp": 2, "sequence_parallel": true)", gpt2);
  check_right(R"("tp": 2, "dp": 2, "sequence_parallel": true)", llama);
  check_right(R"("tp": 2, "dp": 2, "sequence_parallel": true)", llama + R"(, "qk_layernorm": true)");
}

TEST_CASE("context parallel models do") {
  check_right(R"("cp": 2)", gpt2);
  check_right(R"("cp": 3, "dp": 2)", llama);
  check_right(R"("tp": 2, "cp": 2, "sequence_parallel": true)", llama);
}

TEST_CASE("keys and values that travel a ring, or ranks that trade tokens for heads, do") {
  const std::string ring = R"(, "cp_comm_type": "p2p")", trade = R"(, "cp_comm_type": "a2a")";
  check_right(R"("cp": 2)", gpt2 + ring);
  check_right(R"("cp": 3, "dp": 2)", llama + ring + R"(, "qk_layernorm": true)");
  check_right(R"("cp": 4)", gpt2 + ring, megatron, R"("micro_batches": 1, "tokens": [[[[5], [8], [1], [3]]]])");
  check_right(R"("tp": 2, "cp": 3, "sequence_parallel": true)", llama + ring);
  check_right(R"("cp": 2, "pp": 2, "dp": 2)", gpt2 + ring);
  check_right(R"("cp": 2)", llama + trade);
  check_right(R"("cp": 4, "dp": 2)", gpt2 + trade);
  check_right(R"("tp": 2, "cp": 2, "sequence_parallel": true)", gpt2 + trade);
}

TEST_CASE("pipelines do, with one chunk on a stage and with several") {
  check_right(R"("pp": 2)", gpt2, megatron, R"("micro_batches": 4)");
  check_right(R"("pp": 4, "dp": 2)", deep(llama, 4), megatron, R"("micro_batches": 3)");
  check_right(R"("pp": 2, "virtual_stages": 2)", deep(gpt2, 4), megatron, R"("micro_batches": 4)");
  check_right(R"("pp": 2, "tp": 2, "virtual_stages": 3)", deep(llama, 6), megatron, R"("micro_batches": 3)");
}

TEST_CASE("tokens visit as many experts as the router says, and drop where those are full") {
  const auto with = [](const std::string& sizes) { return moe + ", " + sizes; };
  const std::string batch = R"("micro_batches": 2, "tokens": "even")";
  check_right(R"("ep": 2, "dp": 2)", with(R"("moe_router_topk": 1, "moe_router_pre_softmax": true)"));
  check_right(R"("ep": 2, "dp": 2)", with(R"("moe_router_topk": 3)"));
  check_right(R"("ep": 4, "dp": 4)", with(R"("moe_router_topk": 4, "moe_router_pre_softmax": true)"));
  for (const char* policy : {"probs", "position"}) {
    const std::string drop =
        R"("moe_token_drop_policy": ")" + std::string(policy) + R"(", "moe_expert_capacity_factor": )";
    check_right("", with(drop + "0.5"));
    check_right(R"("ep": 2, "dp": 2)", with(drop + "1"));
    check_right(R"("ep": 2, "dp": 2, "pp": 2)", with(drop + "0.75" + R"(, "moe_router_topk": 3)"));
    check_right(R"("cp": 2, "ep": 2)", with(drop + "0.5"));
    check_right(R"("cp": 2, "ep": 4, "dp": 2)", with(drop + "1.25"), megatron,
                R"("micro_batches": 1, "tokens": [[[[3], [8]], [[6], [1]]]])");
    check_right(R"("tp": 2, "ep": 2, "dp": 2, "sequence_parallel": true)", with(drop + "0.5"));
    check_right(R"("tp": 2, "ep": 4, "etp": 1, "dp": 2, "sequence_parallel": true)", with(drop + "0.5"), megatron,
                R"("micro_batches": 1, "tokens": [[[[9]], [[2]]]])");
  }
}

TEST_CASE("the auxiliary loss is that of the whole sequence, however it is cut") {
  const std::string aux = moe + R"(, "moe_aux_loss_coeff": 0.5)",
                    drop = aux + R"(, "moe_expert_capacity_factor": 0.75)";
  const std::string every_second = deep(moe, 4) + R"(, "moe_layer_frequency": 2, "moe_aux_loss_coeff": 0.01)";
  check_right("", aux);
  check_right(R"("dp": 2)", aux);
  check_right(R"("ep": 2, "dp": 2)", drop);
  check_right(R"("cp": 2, "ep": 2)", drop + R"(, "cp_comm_type": "p2p")");
  check_right(R"("tp": 2, "ep": 2, "dp": 2, "sequence_parallel": true)", aux);
  check_right(R"("tp": 2, "cp": 2, "ep": 2, "etp": 2, "sequence_parallel": true)", aux + R"(, "moe_router_topk": 3)");
  check_right(R"("pp": 2, "dp": 2)", every_second);
  check_right(R"("pp": 2, "ep": 2, "dp": 2, "virtual_stages": 2)", deep(drop, 4), megatron, R"("micro_batches": 4)");
}

TEST_CASE("a backward step of its own for the auxiliary loss, with a factor of its own") {
  const auto steps = [](const std::string& by) {
    return R"x("steps": [ { "name": "micro_batches", "op": "each", "steps": [
        { "name": "backward", "op": "backward", "uses": ["main"], "by": "1 / sum(tokens, dp, cp, micro_batch)" },
        { "name": "backward_aux", "op": "backward", "uses": ["aux"], "by": ")x" +
           by + R"x(" } ] },
      { "name": "all_reduce", "op": "all_reduce", "over": ["dp", "cp"] } ])x";
  };
  const std::string model = moe + R"(, "moe_aux_loss_coeff": 0.5, "tied_embeddings": false)";
  const std::string batch = R"("loss": { "main": "token_mean", "aux": "micro_batch_mean" })";
  const std::string right = "1 / (sum(tokens.aux, cp) * micro_batches * dp)";
  check_right(R"("cp": 2, "dp": 2)", model, steps(right), batch);
  check_right(R"("cp": 2, "dp": 2)", model, steps(right), batch + R"(, "tokens": { "main": "uneven", "aux": "even" })");
  // Without the factor for cp (NVIDIA/Megatron-LM#1652) the router has half of it, and the head is right.
  const Run half(R"("cp": 2, "dp": 2)", model, steps(right + " / cp"), batch);
  CHECK_FALSE(half.symbolic.match);
  CHECK_FALSE(half.result.match);
  for (const TransformerBuffer& buffer : half.result.buffers) {
    const std::string name = half.name_of(buffer.rank, buffer.buffer);
    if (name.find("router") != std::string::npos) CHECK(buffer.error > 1e4);
    if (name.find("output_layer") != std::string::npos || name.find("layers.1.mlp.experts") != std::string::npos)
      CHECK(buffer.right);
  }
}

TEST_CASE("multi-token prediction, on the last stage with a copy of the embedding") {
  const auto schedule = [](int depths, const std::string& more = "") {
    return R"("framework": "megatron", "options": { "calculate_per_token_loss": true, "clip_grad": 0, "mtp_num_layers": )" +
           std::to_string(depths) + "}" + more;
  };
  const auto with = [](const std::string& model, int depths) {
    return model + R"(, "mtp_num_layers": )" + std::to_string(depths);
  };
  check_right("", with(gpt2, 1), schedule(1));
  check_right(R"("dp": 2)", with(llama, 2), schedule(2));
  check_right(R"("tp": 2)", with(llama + R"(, "tied_embeddings": true)", 2), schedule(2));
  check_right(R"("tp": 2, "dp": 2, "sequence_parallel": true)", with(llama, 1), schedule(1));
  check_right(R"("tp": 2, "sequence_parallel": true)", with(gpt2, 2), schedule(2));
  check_right(R"("cp": 2)", with(llama + R"(, "cp_comm_type": "p2p")", 1), schedule(1));
  check_right(R"("pp": 2, "dp": 2)", with(llama, 2), schedule(2));
  check_right(R"("pp": 2, "tp": 2)", with(llama + R"(, "tied_embeddings": true)", 1), schedule(1));
  check_right(R"("pp": 2, "virtual_stages": 2)", with(deep(llama, 4), 1), schedule(1), R"("micro_batches": 4)");
  check_right(
      R"("pp": 2, "dp": 2)", with(gpt2, 1),
      schedule(1, R"(, "edits": [{ "set": "position_embedding_all_reduce", "over": { "pp": ["first", "last"] } }])"));
  check_right(R"("ep": 2, "dp": 2)", with(moe, 1), schedule(1), R"("micro_batches": 2, "tokens": { "main": "uneven",
      "mtp": "uneven" })");
  // All three losses, each as often as the batch says.
  const std::string steps = R"x("steps": [ { "name": "micro_batches", "op": "each", "steps": [
        { "name": "main", "op": "backward", "uses": ["main"], "by": "1 / sum(tokens, dp, cp, micro_batch)" },
        { "name": "mtp", "op": "backward", "uses": ["mtp"], "by": "1 / (3 * sum(tokens.mtp, dp, cp, micro_batch))" },
        { "name": "aux", "op": "backward", "uses": ["aux"], "by": "1 / sum(tokens.aux, dp, cp, micro_batch)" } ] },
      { "name": "experts", "op": "all_reduce", "over": ["edp"], "params": ["tag:expert"] },
      { "name": "norms", "op": "all_reduce", "over": "tp", "params": ["tag:replicated"] },
      { "name": "others", "op": "all_reduce", "over": ["dp", "cp"], "params": ["!tag:expert"] } ])x";
  check_right(
      R"("tp": 2, "cp": 2, "ep": 2, "dp": 2, "sequence_parallel": true)",
      with(moe + R"(, "moe_aux_loss_coeff": 0.5, "moe_expert_capacity_factor": 1, "tied_embeddings": false)", 2), steps,
      R"("micro_batches": 1, "weight": { "mtp": "1/3" },
                "tokens": { "main": "uneven", "mtp": "even", "aux": [[[[3], [2]], [[2], [4]]]] })");
}

TEST_CASE("what no router does is refused") {
  const auto message = [](const std::string& sizes) -> std::string {
    try {
      const Run run(R"("dp": 2)", moe + ", " + sizes, megatron);
    } catch (const InputError& error) {
      return error.diagnostics().front().message;
    }
    return "";
  };
  CHECK(message(R"("moe_router_topk": 5)").find("a token cannot visit 5 of 4 experts (moe_router_topk)") !=
        std::string::npos);
  CHECK(message(R"("moe_router_topk": 1)").find("moe_router_pre_softmax") != std::string::npos);
  CHECK(message(R"("moe_expert_capacity_factor": -0.5)")
            .find("\"moe_expert_capacity_factor\" is no number from 1e-9 to 1e9, and not 0") != std::string::npos);
}

TEST_CASE("a capacity beyond all tokens drops none") {
  const Run run(R"("dp": 2, "ep": 2)", moe + R"(, "moe_expert_capacity_factor": 1e9)", megatron);
  CHECK(run.result.match);
}

TEST_CASE("a scenario without one of the model's parameters is refused, because nobody would look at it") {
  const auto message = [](int layers) -> std::string {
    // The parameters of one layer, said to be of a model with `layers`.
    const std::string parameters = R"json({ "name": "embedding.word_embeddings.weight", "shape": [32, 16] },
      { "name": "decoder.final_layernorm.weight", "shape": [16] }, { "name": "output_layer.weight", "shape": [32, 16] },
      { "name": "decoder.layers.0.input_layernorm.weight", "shape": [16] },
      { "name": "decoder.layers.0.self_attention.linear_qkv.weight", "shape": [32, 16] },
      { "name": "decoder.layers.0.self_attention.linear_proj.weight", "shape": [16, 16] },
      { "name": "decoder.layers.0.pre_mlp_layernorm.weight", "shape": [16] },
      { "name": "decoder.layers.0.mlp.linear_fc1.weight", "shape": [48, 16] },
      { "name": "decoder.layers.0.mlp.linear_fc2.weight", "shape": [16, 24] })json";
    const std::string model = R"("parameters": [)" + parameters +
                              R"(], "architecture": { "family": "gpt", "layers": )" + std::to_string(layers) +
                              R"(, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "vocab": 32, "positions": 64,
      "position_embedding": "rope", "normalization": "RMSNorm", "swiglu": true, "linear_bias": false,
      "tied_embeddings": false, "make_vocab_size_divisible_by": 1 })";
    try {
      const Run run(R"("dp": 2)", model, R"json("steps": [
        { "name": "micro_batches", "op": "each", "steps": [
          { "name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)"
    } ] },
        { "name": "sum", "op": "all_reduce", "over": "dp" } ])json");
      return run.result.match ? "match" : "mismatch";
    } catch (const InputError& error) {
      return error.diagnostics().front().message;
    }
  };
  CHECK(message(1) == "match");
  CHECK(message(2).find("it has a parameter \"decoder.layers.1.") != std::string::npos);
}

TEST_CASE("expert parallel models do, with whole experts and with pieces of them") {
  check_right(R"("ep": 2, "dp": 2)", moe);
  check_right(R"("ep": 4, "dp": 4)", moe);
  check_right(R"("ep": 2, "dp": 4)", moe);
  check_right(R"("tp": 2, "ep": 2, "dp": 2, "sequence_parallel": true)", moe);
  check_right(R"("tp": 2, "etp": 1, "ep": 4, "dp": 2, "sequence_parallel": true)", moe);
  check_right(R"("ep": 2, "dp": 2, "pp": 2)", moe + R"(, "shared_expert_ffn": 8, "shared_expert_gate": true)");
  check_right(R"("tp": 2, "ep": 2, "dp": 2, "sequence_parallel": true)",
              moe + R"(, "shared_expert_ffn": 8, "shared_expert_gate": true)");
}
