// SPDX-License-Identifier: Apache-2.0
// What is wrong with a configuration is said at its place, and no secret is shown.
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

const std::string model =
    " --num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 1000 --micro-batch-size 1 ";

ImportRequest arguments(const std::string& text, std::int64_t world = 8) {
  ImportRequest request;
  request.format = "megatron";
  request.arguments = split_at_spaces(text);
  request.world = world;
  return request;
}

/// All mistakes as they are shown; "" where there is none.
std::string import_mistakes(const ImportRequest& request) {
  try {
    import_configuration(request);
    return "";
  } catch (const InputError& error) {
    std::string text;
    for (const Diagnostic& diagnostic : error.diagnostics()) text += render(diagnostic);
    return text;
  }
}

std::string script(const std::string& text) { return "TP=2\n" + text; }

}  // namespace

TEST_CASE("an unknown key names its place, the nearest known key and the way out, and hides what is beside it") {
  CHECK(import_mistakes(arguments("--hf-token hf_abcdef --tensor-model-paralel-size 2" + model)) ==
        "arguments:1:1: error: lockstep does not know the key \"--hf-token\", and it may matter; --ignore-unknown "
        "leaves it out\n"
        "    1 | --hf-token ********* --tensor-model-paralel-size 2 --num-layers 2 --hidden-size 64 "
        "--num-attention-heads 4 --voc…\n"
        "      | ^~~~~~~~~~\n"
        "arguments:1:22: error: lockstep does not know the key \"--tensor-model-paralel-size\", and it may matter; did "
        "you mean "
        "\"--tensor-model-parallel-size\"?\n"
        "    1 | --hf-token ********* --tensor-model-paralel-size 2 --num-layers 2 --hidden-size 64 "
        "--num-attention-heads 4 --voc…\n"
        "      |                      ^~~~~~~~~~~~~~~~~~~~~~~~~~~\n");
  ImportRequest request = arguments("--hf-token hf_abcdef" + model);
  request.ignore_unknown = true;
  CHECK(import_configuration(request).unknown == std::vector<std::string>{"--hf-token"});
}

TEST_CASE("a value that is none is a mistake at the value") {
  CHECK(import_mistakes(arguments("--tensor-model-parallel-size two" + model)) ==
        "arguments:1:30: error: --tensor-model-parallel-size: expected a whole number of at most 12 digits, found a "
        "text\n"
        "    1 | --tensor-model-parallel-size *** --num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size "
        "1000 --mic…\n"
        "      |                              ^~~\n");
  CHECK(
      import_mistakes(request_of_file(
          "deepspeed", "ds.json", "{ \"train_batch_size\": 8,\n  \"zero_optimization\": { \"stage\": \"two\" }\n}")) ==
      "ds.json:2:35: error: zero_optimization.stage: expected a whole number of at most 12 digits, found a text\n"
      "    2 |   \"zero_optimization\": { \"stage\": \"***\" }\n"
      "      |                                   ^~~~~\n");
  CHECK(
      import_mistakes(arguments("--normalization BatchNorm" + model)).find("lockstep knows LayerNorm, RMSNorm here") !=
      std::string::npos);
}

TEST_CASE("ranks that do not divide are refused with the sizes") {
  CHECK(import_mistakes(arguments("--tensor-model-parallel-size 3" + model)) ==
        "error: 8 ranks do not divide by 3 (tensor 3 × pipeline 1 × context 1); give --world-size N, a multiple of 3\n"
        "arguments:1:86: error: --num-attention-heads: num_attention_heads (4) must be a multiple of "
        "tensor_model_parallel_size (3) (Megatron's words)\n"
        "    1 | …l-parallel-size 3 --num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 1000 "
        "--micro-batch-size 1\n"
        "      |                                                                          ^\n");
  CHECK(import_mistakes(arguments(model, 0)) == "error: the number of ranks is not known; give --world-size N\n");
  CHECK(
      import_mistakes(arguments("--tensor-model-parallel-size 2" + model, 0)) ==
      "error: the number of ranks is not known; give --world-size N, a multiple of 2 (tensor 2 × pipeline 1 × context "
      "1)\n");
  CHECK(import_mistakes(arguments("--global-batch-size 12" + model))
            .find("12 does not divide by micro_batch_size 1 times data-parallel size 8") != std::string::npos);
}

