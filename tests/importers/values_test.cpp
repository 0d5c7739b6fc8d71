// SPDX-License-Identifier: Apache-2.0
// How values are read and written that a configuration may spell in several ways, and what stands in for missing ones.
#include <algorithm>
#include <memory>
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

namespace {

/// What the list says of a key; "" where it is not among those that were used.
std::string told_of(const ImportRequest& request, const std::string& key) {
  const Imported imported = import_configuration(request);
  for (const ImportedKey& used : imported.used) {
    if (used.key == key) return used.meaning;
  }
  return "";
}

}  // namespace

TEST_CASE("a key whose place an option of the request takes is listed as one that does not count") {
  ImportRequest request = megatron_of_text("--micro-batch-size 1 --global-batch-size 16");
  CHECK(told_of(request, "--num-layers") == "model.layers");
  request.sizes = {"layers=8"};
  request.micro_batches = 4;
  CHECK(told_of(request, "--num-layers") == "nothing: --size layers is given");
  CHECK(told_of(request, "--global-batch-size") == "nothing: --micro-batches is given");
  CHECK(told_of(request, "--hidden-size") == "model.hidden");
  request = megatron_of_text("--ddp-bucket-size 100");
  CHECK(told_of(request, "--ddp-bucket-size") == "option ddp_bucket_size");
  request.options = {"ddp_bucket_size=200"};
  CHECK(told_of(request, "--ddp-bucket-size") == "nothing: --option ddp_bucket_size is given");
}

TEST_CASE("what is computed from a size of the model takes that of the request") {
  ImportRequest request = megatron_of_text("--swiglu");
  CHECK(text_in(request, "model", "ffn") == "128");  // 64 * 8 / 3, in multiples of 64
  request.sizes = {"hidden=192"};
  CHECK(text_in(request, "model", "ffn") == "512");
  request = megatron_of_text("--kv-channels 16");
  CHECK(text_in(request, "model", "head_dim").empty());  // as it is without
  request.sizes = {"hidden=128"};
  CHECK(text_in(request, "model", "head_dim") == "16");
}

TEST_CASE("a value that DeepSpeed's user leaves to the trainer is told as one that is not given") {
  const std::string text = R"({ "train_batch_size": "auto", "gradient_clipping": "auto", "bf16": { "enabled": "auto" },
    "zero_optimization": { "stage": 2, "reduce_bucket_size": "auto" }, "fp16": { "opt_level": "auto" } })";
  const ImportRequest request = request_of_file("deepspeed", "ds.json", text);
  for (const char* key :
       {"train_batch_size", "gradient_clipping", "bf16.enabled", "zero_optimization.reduce_bucket_size"})
    CHECK(told_of(request, key) == "as if it were not given: \"auto\" is filled in by what starts DeepSpeed");
  CHECK(told_of(request, "zero_optimization.stage") == "option zero_stage");
}

TEST_CASE("a key that DeepSpeed does not know in its sections is refused, or left out where that is asked for") {
  ImportRequest request =
      request_of_file("deepspeed", "ds.json",
                      R"({ "train_batch_size": 8, "fp16": { "enabled": true, "opt_level": "O2", "loss_scal": 0 } })");
  CHECK(
      messages(request) ==
      "fp16.opt_level: DeepSpeed 0.19.8 refuses this key: it knows none of that name in fp16; --ignore-unknown judges "
      "the rest without it\n"
      "fp16.loss_scal: DeepSpeed 0.19.8 refuses this key: it knows none of that name in fp16; did you mean "
      "\"loss_scale\"? --ignore-unknown judges the rest without it\n");
  request.ignore_unknown = true;
  const Imported imported = import_configuration(request);
  CHECK(imported.unknown == std::vector<std::string>{"fp16.opt_level", "fp16.loss_scal"});
  CHECK(imported.assumed.size() >= 2);
}

