// SPDX-License-Identifier: Apache-2.0
// How values are read and written that a configuration may spell in several ways, and what stands in for missing ones.
#include <string>

#include "lockstep/importer.h"
#include "tests/catch.h"
#include "tests/importers/cases.h"
#include "tests/importers/requests.h"

using namespace lockstep;
using namespace lockstep::importers;

namespace {

ImportRequest megatron_of_text(const std::string& more) {
  ImportRequest request;
  request.format = "megatron";
  request.arguments = split_at_spaces(
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 256 --position-embedding-type rope " +
      more);
  request.world = 8;
  return request;
}

/// As the scenario has it, "" where it says nothing.
std::string text_in(const ImportRequest& request, const char* section, const char* key) {
  const Json scenario = import_configuration(request).scenario;
  const Json* part = scenario.find(section);
  if (part != nullptr && part->find("options") != nullptr) part = part->find("options");
  const Json* value = part == nullptr ? nullptr : part->find(key);
  return value == nullptr ? "" : value->text();
}

}  // namespace

TEST_CASE("a decimal fraction keeps up to thirty digits") {
  const auto written = [](const std::string& number) {
    ImportRequest request = megatron_of_text("");
    request.options = {"clip_grad=" + number};
    return text_in(request, "schedule", "clip_grad");
  };
  CHECK(written("0.375") == "0.375");
  CHECK(written("12.50") == "12.5");
  const std::string smallest = "0." + std::string(29, '0') + "1";
  CHECK(written(smallest) == smallest);
}

TEST_CASE("sizes of latent attention that are not given are Megatron's own") {
  const ImportRequest request = megatron_of_text("--multi-latent-attention --q-lora-rank 16");
  CHECK(text_in(request, "model", "q_lora_rank") == "16");
  CHECK(text_in(request, "model", "kv_lora_rank") == "32");
  CHECK(text_in(request, "model", "qk_head_dim") == "128");
  CHECK(text_in(request, "model", "qk_pos_emb_head_dim") == "64");
  CHECK(text_in(request, "model", "v_head_dim") == "128");
}

TEST_CASE("a list in a log of Megatron-LM has its items, with and without quotes") {
  const auto frequency = [](const std::string& list) {
    return request_of_file("megatron", "train.log",
                           "------------------------ arguments ------------------------\n"
                           "  add_bias_linear ................................. False\n"
                           "  hidden_size ..................................... 64\n"
                           "  moe_layer_freq .................................. " +
                               list +
                               "\n"
                               "  num_attention_heads ............................. 4\n"
                               "  num_experts ..................................... 8\n"
                               "  num_layers ...................................... 4\n"
                               "  padded_vocab_size ............................... 256\n"
                               "  position_embedding_type ......................... rope\n"
                               "-------------------- end of arguments ---------------------\n");
  };
  for (const char* list : {"[0, 1, 1, 1]", "['0', '1', '1', '1']", "[\"0\", \"1\", \"1\", \"1\"]"})
    CHECK(text_in(frequency(list), "model", "first_dense_layers") == "1");
  CHECK(messages(frequency("[1, 0, 1, 1]")).find("dense layers at the start") != std::string::npos);
}

TEST_CASE("Hjson has texts in three quotes, and numbers with a plus") {
  CHECK(messages(request_of_file("deepspeed", "ds.json",
                                 "{\n  train_batch_size: 8\n  optimizer: { type: '''OneBitAdam''' }\n}\n"))
            .find("1-bit") != std::string::npos);
  const std::string adam =
      "{\n  train_batch_size: 8\n  optimizer: { type: '''Adam''' }\n  zero_optimization: { stage: +2 }\n}\n";
  CHECK(text_in(request_of_file("deepspeed", "ds.json", adam), "schedule", "zero_stage") == "2");
  CHECK(messages(request_of_file("deepspeed", "ds.json", "{ train_batch_size: '''8 }")).find("not closed") !=
        std::string::npos);
}