TEST_CASE("query groups are refused that tensor parallelism neither divides nor is divided by") {
  const auto with_groups = [](const std::string& groups, const std::string& tp) {
    return import_mistakes(
        arguments("--num-layers 2 --hidden-size 64 --num-attention-heads 8 --vocab-size 1000 --group-query-attention "
                  "--num-query-groups " +
                  groups + " --tensor-model-parallel-size " + tp));
  };
  const std::string words = "must be a multiple or divisor of tensor_model_parallel_size";
  CHECK(with_groups("2", "4").empty());
  CHECK(with_groups("4", "2").empty());
  CHECK(with_groups("4", "4").empty());
  CHECK(with_groups("3", "2").find("num_query_groups (3) " + words + " (2) (Megatron's words)") != std::string::npos);
  CHECK(with_groups("3", "4").find("num_query_groups (3) " + words + " (4) (Megatron's words)") != std::string::npos);
  CHECK(with_groups("0", "4").find("num_query_groups (0) " + words) != std::string::npos);
}

TEST_CASE("heads of a broken size are refused, and positions that it asks for are named") {
  const std::string odd = "--num-layers 2 --hidden-size 66 --num-attention-heads 4 --vocab-size 1000 ";
  CHECK(import_mistakes(arguments(odd)).find("hidden_size 66 must be divisible by num_attention_heads 4") !=
        std::string::npos);
  CHECK(import_mistakes(arguments(odd + "--kv-channels 16")).empty());
  const auto assumes_positions = [](const std::string& text) {
    const std::vector<std::string> assumed = import_configuration(arguments(text)).assumed;
    return std::any_of(assumed.begin(), assumed.end(), [](const std::string& sentence) {
      return sentence.find("max_position_embeddings is not given") != std::string::npos;
    });
  };
  CHECK(assumes_positions(model));
  CHECK_FALSE(assumes_positions(model + "--max-position-embeddings 128"));
  CHECK_FALSE(assumes_positions(model + "--position-embedding-type rope"));
}

TEST_CASE("what lockstep cannot describe is refused with the reason") {
  CHECK(import_mistakes(arguments("--use-megatron-fsdp" + model))
            .find("does not describe the schedule of Megatron-FSDP") != std::string::npos);
  CHECK(import_mistakes(arguments("--optimizer dist_muon" + model)).find("own whole parameters") != std::string::npos);
  for (const std::string optimizer : {"foo", "adamw-bnb-8bit"}) {
    const std::string told = import_mistakes(arguments("--optimizer " + optimizer + model));
    CHECK(told.find("lockstep does not know this optimizer") != std::string::npos);
    CHECK(told.find("whole parameters") == std::string::npos);
  }
  const auto deepspeed = [](const std::string& optimizer) {
    return import_mistakes(request_of_file(
        "deepspeed", "ds.json", R"({ "train_batch_size": 8, "optimizer": { "type": ")" + optimizer + "\" } }"));
  };
  CHECK(deepspeed("OneBitAdam").find("exchange compressed momenta") != std::string::npos);
  CHECK(deepspeed("Foo").find("lockstep does not know this optimizer") != std::string::npos);
  CHECK(deepspeed("AdamW").empty());
  if (is_readable("t.toml"))
    CHECK(import_mistakes(request_of_file("torchtitan", "t.toml", "[model]\nname = \"llama3\"\nflavor = \"9B\"\n"))
              .find("give --model PRESET") != std::string::npos);
}

