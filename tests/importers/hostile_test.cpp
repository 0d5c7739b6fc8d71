// SPDX-License-Identifier: Apache-2.0
// Bad input is a mistake, never a crash: every configuration of the cases is cut, changed and repeated.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/importers/cases.h"

using namespace lockstep;
using namespace lockstep::importers;

namespace {

/// Whether it was imported; a mistake must say something.
bool imports(ImportRequest request, const std::string& text) {
  request.files.front() = std::make_shared<const Source>(Source{request.files.front()->name, text});
  try {
    import_configuration(request);
    return true;
  } catch (const InputError& error) {
    REQUIRE_FALSE(error.diagnostics().empty());
    for (const Diagnostic& diagnostic : error.diagnostics()) render(diagnostic);
    return false;
  }
}

std::vector<Case> cases_with_files() {
  std::vector<Case> cases = all_cases();
  std::erase_if(cases, [](const Case& one) { return one.request.files.empty(); });
  return cases;
}

ImportRequest of(const std::string& format, const std::string& name) {
  ImportRequest request;
  request.format = format;
  request.world = 8;
  request.files = {std::make_shared<const Source>(Source{name, ""})};
  return request;
}

}  // namespace

TEST_CASE("a configuration that ends anywhere is imported or refused") {
  for (const Case& one : cases_with_files()) {
    INFO(one.file.filename().string());
    const std::string text = one.request.files.front()->text;
    const std::size_t step = std::max<std::size_t>(1, text.size() / test::cases(60));
    for (std::size_t length = 0; length < text.size(); length += step) imports(one.request, text.substr(0, length));
  }
  SUCCEED();
}

TEST_CASE("a configuration with wrong bytes is imported or refused") {
  std::uint64_t state = 1;
  const auto random = [&](std::size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state >> 33) % below;
  };
  using namespace std::string_literals;  // with the NUL at its beginning
  const std::string bytes = "\0\xff\x80\"'{}[]()$`\\\n\t#:,=-9eE.*&<>|;"s;
  for (const Case& one : cases_with_files()) {
    INFO(one.file.filename().string());
    const std::string text = one.request.files.front()->text;
    const auto rounds = static_cast<int>(test::cases(60));
    for (int round = 0; round < rounds; ++round) {
      std::string changed = text;
      for (int i = 0; i < 3; ++i) changed[random(changed.size())] = bytes[random(bytes.size())];
      imports(one.request, changed);
    }
  }
  SUCCEED();
}

TEST_CASE("what grows without end is stopped") {
  std::string yaml = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    yaml += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 1; j < 10; ++j) yaml += "," + before;
    yaml += "]\n";
  }
  CHECK_FALSE(imports(of("nanotron", "bomb.yaml"), yaml));
  std::string shell = "A=--num-layers\nB=(x x)\n";
  for (int i = 0; i < 60; ++i) shell += "A=\"$A $A\"\nB=(\"${B[@]}\" \"${B[@]}\")\n";
  CHECK_FALSE(imports(of("megatron", "bomb.sh"), shell + "python pretrain_gpt.py $A ${B[@]}\n"));
  CHECK_FALSE(imports(of("deepspeed", "deep.json"), std::string(100'000, '[')));
  CHECK_FALSE(imports(of("deepspeed", "deep.json"), [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "{a:";
    return text;
  }()));
  CHECK_FALSE(imports(of("nanotron", "deep.yaml"), std::string(100'000, '[')));
  CHECK_FALSE(imports(of("torchtitan", "deep.toml"), "a = " + std::string(100'000, '[')));
  CHECK_FALSE(imports(
      of("megatron", "deep.sh"), "A=" + [] {
        std::string text;
        for (int i = 0; i < 10'000; ++i) text += "${A:-";
        return text;
      }()));
}

TEST_CASE("YAML of more than 1 MiB is refused before it is read") {
  if (!is_readable("n.yaml")) return;
  ImportRequest request = of("nanotron", "n.yaml");
  std::string text = "parallelism: { tp: 1, pp: 1, dp: 8 }\n";
  while (text.size() <= std::size_t{1} << 20) text += "# " + std::string(1000, 'x') + "\n";
  request.files = {std::make_shared<const Source>(Source{"n.yaml", text})};
  try {
    import_configuration(request);
    FAIL("it was imported");
  } catch (const InputError& error) {
    REQUIRE(error.diagnostics().size() == 1);
    CHECK(error.diagnostics().front().message ==
          "expected at most 1 MiB of YAML, found " + std::to_string(text.size()) + " bytes");
  }
}

TEST_CASE("numbers that are too large are mistakes") {
  for (const char* number :
       {"1e400", "9223372036854775808", "-9223372036854775808", "1e18", "1e-300", "0", "-1", "0.5", "1e9"}) {
    INFO(number);
    imports(of("deepspeed", "ds.json"),
            std::string("{ \"train_batch_size\": ") + number + ", \"train_micro_batch_size_per_gpu\": " + number +
                ", \"sequence_parallel_size\": " + number + ", \"gradient_predivide_factor\": " + number + " }");
    imports(of("nanotron", "n.yaml"),
            std::string("parallelism: { tp: ") + number + ", pp: " + number + ", dp: " + number + " }\n");
    imports(of("torchtitan", "t.json"), std::string("{ \"parallelism\": { \"tensor_parallel_degree\": ") + number +
                                            ", \"data_parallel_shard_degree\": " + number +
                                            ", \"num_pp_microbatches\": " + number + " } }");
    imports(of("gpt-neox", "n.yml"), std::string("{ model_parallel_size: ") + number + ", hidden_size: " + number +
                                         ", expansion_factor: " + number + " }");
    ImportRequest request;
    request.format = "megatron";
    request.arguments = {"--tensor-model-parallel-size",
                         number,
                         "--micro-batch-size",
                         number,
                         "--hidden-size",
                         number,
                         "--swiglu",
                         "--num-layers-per-virtual-pipeline-stage",
                         number,
                         "--num-layers",
                         number};
    request.world = 8;
    CHECK_THROWS_AS(import_configuration(request), InputError);
  }
}
