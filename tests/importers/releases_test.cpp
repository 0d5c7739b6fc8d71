// SPDX-License-Identifier: Apache-2.0
// What a framework makes of a configuration, where it is not what the keys seem to say; and as which release it is
// judged.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/importer.h"
#include "tests/catch.h"
#include "tests/importers/cases.h"
#include "tests/importers/requests.h"

using namespace lockstep;
using namespace lockstep::importers;

namespace {

ImportRequest megatron(const std::string& more, std::int64_t world = 8) {
  ImportRequest request;
  request.format = "megatron";
  request.arguments = split_at_spaces(
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 256 --position-embedding-type rope " +
      more);
  request.world = world;
  return request;
}

bool assumes(const Imported& imported, const std::string& part) {
  return std::any_of(imported.assumed.begin(), imported.assumed.end(),
                     [&](const std::string& sentence) { return sentence.find(part) != std::string::npos; });
}

std::string layout_of(const ImportRequest& request) {
  return write_json(*import_configuration(request).scenario.find("layout"));
}

std::string verdict_of(const ImportRequest& request) {
  const auto scenario = std::make_shared<const Scenario>(read_imported(import_configuration(request), "scenario"));
  CheckOptions options;
  options.host = false;
  return std::string(name_of(check_scenario(scenario, options).verdict));
}

}  // namespace

TEST_CASE("DeepSpeed takes sequence_parallel_size alone for the size of a batch, and for no axis") {
  const std::string batch = "\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 1";
  ImportRequest alone = request_of_file("deepspeed", "ds.json", "{ \"sequence_parallel_size\": 2, " + batch + " }");
  const Imported imported = import_configuration(alone);
  CHECK(write_json(*imported.scenario.find("layout")) == "{ \"dp\": 8 }\n");
  // 16 / (8 / 2) micro-batches, as runtime/config.py counts them.
  CHECK(imported.scenario.find("batch")->find("micro_batches")->text() == "4");
  CHECK(assumes(imported, "No sequence parallelism"));
  CHECK(assumes(imported, "give --sp 2"));
  CHECK(verdict_of(alone) == "match");

  alone.sp = 2;  // the training script hands a unit over
  CHECK(layout_of(alone) == "{ \"sp\": 2, \"dp\": 4 }\n");
  CHECK_FALSE(assumes(import_configuration(alone), "No sequence parallelism"));

  const std::string mesh = "{ \"sequence_parallel_size\": 2, \"data_parallel_size\": 4, " + batch + " }";
  ImportRequest both = request_of_file("deepspeed", "ds.json", mesh);
  CHECK(layout_of(both) == "{ \"sp\": 2, \"dp\": 4 }\n");
  both.world = 0;
  CHECK(layout_of(both) == "{ \"sp\": 2, \"dp\": 4 }\n");
  both.world = 16;
  CHECK(messages(both).starts_with("data_parallel_size: it is 4, but there are 8 data-parallel ranks\n"));
  CHECK(
      messages(request_of_file("deepspeed", "ds.json", "{ \"train_batch_size\": 8, \"sequence_parallel_size\": 3 }")) ==
      "sequence_parallel_size: 8 data-parallel ranks do not divide by it\n");
}

TEST_CASE("a section that is empty is one: ZeRO without a stage is off, and experts without sizes are experts") {
  CHECK(messages(request_of_file("deepspeed", "ds.json", "{ \"zero_optimization\": {}, \"train_batch_size\": 8 }"))
            .empty());
  if (!is_readable("n.yaml")) return;
  CHECK(messages(
            request_of_file("nanotron", "n.yaml",
                            "parallelism: { tp: 2, pp: 2, dp: 2 }\nmodel: { model_config: { moe_config: {} } }\n")) ==
        "model.model_config.moe_config: lockstep's description of nanotron has no experts\n");
}

TEST_CASE("leaving out what is not known leaves nothing out that is refused") {
  for (const char* text :
       {"{ \"expert_parallel\": { \"enabled\": true } }",
        "{ \"zero_optimization\": { \"zenflow\": { \"topk_ratio\": 0.1 } } }",
        "{ \"tensor_parallel\": { \"autotp_size\": 2 } }", "{ \"compile\": { \"deepcompile\": true } }",
        "{ \"zero_optimization\": { \"stage\": 3, \"zero_hpz_partition_size\": 8 } }"}) {
    INFO(text);
    ImportRequest request = request_of_file("deepspeed", "ds.json", text);
    request.ignore_unknown = true;
    CHECK(messages(request).find("lockstep ") != std::string::npos);
  }
}