TEST_CASE("a variable that a script does not set is named with its line, where it matters") {
  const std::string launch = "torchrun --nproc_per_node 8 pretrain_gpt.py" + model + "--position-embedding-type rope ";
  CHECK(import_mistakes(
            request_of_file("megatron", "run.sh", script(launch + "--tensor-model-parallel-size $TP --save $WHERE\n")))
            .empty());
  CHECK(import_mistakes(request_of_file("megatron", "run.sh", script(launch + "--tensor-model-parallel-size $TQ\n"))) ==
        "run.sh:2:200: error: --tensor-model-parallel-size: the variable TQ is not set in this script; give --set "
        "TQ=VALUE\n"
        "    2 | …n-heads 4 --vocab-size 1000 --micro-batch-size 1 --position-embedding-type **** "
        "--tensor-model-parallel-size $TQ\n"
        "      |                                                                                                       "
        "        ^~~\n");
  CHECK(import_mistakes(
            request_of_file("megatron", "run.sh",
                            script("if true; then TP=4; fi\n" + launch + "--tensor-model-parallel-size $TP\n")))
            .find("TP is set in line 2, which may not be executed") != std::string::npos);
  CHECK(import_mistakes(request_of_file("megatron", "run.sh", script(launch + "$MORE\n")))
            .find("MORE is not set in this script; give --set MORE=VALUE; it may hold arguments") != std::string::npos);
  ImportRequest request = request_of_file("megatron", "run.sh", script(launch + "$MORE\n"));
  request.variables = {"MORE=--tensor-model-parallel-size 4"};
  CHECK(import_configuration(request).scenario.find("layout")->find("tp")->text() == "4");
}

TEST_CASE("an argument of the script is named as one") {
  const std::string launch = "torchrun --nproc_per_node 8 pretrain_gpt.py" + model + "--position-embedding-type rope ";
  CHECK(import_mistakes(request_of_file("megatron", "run.sh", launch + "--tensor-model-parallel-size $1\n"))
            .find("--tensor-model-parallel-size: $1 is an argument of the script; give --set 1=VALUE\n") !=
        std::string::npos);
  CHECK(import_mistakes(request_of_file("megatron", "run.sh", launch + "\"$@\"\n"))
            .find("$@ are the arguments of the script; give --run, and them after --; it may hold arguments") !=
        std::string::npos);
}

TEST_CASE("comments that stand as keys of a JSON file are left out") {
  const std::string text =
      R"({ "_comment": "why", "train_batch_size": 8, "activation_checkpointing": { "_comment_2": "x" } })";
  CHECK(importers::messages(request_of_file("deepspeed", "ds.json", text)).empty());
  // Not where DeepSpeed itself takes no key that it does not know.
  CHECK(
      importers::messages(request_of_file("deepspeed", "ds.json",
                                          R"({ "train_batch_size": 8, "fp16": { "_comment": "x", "enabled": true } })"))
          .find("DeepSpeed 0.19.8 refuses this key: it knows none of that name in fp16; --ignore-unknown") !=
      std::string::npos);
}

TEST_CASE("a number of processes that is not known leaves the ranks open, whatever the batch system starts") {
  for (const char* count : {"--nproc_per_node=$GPUS", "--nproc-per-node $GPUS", "--nproc_per_node gpu"}) {
    INFO(count);
    const std::string launch = std::string("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\ntorchrun --nnodes 2 ") +
                               count + " pretrain_gpt.py" + model + "\n";
    CHECK(import_mistakes(request_of_file("megatron", "run.sh", launch, 0)).find("the number of ranks is not known") !=
          std::string::npos);
  }
}

TEST_CASE("a script without a training, or with two, is refused") {
  CHECK(import_mistakes(request_of_file("megatron", "run.sh", "echo nothing\n"))
            .find("has no command with three or more arguments") != std::string::npos);
  const std::string launch = "python pretrain_gpt.py" + model + "\n";
  CHECK(import_mistakes(request_of_file("megatron", "run.sh", launch + launch))
            .find("more than once, in lines 1 and 2") != std::string::npos);
}

