// SPDX-License-Identifier: Apache-2.0
// Megatron-DeepSpeed: Megatron's arguments beside a configuration of DeepSpeed. What becomes of right ones is in
// cases/.
#include <algorithm>
#include <memory>
#include <string>

#include "lockstep/importer.h"
#include "tests/catch.h"
#include "tests/importers/requests.h"

using namespace lockstep;
using importers::messages;
using importers::request_of_file;

namespace {

const std::string handing_over =
    "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 8 --seq-length 32 "
    "--max-position-embeddings 32 --vocab-size 1000 --micro-batch-size 1 --global-batch-size 8 ";

/// The mistakes of these arguments beside this configuration; "" of it: there is none.
std::string mistakes_beside(const std::string& arguments, const std::string& configuration) {
  ImportRequest request = request_of_file("megatron", "train.sh", handing_over + arguments + "\n", 0);
  if (!configuration.empty()) request.files.push_back(std::make_shared<const Source>(Source{"ds.json", configuration}));
  return messages(request);
}

/// Of ZeRO `stage`, with `more` behind.
std::string zero_of(int stage, const std::string& more = "") {
  return R"({ "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": )" +
         std::to_string(stage) + " }" + more + " }";
}

bool tells(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("DeepSpeed's configuration is asked for where the script hands the gradients to it, and only there") {
  CHECK(tells(mistakes_beside("--deepspeed --deepspeed_config x.json", ""), "give it as a second file"));
  CHECK(mistakes_beside("--deepspeed", zero_of(1)).empty());
  CHECK(mistakes_beside("", zero_of(1)) ==
        "expected one configuration of Megatron-LM, found 2 files; give one of them\n");
}

TEST_CASE("DeepSpeed's configuration may stand beside arguments, too") {
  ImportRequest request;
  request.format = "megatron";
  request.world = 8;
  request.arguments = importers::split_at_spaces(
      "--deepspeed --num-layers 4 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 32 --vocab-size "
      "1000 --micro-batch-size 1 --global-batch-size 8");
  CHECK(tells(messages(request), "lockstep import megatron DEEPSPEED_CONFIGURATION -- ARGUMENTS"));
  request.files = {std::make_shared<const Source>(Source{"ds.json", zero_of(1)})};
  CHECK(import_configuration(request).scenario.find("schedule")->find("framework")->text() == "deepspeed");
  request.arguments.erase(request.arguments.begin());
  CHECK(tells(messages(request), "expected a file or the arguments after --, found both"));
}

TEST_CASE("keys of both sides are judged: those of DeepSpeed too") {
  CHECK(tells(mistakes_beside("--deepspeed", zero_of(1, R"(, "amp": { "enabled": true })")),
              "DeepSpeed 0.19.8 refuses this key"));
  CHECK(tells(mistakes_beside("--deepspeed", zero_of(1, R"(, "another": 1)")),
              "lockstep does not know the key \"another\""));
  CHECK(tells(mistakes_beside("--deepspeed --another", zero_of(1)), "lockstep does not know the key \"--another\""));
  // Megatron's own optimizer does not run: its options are none of DeepSpeed's.
  CHECK(mistakes_beside("--deepspeed --use-distributed-optimizer --clip-grad 2", zero_of(1)).empty());
}

TEST_CASE("keys that DeepSpeed has removed are left out where that is asked for and they say nothing of gradients") {
  const auto imported = [](const std::string& more) {
    ImportRequest request = request_of_file("megatron", "train.sh", handing_over + "--deepspeed\n", 0);
    request.files.push_back(std::make_shared<const Source>(Source{"ds.json", zero_of(2, more)}));
    request.ignore_unknown = true;
    return request;
  };
  const std::string removed =
      R"(, "curriculum_learning": { "enabled": true, "params": { "a": 1 } }, "compression_training": { "x": { "enabled": true } })";
  CHECK(tells(mistakes_beside("--deepspeed", zero_of(2, removed)), "--ignore-unknown judges the rest without it"));
  const Imported without = import_configuration(imported(""));
  const Imported with = import_configuration(imported(removed));
  CHECK(with.scenario.same_as(without.scenario));
  CHECK(with.unknown == std::vector<std::string>{"curriculum_learning.enabled", "curriculum_learning.params.a",
                                                 "compression_training.x.enabled"});
  const auto told = [&](const char* sentence) {
    return std::find(with.assumed.begin(), with.assumed.end(), sentence) != with.assumed.end();
  };
  CHECK(told("DeepSpeed 0.19.8 refuses curriculum_learning: what is judged is the configuration without it."));
  // These change how gradients are reduced, or what they are.
  for (const char* key : {"amp", "progressive_layer_drop", "elasticity", "sparse_gradients"}) {
    const std::string text = messages(imported(", \"" + std::string(key) + R"(": { "enabled": true })"));
    CHECK(tells(text, "DeepSpeed 0.19.8 refuses this key"));
    CHECK_FALSE(tells(text, "--ignore-unknown"));
  }
}

TEST_CASE("batches of both sides are the same") {
  CHECK(tells(mistakes_beside("--deepspeed --global-batch-size 16", zero_of(1)),
              "--global-batch-size: it is 16, but DeepSpeed's train_batch_size is 8"));
  CHECK(tells(mistakes_beside("--deepspeed --micro-batch-size 2", zero_of(1)),
              "--micro-batch-size: it is 2, but DeepSpeed's train_micro_batch_size_per_gpu is 1"));
  CHECK(tells(mistakes_beside("--deepspeed", R"({ "zero_optimization": { "stage": 1 } })"), "needs to be provided"));
}

TEST_CASE("Megatron's number of micro-batches is DeepSpeed's, whichever keys say it") {
  const std::string micro = R"("train_micro_batch_size_per_gpu": 1)", batch = R"("train_batch_size": 16)";
  const auto mistakes = [](const std::string& arguments, const std::string& keys) {
    return mistakes_beside("--deepspeed " + arguments, "{ " + keys + R"(, "zero_optimization": { "stage": 1 } })");
  };
  for (const std::string engine : {"--no-pipeline-parallel ", ""}) {
    const std::string two = engine + "--global-batch-size 16 ";
    CHECK(mistakes(two, micro + R"(, "gradient_accumulation_steps": 2)").empty());
    CHECK(
        tells(mistakes(two, micro + R"(, "gradient_accumulation_steps": 4)"),
              "--global-batch-size: Megatron runs 2 micro-batches (16 / (1 × 8 data-parallel ranks)), but DeepSpeed's "
              "configuration says 4"));
    CHECK(tells(mistakes(two, micro), "Megatron runs 2 micro-batches"));
    // Of the batch alone DeepSpeed makes one micro-batch.
    CHECK(tells(mistakes(two, batch), "configuration says 1"));
    CHECK(mistakes(two + "--micro-batch-size 2", batch).empty());
    CHECK(tells(mistakes(engine + "--global-batch-size 12", micro), "12 does not divide by micro_batch_size 1"));
    CHECK(tells(mistakes(engine + "--global-batch-size 0", micro), "expected a number of at least 1"));
    CHECK(tells(mistakes(engine + "--micro-batch-size 0", batch), "expected a number of at least 1"));
  }
}

TEST_CASE("without a global batch Megatron runs one micro-batch") {
  const std::string launch =
      "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 8 "
      "--seq-length 32 --max-position-embeddings 32 --micro-batch-size 1 --deepspeed --no-pipeline-parallel\n";
  const auto mistakes = [&](const std::string& batch) {
    ImportRequest request = request_of_file("megatron", "train.sh", launch, 0);
    request.files.push_back(std::make_shared<const Source>(
        Source{"ds.json", R"({ "train_micro_batch_size_per_gpu": 1, "train_batch_size": )" + batch + " }"}));
    return messages(request);
  };
  CHECK(tells(mistakes("16"),
              "train_batch_size: Megatron runs 1 micro-batch (2 / (1 × 2 data-parallel ranks)), but DeepSpeed's "
              "configuration says 8"));
  CHECK(mistakes("2").empty());
}

TEST_CASE("what Megatron-DeepSpeed or DeepSpeed refuses is refused") {
  // The pipeline engine runs one stage as well.
  CHECK(tells(mistakes_beside("--deepspeed", zero_of(2)), "pipeline engine refuses ZeRO stage 2"));
  CHECK(mistakes_beside("--deepspeed --no-pipeline-parallel", zero_of(2)).empty());
  CHECK(tells(mistakes_beside("--deepspeed --no-pipeline-parallel --pipeline-model-parallel-size 2", zero_of(1)),
              "pipeline_model_parallel_size must be 1"));
  CHECK(tells(mistakes_beside("--deepspeed --ds-sequence-parallel-size 2 --tensor-model-parallel-size 2", zero_of(1)),
              "does not work with tensor parallel"));
  CHECK(tells(mistakes_beside("--deepspeed --ds-sequence-parallel-size 2", zero_of(1)),
              "with --no-pipeline-parallel alone"));
  CHECK(tells(mistakes_beside("--deepspeed --no-pipeline-parallel --zero-stage 3", zero_of(1)),
              "--zero-stage: it is 3, but DeepSpeed's configuration says stage 1"));
}

TEST_CASE("what nobody has measured of Megatron-DeepSpeed is not judged") {
  CHECK(tells(mistakes_beside("--deepspeed --sequence-parallel --tensor-model-parallel-size 2", zero_of(1)),
              "lockstep does not judge it"));
  CHECK(mistakes_beside("--deepspeed --sequence-parallel", zero_of(1)).empty());
  CHECK(tells(mistakes_beside("--deepspeed --num-experts 64 64 128 --mlp-type residual", zero_of(1)),
              "no experts as Megatron-DeepSpeed builds them"));
  CHECK(mistakes_beside("--deepspeed --num-experts 1 --moe-expert-parallel-size 8", zero_of(1)).empty());
  CHECK(tells(mistakes_beside("--deepspeed --num-experts 2", zero_of(1)), "no experts as Megatron-DeepSpeed"));
  CHECK(tells(mistakes_beside("--deepspeed --mos", zero_of(1)), "loss of distillation"));
}

TEST_CASE("one expert is listed with its number, and is a dense layer") {
  ImportRequest request = request_of_file("megatron", "train.sh", handing_over + "--deepspeed --num-experts 1\n", 0);
  request.files.push_back(std::make_shared<const Source>(Source{"ds.json", zero_of(1)}));
  const Imported imported = import_configuration(request);
  const auto row = std::find_if(imported.used.begin(), imported.used.end(),
                                [](const ImportedKey& key) { return key.key == "--num-experts"; });
  REQUIRE(row != imported.used.end());
  CHECK(row->value == "1");
  CHECK(row->meaning == "nothing: one expert is a dense layer");
  CHECK(imported.scenario.find("model")->find("experts") == nullptr);
}

TEST_CASE("without --deepspeed its arguments are no silent Megatron-LM") {
  CHECK(tells(mistakes_beside("--ds-sequence-parallel-size 2", ""), "with --deepspeed alone"));
  CHECK(mistakes_beside("--ds-sequence-parallel-size 1 --zero-stage 1", "").empty());
  CHECK(mistakes_beside("--topk 2 --expert-interval 2 --create-moe-param-group", "").empty());
}

TEST_CASE("experts beside an argument of Megatron-DeepSpeed are not those of Megatron-LM") {
  const std::string experts = "--disable-bias-linear --num-experts 4 ";
  CHECK(mistakes_beside(experts, "").empty());
  CHECK(mistakes_beside(experts + "--log-batch-size-to-tensorboard", "").empty());
  for (const std::string argument : {"--topk 2", "--expert-interval 2", "--create-moe-param-group",
                                     "--enable-expert-tensor-parallelism", "--moe-loss-coeff 0.01", "--zero-stage 1"})
    CHECK(tells(mistakes_beside(experts + argument, ""), "--num-experts: Megatron-LM does not know " +
                                                             argument.substr(0, argument.find(' ')) +
                                                             ", which stands beside it"));
}