TEST_CASE("a key that DeepSpeed does not know in a section of a section is refused as well") {
  const auto told = [](const std::string& zero) {
    return messages(request_of_file("deepspeed", "ds.json", R"({ "train_batch_size": 8, )" + zero + " }"));
  };
  const std::string refused = "DeepSpeed 0.19.8 refuses this key: it knows none of that name in ";
  for (const auto& [text, section] :
       {std::pair(R"("zero_optimization": { "stage": 2, "offload_optimizer": { "device": "cpu", "pin": true } })",
                  "zero_optimization.offload_optimizer"),
        std::pair(R"("zero_optimization": { "stage": 3, "offload_param": { "buffer_siz": 1 } })",
                  "zero_optimization.offload_param"),
        std::pair(R"("zero_optimization": { "stage": 2, "cpu_offload_params": true })", "zero_optimization"),
        std::pair(R"("tensor_parallel": { "foo": 1 })", "tensor_parallel"),
        std::pair(R"("compile": { "foo": 1 })", "compile")})
    CHECK(told(text).find(refused + section) != std::string::npos);
  // In the words of DeepSpeed as well: stage3_… are second names.
  CHECK(told(R"("zero_optimization": { "stage": 3, "offload_optimizer": { "device": "cpu", "pin_memory": true },
    "stage3_max_live_parameters": 1, "max_live_parameters": 1, "offload_param": { "device": "none" } })")
            .empty());
}

TEST_CASE("with --micro-batches nothing is said of a batch that a DeepSpeed file leaves open") {
  ImportRequest request = request_of_file("deepspeed", "ds.json", R"({ "train_batch_size": "auto" })");
  const auto told = [&] {
    const std::vector<std::string> assumed = import_configuration(request).assumed;
    return std::ranges::any_of(assumed, [](const std::string& one) { return one.starts_with("One micro-batch"); });
  };
  CHECK(told());
  request.micro_batches = 4;
  CHECK_FALSE(told());
}

TEST_CASE("accelerate takes auto for what DeepSpeed's user leaves to the script") {
  const auto accelerate = [](const std::string& key) {
    return request_of_file(
        "accelerate", "one.yaml",
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n  " + key + "\n");
  };
  if (!is_readable("one.yaml")) return;
  ImportRequest request = accelerate("gradient_accumulation_steps: auto\n  gradient_clipping: auto");
  const Imported imported = import_configuration(request);
  CHECK(std::ranges::count(imported.assumed,
                           "One micro-batch: gradient_accumulation_steps is auto, which the script may say; give "
                           "--micro-batches N.") == 1);
  request.micro_batches = 3;
  CHECK(text_in(request, "batch", "micro_batches") == "3");
  CHECK_FALSE(messages(accelerate("zero_stage: auto")).empty());
}

TEST_CASE("accelerate completes a file of DeepSpeed's, and leaves what no file says to the script") {
  const std::string section = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  ";
  if (!is_readable("one.yaml")) return;
  const auto starts = [](const ImportRequest& request, const std::string& text) {
    return std::ranges::any_of(import_configuration(request).assumed,
                               [&](const std::string& sentence) { return sentence.starts_with(text); });
  };
  ImportRequest request = request_of_file("accelerate", "one.yaml", section + "zero3_init_flag: false\n");
  CHECK(text_in(request, "schedule", "zero_stage") == "2");
  CHECK(starts(request, "ZeRO stage 2"));
  CHECK(starts(request, "One micro-batch: the file does not say gradient_accumulation_steps, but the script may"));
  request = request_of_file("accelerate", "one.yaml", section + "zero_stage: 1\n  gradient_clipping: 0\n");
  CHECK(text_in(request, "schedule", "zero_stage") == "1");
  CHECK(text_in(request, "schedule", "gradient_clipping").empty());
  const auto beside = [&](const std::string& deepspeed) {
    ImportRequest both = request_of_file("accelerate", "one.yaml", section + "deepspeed_config_file: ds.json\n");
    both.files.push_back(std::make_shared<const Source>(Source{"ds.json", deepspeed}));
    return both;
  };
  const std::string zero = R"("zero_optimization": { "stage": 3 })";
  CHECK(starts(beside("{" + zero + "}"), "One micro-batch: accelerate takes gradient_accumulation_steps 1"));
  CHECK(starts(beside("{" + zero + R"(, "gradient_accumulation_steps": "auto" })"),
               "One micro-batch: gradient_accumulation_steps is \"auto\""));
  // With the one that accelerate puts there the batch is 8, and not 16.
  const std::string micro = R"(, "train_micro_batch_size_per_gpu": 1, "train_batch_size": )";
  CHECK(messages(beside("{" + zero + micro + "16 }")).find("gradient_accumulation_steps 1 ×") != std::string::npos);
  CHECK(messages(beside("{" + zero + micro + "8 }")).empty());
  CHECK(messages(beside(R"({ "train_batch_size": "auto" })")).find("Please specify the ZeRO") != std::string::npos);
  CHECK(messages(beside("{" + zero + R"(, "num_processes": 4 })")).find("accelerate's own file") != std::string::npos);
  CHECK(messages(beside("{" + zero + R"(, "sequence_parallel_size": 2 })")).find("parallelism_config_sp_size") !=
        std::string::npos);
}

TEST_CASE("where DeepSpeed's batch is auto, the number of micro-batches is said to be the script's") {
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    const std::string others = key[0] == 'g' ? R"(, "train_micro_batch_size_per_gpu": 1)" : "";
    ImportRequest request =
        request_of_file("deepspeed", "ds.json", "{ \"" + std::string(key) + "\": \"auto\"" + others + " }");
    CHECK(import_configuration(request).assumed.front() ==
          "One micro-batch: " + std::string(key) +
              " is \"auto\", which the training script or its Trainer fills in; give --micro-batches N.");
    request.micro_batches = 3;
    CHECK_FALSE(import_configuration(request).assumed.front().starts_with("One micro-batch"));
  }
  CHECK(import_configuration(request_of_file("deepspeed", "ds.json", R"({ "train_batch_size": 8 })")).assumed.front() ==
        "One micro-batch: gradient_accumulation_steps is 1 where the configuration does not say it.");
}