TEST_CASE("broken syntax is a mistake at its place") {
  CHECK(import_mistakes(request_of_file("deepspeed", "ds.json", "{ \"a\": ")).find("ds.json:1:8: error: ") == 0);
  CHECK(import_mistakes(request_of_file("deepspeed", "ds.json", "{ \"a\": 1, \"a\": 2 }"))
            .find("the key \"a\" is given twice") != std::string::npos);
  if (!is_readable("n.yaml") || !is_readable("t.toml")) return;
  CHECK(import_mistakes(request_of_file("nanotron", "n.yaml", "a: [1, 2\nb: 3")).find("n.yaml:") == 0);
  CHECK(import_mistakes(request_of_file("nanotron", "n.yaml", "parallelism:\n  tp: 1\n  tp: 2\n"))
            .find("given twice with different values, first in line 2") != std::string::npos);
  CHECK(import_mistakes(request_of_file("torchtitan", "t.toml", "[model\n")).find("t.toml:") == 0);
  CHECK(import_mistakes(request_of_file("torchtitan", "t.toml", "[model]\nname = \n\n[training]\n"))
            .find("t.toml:2:8: ") == 0);
  CHECK(import_mistakes(request_of_file("gpt-neox", "n.yml", "")).find("empty") != std::string::npos);
}

TEST_CASE("a key in two GPT-NeoX files is refused, and a dash is an underscore") {
  if (!is_readable("a.yml")) return;
  ImportRequest request = request_of_file("gpt-neox", "a.yml", "{ \"num-layers\": 2 }");
  request.files.push_back(std::make_shared<const Source>(Source{"b.yml", "num_layers: 2\n"}));
  CHECK(import_mistakes(request).find("b.yml:1:1: error: the key \"num_layers\" is given in a.yml already") !=
        std::string::npos);
}

TEST_CASE("an argument with underscores is none of Megatron-LM's, and is not left out where it shapes the layout") {
  const std::string text = "--tensor_model_parallel_size 2" + model;
  const std::string said =
      "arguments:1:1: error: lockstep does not know the key \"--tensor_model_parallel_size\"; did you mean "
      "\"--tensor-model-parallel-size\"? That shapes the layout or the batch, so that this one is not left out: write "
      "it "
      "so, or take it away\n"
      "    1 | --tensor_model_parallel_size 2 --num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size "
      "1000 "
      "--micro…\n"
      "      | ^~~~~~~~~~~~~~~~~~~~~~~~~~~~\n";
  CHECK(import_mistakes(arguments(text)) == said);
  ImportRequest request = arguments(text);
  request.ignore_unknown = true;
  CHECK(import_mistakes(request) == said);
  request = arguments("--wandb_name 2" + model);
  request.ignore_unknown = true;
  CHECK(import_configuration(request).unknown == std::vector<std::string>{"--wandb_name"});
}

