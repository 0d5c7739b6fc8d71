// SPDX-License-Identifier: Apache-2.0
// What is asked for that a format has no use for, and what a scenario is refused for, in the configuration's own words.
#include <memory>
#include <string>
#include <vector>

#include "lockstep/importer.h"
#include "tests/catch.h"
#include "tests/importers/cases.h"
#include "tests/importers/requests.h"

using namespace lockstep;
using namespace lockstep::importers;

namespace {

/// The mistakes of an import and, where there are none, of its scenario.
std::string mistakes(const ImportRequest& request) {
  try {
    read_imported(import_configuration(request), "scenario");
    return "";
  } catch (const InputError& error) {
    return rendered(error);
  }
}

ImportRequest megatron_request(std::vector<std::string> arguments, std::int64_t world = 8) {
  ImportRequest request;
  request.format = "megatron";
  request.arguments = {"--num-layers",          "12", "--hidden-size", "512",
                       "--num-attention-heads", "8",  "--vocab-size",  "1000"};
  request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
  request.world = world;
  return request;
}

}  // namespace

TEST_CASE("a size that the configuration says itself is refused with the key that says it") {
  ImportRequest titan = request_of_file("torchtitan", "t.json", "{ \"a\": 1 }");
  titan.tp = 2;
  titan.sp = 2;
  CHECK(messages(titan) ==
        "--sp: a configuration of torchtitan has no Ulysses sequence-parallel size here; leave --sp out\n"
        "--tp: a configuration of torchtitan says its tensor-parallel size itself, as "
        "parallelism.tensor_parallel_degree; change it there, and leave --tp out\n");
  ImportRequest nanotron = request_of_file("nanotron", "n.yaml", "a: 1");
  nanotron.pp = 2;
  nanotron.model = "gpt2";
  CHECK(messages(nanotron) ==
        "--model: a configuration of nanotron says what its model is; leave --model out, and replace single sizes with "
        "--size KEY=VALUE\n"
        "--pp: a configuration of nanotron says its pipeline-parallel size itself, as parallelism.pp; change it there, "
        "and leave --pp out\n");
  ImportRequest deepspeed = request_of_file("deepspeed", "d.json", "{ \"train_batch_size\": 8 }");
  deepspeed.cp = 2;
  CHECK(messages(deepspeed) ==
        "--cp: a configuration of DeepSpeed has no context-parallel size here; leave --cp out\n");
}

TEST_CASE("variables and arguments have a meaning for launch scripts of Megatron-LM alone") {
  ImportRequest titan = request_of_file("torchtitan", "t.json", "{ \"a\": 1 }");
  titan.variables = {"TP=2"};
  titan.arguments = {"--x"};
  CHECK(messages(titan) ==
        "--set: a configuration of torchtitan has no variables, only launch scripts of Megatron-LM have; leave --set "
        "out\n"
        "the arguments after --: only `lockstep import megatron` reads a framework's own arguments; give the file with "
        "the configuration of torchtitan in their place\n");
  ImportRequest arguments = megatron_request({});
  arguments.variables = {"TP=2"};
  CHECK(messages(arguments) == "--set: arguments have no variables, only a launch script has; leave --set out\n");
  ImportRequest script = request_of_file(
      "megatron", "run.sh", "python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads $HEADS\n");
  script.variables = {"HEAD=4"};
  CHECK(messages(script) == "--set: the script has no variable HEAD; did you mean \"HEADS\"?\n");
  script.variables = {"HEADS=4"};
  CHECK(messages(script).empty());
}