TEST_CASE("virtual stages on two pipeline stages need the overlap, in Megatron's words") {
  const std::string interleaved = "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 ";
  CHECK(messages(megatron(interleaved)).empty());
  CHECK(
      messages(megatron(interleaved + "--no-overlap-p2p-communication")) ==
      "--no-overlap-p2p-communication: When interleaved schedule is used and p2p communication overlap is disabled, "
      "pipeline-model-parallel size should be greater than 2 to avoid having multiple p2p sends and recvs between same "
      "2 ranks per communication batch (Megatron's words)\n");
  CHECK(messages(megatron("--pipeline-model-parallel-size 4 --num-layers 8 --num-virtual-stages-per-pipeline-rank 2 "
                          "--no-overlap-p2p-communication"))
            .empty());
  CHECK(messages(megatron("--pipeline-model-parallel-size 2 --no-overlap-p2p-communication")).empty());
  CHECK(messages(megatron("--num-virtual-stages-per-pipeline-rank 2"))
            .find("pipeline-model-parallel size should be greater than 1 (Megatron's words)") != std::string::npos);
}

TEST_CASE("norms of latent attention are there with qk_layernorm, and found by name only where they are modules") {
  const std::string latent =
      "--multi-latent-attention --q-lora-rank 16 --kv-lora-rank 16 --qk-head-dim 16 --qk-pos-emb-head-dim 8 "
      "--v-head-dim 16 "
      "--tensor-model-parallel-size 2 ";
  const Imported without = import_configuration(megatron(latent));
  CHECK(without.scenario.find("model")->find("latent_norms")->as_boolean() == false);
  CHECK(verdict_of(megatron(latent)) == "match");
  // Transformer Engine's, the default: parts of the up projections.
  CHECK(verdict_of(megatron(latent + "--qk-layernorm")) == "match");
  CHECK(import_configuration(megatron(latent + "--qk-layernorm")).scenario.find("model")->find("latent_norms") ==
        nullptr);
  // Local ones are summed although they are complete: a mistake of Megatron's own.
  CHECK(verdict_of(megatron(latent + "--qk-layernorm --transformer-impl local")) == "mismatch");
  CHECK(verdict_of(megatron(latent + "--qk-layernorm --transformer-impl local --sequence-parallel")) == "match");
  // Of heads: partial over tp, and summed by their names.
  CHECK(verdict_of(megatron("--qk-layernorm --tensor-model-parallel-size 2")) == "match");
}

TEST_CASE("an import says which release it was judged as, and the title repeats it") {
  const Imported today = import_configuration(megatron(""));
  CHECK(today.release == "Megatron-LM d98e8a64 (22 August 2026)");
  CHECK(today.scenario.find("title")->text() ==
        "Imported from arguments of Megatron-LM, judged as Megatron-LM d98e8a64 (22 August 2026)");
  for (const auto& one : importers::all_cases()) {
    INFO(one.file.filename().string());
    const Imported imported = import_configuration(one.request);
    CHECK_FALSE(imported.release.empty());
    CHECK(imported.scenario.find("title")->text().ends_with(", judged as " + imported.release));
  }
  CHECK(import_configuration(request_of_file("deepspeed", "ds.json", "{ \"train_batch_size\": 8 }")).release ==
        "DeepSpeed 0.19.8");
  if (!is_readable("a.yaml")) return;
  const std::string accelerate = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: { zero_stage: 2 }\n";
  CHECK(import_configuration(request_of_file("accelerate", "a.yaml", accelerate)).release ==
        "accelerate 16cb6eb8 (24 July 2026) with DeepSpeed 0.19.8");
}

TEST_CASE("a version that looks like a number can be chosen, and one that nobody describes is an error") {
  ImportRequest request = megatron("");
  request.options = {"core=0.16"};
  const Imported imported = import_configuration(request);
  CHECK(imported.release == "megatron-core 0.16.1");
  CHECK(imported.scenario.find("schedule")->find("options")->find("core")->text() == "0.16");
  CHECK(messages(request).empty());
  CHECK(verdict_of(request) == "match");
  request.options = {"core=0.8.0"};
  CHECK(messages(request).find("--option core: \"core\": expected one of \"main\", \"0.16\"") != std::string::npos);
  // A number stays one.
  request.options = {"clip_grad=0.5"};
  CHECK(messages(request).empty());
}

TEST_CASE("releases whose mistakes a configuration would meet are named") {
  const Imported plain = import_configuration(megatron("--calculate-per-token-loss"));
  CHECK_FALSE(assumes(plain, "not judged"));
  const Imported context = import_configuration(megatron("--context-parallel-size 2"));
  CHECK(assumes(context, "megatron-core 0.8.0 is not judged"));
  CHECK_FALSE(assumes(context, "0.7 to 0.12"));
  CHECK(assumes(import_configuration(megatron("--context-parallel-size 2 --calculate-per-token-loss")),
                "megatron-core 0.7 to 0.12 are not judged"));
}