TEST_CASE("accelerate's keys stand where accelerate knows them") {
  if (!is_readable("a.yml")) return;
  const auto mistakes = [](const std::string& text) {
    ImportRequest request = request_of_file("accelerate", "a.yml", text, 0);
    return import_mistakes(request);
  };
  const std::string fsdp = "distributed_type: FSDP\nnum_processes: 8\n";
  const std::string deepspeed = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: { zero_stage: 2 }\n";
  CHECK(mistakes(fsdp).empty());
  CHECK(mistakes(deepspeed).empty());
  for (const auto& [text, words] : {
           std::pair(fsdp + "gradient_accumulation_steps: 8\n", "give --micro-batches N"),
           std::pair(deepspeed + "gradient_accumulation_steps: 8\n",
                     "did you mean \"deepspeed_config.gradient_accumulation_steps\"?"),
           std::pair(deepspeed + "zero_stage: 3\n", "did you mean \"deepspeed_config.zero_stage\"?"),
           std::pair(deepspeed + "zero_optimization: { stage: 1 }\n", "it is one of DeepSpeed's own file"),
           std::pair(deepspeed + "num_proceses: 4\n", "did you mean \"num_processes\"?"),
           std::pair(fsdp + "fsdp_version: 2\n", "did you mean \"fsdp_config.fsdp_version\"?"),
       }) {
    const std::string told = mistakes(text);
    INFO(told);
    CHECK(told.find("accelerate refuses this key, with any value") != std::string::npos);
    CHECK(told.find(words) != std::string::npos);
  }
  CHECK(mistakes("num_processes: 8\n").find("`distributed_type` must be specified") != std::string::npos);
  CHECK(mistakes(fsdp + "compute_environment: AMAZON_SAGEMAKER\n").find("not the one for SageMaker") !=
        std::string::npos);
  // What accelerate reads nowhere is no advice to write it at the top.
  ImportRequest request =
      request_of_file("accelerate", "a.yml",
                      "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n  "
                      "seq_parallel_communication_data_type: bf16\n",
                      0);
  CHECK(import_mistakes(request).find("accelerate reads no key of this name here") != std::string::npos);
  request.ignore_unknown = true;
  CHECK(import_configuration(request).unknown ==
        std::vector<std::string>{"deepspeed_config.seq_parallel_communication_data_type"});
}

TEST_CASE("a mesh that does not divide is told at its axes, and not at a size of the model with the same number") {
  const ImportRequest request = arguments(
      "--num-layers 32 --hidden-size 64 --num-attention-heads 4 --vocab-size 1000 --micro-batch-size 1 --num-experts 8 "
      "--disable-bias-linear --position-embedding-type rope --expert-model-parallel-size 8 "
      "--pipeline-model-parallel-size 4");
  std::string told;
  try {
    read_imported(import_configuration(request), "arguments");
  } catch (const InputError& error) {
    told = render(error.diagnostics().front());
  }
  INFO(told);
  CHECK(told.find("error: --expert-model-parallel-size: the expert mesh needs") != std::string::npos);
  CHECK(told.find("of --num-layers") == std::string::npos);
  CHECK(told.find("dp is --world-size") != std::string::npos);
}

TEST_CASE("accelerate without parallelism is one process, and nothing else was said of it") {
  if (!is_readable("a.yml")) return;
  ImportRequest request = request_of_file("accelerate", "a.yml", "distributed_type: 'NO'\nmixed_precision: bf16\n");
  request.world = 0;
  CHECK(import_configuration(request).scenario.find("layout")->find("dp") == nullptr);
  request.world = 8;
  const Imported imported = import_configuration(request);
  CHECK(imported.scenario.find("layout")->find("dp")->text() == "8");
  for (const std::string& one : imported.assumed) CHECK(one.find("in the place of") == std::string::npos);
}

TEST_CASE("sizes of torchtitan's mesh are read where versions of 2024 had them") {
  const auto titan = [](const std::string& text, std::int64_t world) {
    ImportRequest request =
        request_of_file("torchtitan", "t.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n" + text);
    request.world = world;
    return request;
  };
  const std::string sizes =
      "[training]\nbatch_size = 2\ntensor_parallel_degree = 8\ndata_parallel_replicate_degree = 2\n"
      "data_parallel_shard_degree = 4\n[experimental]\ncontext_parallel_degree = 2\n";
  const Imported imported = import_configuration(titan(sizes, 0));
  const Json& layout = *imported.scenario.find("layout");
  CHECK(layout.find("tp")->text() == "8");
  CHECK(layout.find("cp")->text() == "2");
  CHECK(layout.find("dp_replicate")->text() == "2");
  CHECK(layout.find("dp_shard")->text() == "4");
  CHECK(import_mistakes(titan(sizes + "pipeline_parallel_degree = 2\n", 0))
            .find("experimental.pipeline_parallel_degree: lockstep does not know into how many micro-batches") !=
        std::string::npos);
  CHECK(import_mistakes(titan("[training]\ntensor_parallel_degree = 8\n[parallelism]\ntensor_parallel_degree = 4\n", 8))
            .find("parallelism.tensor_parallel_degree is given as training.tensor_parallel_degree already") !=
        std::string::npos);
  CHECK(import_mistakes(titan("[experimental]\nbogus_sync_gradients = true\n", 8)).find("bogus_sync_gradients") !=
        std::string::npos);
}