TEST_CASE("a number of ranks in the place of the configuration's is told") {
  const auto told = [](const ImportRequest& request) {
    std::string found;
    for (const std::string& one : import_configuration(request).assumed)
      if (one.starts_with("--world-size: ")) found += one;
    return found;
  };
  const std::string script =
      "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4\n";
  CHECK(told(request_of_file("megatron", "run.sh", script, 16)) ==
        "--world-size: 16 ranks in the place of 4 that the configuration says.");
  for (const int same : {0, 4}) CHECK(told(request_of_file("megatron", "run.sh", script, same)).empty());
  const std::string neox =
      "{ \"num_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4, \"train_micro_batch_size_per_gpu\": 1, "
      "\"global_num_gpus\": 8 }";
  CHECK(told(request_of_file("gpt-neox", "n.yml", neox, 16)) ==
        "--world-size: 16 ranks in the place of 8 that the configuration says.");
}

TEST_CASE("numbers of ranks that nobody has are refused") {
  CHECK(messages(megatron_request({}, -1)) == "--world-size: expected a number between 1 and 1048576, found -1\n");
  CHECK(messages(megatron_request({}, 1'048'577)) ==
        "--world-size: expected a number between 1 and 1048576, found 1048577\n");
  CHECK(messages(megatron_request({"--tensor-model-parallel-size", "0"})) ==
        "--tensor-model-parallel-size: expected a size between 1 and 1048576, found 0\n");
  CHECK(messages(
            megatron_request({"--tensor-model-parallel-size", "1000000", "--pipeline-model-parallel-size", "1000000"}))
            .starts_with("tensor 1000000 × pipeline 1000000 × context 1 are more than 1048576 ranks\n"));
}

TEST_CASE("an empty configuration is told as one, and a broken one is told alone") {
  for (const char* text : {"", " \n"}) {
    CHECK(messages(request_of_file("deepspeed", "d.json", text, 0)) == "d.json is empty; expected a configuration\n");
    CHECK(messages(request_of_file("torchtitan", "t.json", text, 0)) == "t.json is empty; expected a configuration\n");
  }
  for (const char* text : {"{}", "# nothing\n", "// nothing\n{ }\n"})
    CHECK(messages(request_of_file("deepspeed", "d.json", text, 0)) ==
          "d.json has no keys; expected a configuration\n");
  CHECK(messages(request_of_file("deepspeed", "d.json", "{ \"a\": ", 0)) == "expected a value\n");
  if (is_readable("n.yaml")) {
    CHECK(messages(request_of_file("nanotron", "n.yaml", "{}", 0)) == "n.yaml has no keys; expected a configuration\n");
    CHECK(messages(request_of_file("gpt-neox", "n.yml", "just words", 0)) ==
          "expected keys and values at the top of the file, found a text\n");
  }
}

TEST_CASE("a boolean that is none is told with what was found") {
  CHECK(messages(request_of_file("deepspeed", "d.json",
                                 "{ \"train_batch_size\": 8, \"zero_optimization\": { \"overlap_comm\": 3 } }")) ==
        "zero_optimization.overlap_comm: expected true or false, found 3\n");
  CHECK(messages(
            request_of_file("deepspeed", "d.json", "{ \"train_batch_size\": 8, \"disable_allgather\": \"maybe\" }")) ==
        "disable_allgather: expected true or false, found a text\n");
  if (!is_readable("m.yaml")) return;
  CHECK(messages(request_of_file("megatron", "m.yaml", "MODEL_ARGS:\n  --use-distributed-optimizer: [1]\n")) ==
        "--use-distributed-optimizer: expected true or false, found a list\n");
}

TEST_CASE("what the scenario is refused for is told at the keys that it stems from") {
  CHECK(mistakes(request_of_file("deepspeed", "ds.json",
                                 "{ \"train_batch_size\": 8, \"zero_optimization\": {\n  \"stage\": 7 } }")) ==
        "ds.json:2:12: error: zero_optimization.stage: \"zero_stage\": expected one of 0, 1, 2, 3, found the number 7\n"
        "    2 |   \"stage\": 7 } }\n"
        "      |            ^\n");
  ImportRequest deep = request_of_file("deepspeed", "ds.json", "{ \"train_batch_size\": 16 }", 16);
  deep.pp = 16;
  CHECK(messages(deep) == "--pp: 12 layers cannot fill pp * virtual_stages = 16 * 1 stages: some would be empty\n");
  CHECK(messages(megatron_request({"--num-distributed-optimizer-instances", "2"}))
            .starts_with("--num-distributed-optimizer-instances: Partial DistOpt cannot be used without DistOpt"));
}

