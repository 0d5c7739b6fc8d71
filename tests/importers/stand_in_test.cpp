// SPDX-License-Identifier: Apache-2.0
// --model with Megatron's arguments: a model of lockstep's in the place of one that it does not describe.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/importer.h"
#include "tests/catch.h"
#include "tests/importers/requests.h"

using namespace lockstep;
using namespace lockstep::importers;

namespace {

const std::string sizes = "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --max-position-embeddings 32 ";
const std::string layout = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 ";

ImportRequest stand_in_request(const std::string& program, const std::string& arguments, const std::string& model) {
  ImportRequest request =
      request_of_file("megatron", "train.sh", "torchrun --nproc_per_node 8 " + program + " " + arguments + "\n", 0);
  request.model = model;
  return request;
}

std::string text_at(const Imported& imported, const char* object, const char* key) {
  const Json* found = imported.scenario.find(object)->find(key);
  return found != nullptr ? found->text() : "";
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool list_says(const Imported& imported, const std::string& part) {
  return std::any_of(imported.assumed.begin(), imported.assumed.end(),
                     [&](const std::string& one) { return says(one, part); });
}

constexpr const char* biases = "the biases of experts";

}  // namespace

TEST_CASE("keys of a part that is not judged are listed as that, not as keys that do not matter") {
  const std::string arguments = sizes + "--softmax-type learnable --attention-output-gate --lr 1 ";
  const Imported imported = import_configuration(stand_in_request("pretrain_gpt.py", arguments, "gpt"));
  CHECK(imported.not_judged == std::vector<std::string>{"--softmax-type", "--attention-output-gate"});
  REQUIRE(imported.ignored.size() == 1);
  CHECK(imported.ignored.front().key == "--lr");
  CHECK(std::none_of(imported.used.begin(), imported.used.end(),
                     [](const ImportedKey& one) { return one.key == "--softmax-type"; }));
}

TEST_CASE("a model that is no GPT is refused with --model as the way on, and with it its layout is imported") {
  for (const auto& [program, arguments, special] :
       {std::tuple("pretrain_bert.py", sizes, "pretrain_bert.py"),
        std::tuple("pretrain_gpt.py", sizes + "--spec my.module my_spec ", "--spec"),
        std::tuple("pretrain_gpt.py", sizes + "--attention-output-gate ", "--attention-output-gate"),
        std::tuple("pretrain_gpt.py", sizes + "--use-checkpoint-args ", "--use-checkpoint-args"),
        std::tuple("tasks/main.py", sizes + "--task MNLI ", "--task"),
        std::tuple("train.py", sizes + "--language-model-type mistral --use-tiling --num-frames 2 ",
                   "--language-model-type"),
        std::tuple("pretrain_gpt.py", sizes + "--num-experts 4 --sequence-parallel ", biases)}) {
    const std::string refused = messages(stand_in_request(program, layout + arguments, ""));
    CHECK(says(refused, special == std::string(biases) ? "--size linear_bias=false" : "--model "));
    const Imported imported = import_configuration(stand_in_request(program, layout + arguments, "gpt"));
    CHECK(text_at(imported, "layout", "tp") == "2");
    CHECK(text_at(imported, "layout", "dp") == "2");
    CHECK(text_at(imported, "model", "preset") == "gpt");
    CHECK(text_at(imported, "model", "layers") == "4");
    CHECK(says(imported.scenario.find("title")->text(), ", gpt in the place of its model, judged as "));
    CHECK(list_says(imported, std::string("--model gpt stands in for the model, with the sizes that are given here: "
                                          "layout and schedule are judged, and nothing that is special to ") +
                                  special + "."));
    CHECK(read_imported(imported, "scenario").schedule != nullptr);
  }
}

TEST_CASE("sizes that the arguments do not give are those of the model that stands in") {
  const std::string checkpoint = layout + "--use-checkpoint-args ";
  CHECK(says(messages(stand_in_request("pretrain_gpt.py", checkpoint, "")), "num_layers is not given"));
  const Imported imported = import_configuration(stand_in_request("pretrain_gpt.py", checkpoint, "llama3-8b"));
  CHECK(text_at(imported, "model", "preset") == "llama3-8b");
  CHECK(text_at(imported, "model", "layers").empty());
  CHECK(list_says(
      imported, "special to --use-checkpoint-args; num_layers, hidden_size, num_attention_heads are llama3-8b's own."));
  CHECK_FALSE(list_says(imported, "with the sizes that are given here"));
  const std::string without_layers = "--hidden-size 64 --num-attention-heads 8 --max-position-embeddings 32 ";
  CHECK(list_says(import_configuration(stand_in_request("pretrain_gpt.py", without_layers, "gpt")),
                  "are judged; num_layers is gpt's own."));
  CHECK(read_imported(imported, "scenario").schedule != nullptr);
  const std::string both = "--encoder-num-layers 6 --decoder-num-layers 6 --hidden-size 64 --num-attention-heads 8 ";
  const Imported halves = import_configuration(stand_in_request("pretrain_t5.py", both, "gpt"));
  CHECK(text_at(halves, "model", "layers") == "6");
  CHECK(list_says(halves, "with the sizes that are given here"));
  CHECK_FALSE(list_says(halves, "trains a GPT model"));
}

TEST_CASE("no model stands in for one that is described, for a layout, or for a loss") {
  CHECK(says(messages(stand_in_request("pretrain_gpt.py", layout + sizes, "gpt")), "leave --model out"));
  const std::string of_checkpoint = sizes + "--use-checkpoint-args --use-mp-args-from-checkpoint-args ";
  CHECK(says(messages(stand_in_request("pretrain_gpt.py", of_checkpoint, "gpt")), "from the checkpoint"));
  CHECK(says(messages(stand_in_request("pretrain_bert.py", sizes + "--perform-rl-step ", "gpt")),
             "the losses of reinforcement learning"));
  CHECK(says(messages(stand_in_request("train.py", sizes + "--language-model-type a --use-loss-scaling ", "gpt")),
             "weighs conversations by their lengths"));
  CHECK(says(messages(stand_in_request("pretrain_bert.py", sizes, "gpt9")), "there is no model \"gpt9\""));
  CHECK(says(messages(stand_in_request("pretrain_bert.py", sizes + "--unheard-of 1 ", "gpt")),
             "does not know the key \"--unheard-of\""));
}

TEST_CASE("the multimodal example divides by all tokens, whatever its arguments say") {
  const std::string arguments = sizes + "--language-model-type mistral ";
  const Imported imported = import_configuration(stand_in_request("train.py", arguments, "gpt"));
  const Scenario scenario = read_imported(imported, "scenario");
  CHECK(scenario.schedule->batch.loss("main").kind == Loss::Kind::token_mean);
}

TEST_CASE("latent attention without a rank of its queries projects them at once") {
  const std::string arguments = layout + sizes + "--multi-latent-attention --kv-lora-rank 16 --sequence-parallel ";
  const Imported imported = import_configuration(stand_in_request("pretrain_gpt.py", arguments, ""));
  CHECK(text_at(imported, "model", "q_lora_rank") == "0");
  const Scenario scenario = read_imported(imported, "scenario");
  const auto& parameters = scenario.schedule->model.parameters();
  const auto has = [&](const std::string& part) {
    return std::any_of(parameters.begin(), parameters.end(), [&](const auto& one) { return says(one.name, part); });
  };
  CHECK(has("linear_q_proj"));
  CHECK_FALSE(has("linear_q_down_proj"));
}

TEST_CASE("a schedule of batch sizes is imported with the number of micro-batches at one of them") {
  const std::string arguments = sizes + "--step-batch-size-schedule 0:16 ";
  CHECK(says(messages(stand_in_request("pretrain_gpt.py", arguments, "")), "changes over the training"));
  ImportRequest request = stand_in_request("pretrain_gpt.py", arguments, "");
  request.micro_batches = 3;
  CHECK(text_at(import_configuration(request), "batch", "micro_batches") == "3");
}