TEST_CASE("an option of the schedule stands in the place of what the configuration says, and is checked with it") {
  ImportRequest request = arguments("--use-distributed-optimizer" + model);
  request.options = {"use_distributed_optimizer=false"};
  const Imported imported = import_configuration(request);
  CHECK(write_json(*imported.scenario.find("schedule")->find("options")) ==
        "{ \"use_distributed_optimizer\": false }\n");
  CHECK(imported.scenario.find("expect")->find("verdict")->text() == "match");
  request.options = {"use_distributed_optimiser=false"};
  try {
    read_imported(import_configuration(request), "arguments");
    FAIL("an option that the framework does not have was accepted");
  } catch (const InputError& error) {
    REQUIRE(error.diagnostics().size() == 1);
    CHECK(render(error.diagnostics().front()) ==
          "error: --option use_distributed_optimiser: \"use_distributed_optimiser\" is no option of framework "
          "\"megatron\"; did you mean \"use_distributed_optimizer\"?\n");
  }
  request.options = {"use_distributed_optimizer"};
  CHECK(import_mistakes(request) ==
        "error: --option takes NAME=VALUE, such as zero_stage=2; found \"use_distributed_optimizer\"\n");
}

TEST_CASE("a function and its call are one training, with the call's arguments where it passes them on") {
  const std::string arguments = model + "--tensor-model-parallel-size $TP ";
  const auto of = [](const std::string& text) {
    const Imported imported = import_configuration(importers::request_of_file("megatron", "run.sh", text));
    const Json* tp = imported.scenario.find("layout")->find("tp");
    return tp != nullptr ? tp->text() : "1";
  };
  for (const char* opening : {"start() {", "function start {", "function start() {", "start ()\n{"}) {
    INFO(opening);
    const std::string begin = std::string("TP=2\n") + opening;
    CHECK(of(begin + "\n  torchrun pretrain_gpt.py \"$@\"\n}\nstart" + arguments + "\n") == "2");
    CHECK(of(begin + "\n  torchrun pretrain_gpt.py" + arguments +
             "\n}\nstart --num-layers 2 --hidden-size 64 --bf16\n") == "2");
    CHECK(import_mistakes(request_of_file("megatron", "run.sh",
                                          begin + "\n  torchrun pretrain_gpt.py \"$@\"\n}\nstart" + arguments +
                                              "\nstart" + arguments + "--bf16\n"))
              .find("starts a training more than once, in lines") != std::string::npos);
  }
  // What is set between the function and its call is not followed.
  const std::string later = "TP=1\nstart() {\n  torchrun pretrain_gpt.py" + arguments + "\n}\nTP=2\nstart\n";
  CHECK(import_mistakes(request_of_file("megatron", "run.sh", later))
            .find("line 5 sets TP, which the function of line 3 reads, and when it is called is not followed; give "
                  "--run") != std::string::npos);
  ImportRequest given = request_of_file("megatron", "run.sh", later);
  given.variables = {"TP=4"};
  CHECK(import_mistakes(given).empty());
}

TEST_CASE("beside a wrong --set nothing is said that follows from it") {
  ImportRequest request = request_of_file(
      "megatron", "run.sh", "deepspeed pretrain_gpt.py" + model + "--deepspeed --tensor-model-parallel-size $TP\n");
  request.files.push_back(std::make_shared<const Source>(Source{"ds.json", "{ \"train_batch_size\": 8 }"}));
  request.variables = {"TQ=2"};
  CHECK(import_mistakes(request) == "error: --set: the script has no variable TQ; did you mean \"TP\"?\n");
}