TEST_CASE("a vocabulary that is given is not said to be that of GPT-2") {
  const auto told = [](const ImportRequest& request) {
    return std::ranges::any_of(import_configuration(request).assumed, [](const std::string& sentence) {
      return sentence.starts_with("A vocabulary of 50257");
    });
  };
  ImportRequest arguments;
  arguments.format = "megatron";
  arguments.arguments =
      split_at_spaces("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --position-embedding-type rope");
  arguments.world = 8;
  const std::string neox =
      "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\ntrain_micro_batch_size_per_gpu: 1\n";
  for (ImportRequest request : {arguments, request_of_file("gpt-neox", "neox.yml", neox)}) {
    if (!request.files.empty() && !is_readable("neox.yml")) continue;
    CHECK(told(request));
    request.sizes = {"vocab=32000"};
    CHECK_FALSE(told(request));
  }
}

TEST_CASE("a GPT-NeoX file that says its batch in full says how many ranks there are") {
  const auto neox = [](const std::string& batch) {
    return request_of_file("gpt-neox", "neox.yml",
                           "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nmodel_parallel_size: 2\n"
                           "pipe_parallel_size: 2\ntrain_micro_batch_size_per_gpu: 4\n" +
                               batch,
                           0);
  };
  if (!is_readable("neox.yml")) return;
  CHECK(text_in(neox("train_batch_size: 32\ngradient_accumulation_steps: 2\n"), "layout", "dp") == "4");
  CHECK(import_configuration(neox("train_batch_size: 32\ngradient_accumulation_steps: 2\n")).assumed.front() ==
        "16 ranks: train_batch_size 32 / (train_micro_batch_size_per_gpu 4 × gradient_accumulation_steps 2) is "
        "data-parallel size 4, times model 2 × pipe 2.");
  ImportRequest counted = neox("train_batch_size: 32\ngradient_accumulation_steps: 2\n");
  counted.micro_batches = 6;
  CHECK(told_of(counted, "train_batch_size") == "the number of ranks alone: --micro-batches is given");
  CHECK(messages(neox("train_batch_size: 32\ngradient_accumulation_steps: 2\nnum_nodes: 2\nnum_gpus: 4\n"))
            .find("num_nodes 2 × num_gpus 4 are 8 ranks, and train_batch_size 32") != std::string::npos);
  CHECK(text_in(neox("train_batch_size: 32\ngradient_accumulation_steps: 2\nnum_nodes: 2\nnum_gpus: 8\n"), "layout",
                "dp") == "4");
  // Without the accumulation the ranks may be fewer, and steps more.
  CHECK(messages(neox("train_batch_size: 32\n")).find("the number of ranks is not known") != std::string::npos);
  CHECK(messages(neox("train_batch_size: 30\ngradient_accumulation_steps: 2\n"))
            .find("the number of ranks is not known") != std::string::npos);
  ImportRequest other = neox("train_batch_size: 32\ngradient_accumulation_steps: 2\n");
  other.world = 8;
  CHECK(messages(other).find("train_batch_size") != std::string::npos);  // which 2 data-parallel ranks do not make
}