TEST_CASE("a mistake in one size is told once, with the number of parameters that share it") {
  CHECK(messages(megatron_request({"--ffn-hidden-size", "1001", "--tensor-model-parallel-size", "2"})) ==
        "--ffn-hidden-size: the parameter \"decoder.layers.0.mlp.linear_fc1.weight\" has 1001 elements to cut in "
        "dimension 0, which tp = 2 does not divide; pad the dimension, or write \"uneven\": true to cut it as "
        "torch.chunk does; tp is --tensor-model-parallel-size (and 35 more like this)\n");
}

TEST_CASE("layers and heads that do not divide are refused in Megatron's words") {
  CHECK(messages(megatron_request({"--pipeline-model-parallel-size", "8"})) ==
        "--num-layers: Number of layers should be divisible by the pipeline-model-parallel size (Megatron's words); "
        "found "
        "12 layers on 8 stages; without a remainder they are dealt out with --decoder-first-pipeline-num-layers, "
        "--decoder-last-pipeline-num-layers or --pipeline-model-parallel-layout\n");
  CHECK(
      messages(megatron_request({"--pipeline-model-parallel-size", "4", "--decoder-first-pipeline-num-layers", "2"})) ==
      "--decoder-first-pipeline-num-layers: With uneven pipelineing the left over layers must be divisible by left "
      "over "
      "stages (Megatron's words); found 10 layers for 3 stages\n");
  CHECK(messages(
            megatron_request({"--pipeline-model-parallel-size", "4", "--num-virtual-stages-per-pipeline-rank", "2"})) ==
        "--num-layers: num_layers_per_pipeline_rank 3 should be divisible by vp_size 2 (Megatron's words)\n");
  CHECK(messages(megatron_request(
            {"--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout", "Et*6|t*5L"})) ==
        "--pipeline-model-parallel-layout: Number of decoder layers 11 must match num_layers 12 (Megatron's words)\n");
  CHECK(messages(megatron_request({"--tensor-model-parallel-size", "16"}, 16)) ==
        "--num-attention-heads: num_attention_heads (8) must be a multiple of tensor_model_parallel_size (16) "
        "(Megatron's "
        "words)\n");
  CHECK(
      messages(megatron_request({"--num-experts", "8"})) ==
      "--num-experts: lockstep's presets have experts without biases only; give --size linear_bias=false to leave out "
      "all biases\n");
}

TEST_CASE("a number of buckets becomes the size that Megatron computes from a rank's parameters") {
  const std::vector<std::string> overlap = {"--use-distributed-optimizer", "--overlap-grad-reduce", "--ddp-num-buckets",
                                            "4"};
  const Imported imported = import_configuration(megatron_request(overlap));
  const Scenario scenario = read_imported(imported, "scenario");
  std::int64_t parameters = 0;
  for (const LocalBuffer& buffer : scenario.schedule->model.local(0).buffers) parameters += buffer.numel;
  CHECK(imported.scenario.find("schedule")->find("options")->find("ddp_bucket_size")->text() ==
        std::to_string(parameters / 4));
  CHECK(import_configuration(megatron_request({"--ddp-num-buckets", "4"})).scenario.find("schedule")->find("options") ==
        nullptr);
  CHECK(messages(megatron_request({"--ddp-num-buckets", "4", "--ddp-bucket-size", "100"})) ==
        "--ddp-num-buckets: Cannot specify both num_buckets and bucket_size (Megatron's words)\n");
}
