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

TEST_CASE("tables in tables of TOML are counted, whether brackets or dots put them there") {
  if (!is_readable("t.toml")) return;
  const auto told = [](const std::string& text) {
    ImportRequest request = of("torchtitan", "t.toml");
    request.files = {std::make_shared<const Source>(Source{"t.toml", text})};
    try {
      import_configuration(request);
      return std::string();
    } catch (const InputError& error) {
      std::string all;
      for (const Diagnostic& diagnostic : error.diagnostics()) all += render(diagnostic);
      return all;
    }
  };
  const auto dotted = [](int parts) {
    std::string key = "a";
    for (int i = 1; i < parts; ++i) key += ".a";
    return key;
  };
  const std::string limit = "expected at most 200 tables in each other, found more";
  CHECK(told(dotted(40'000) + " = 1\n").find("t.toml:1:402: error: " + limit) == 0);
  CHECK(told("# x\n[" + dotted(40'000) + "]\nb = 1\n").find("t.toml:2:") == 0);
  CHECK(told("[[" + dotted(40'000) + "]]\n").find(limit) != std::string::npos);
  // Quoted parts, spaces around dots, and both ways together.
  std::string quoted = "'a'", inner = "b = ";
  for (int i = 0; i < 40'000; ++i) quoted += i % 2 == 0 ? " . \"a.b\"" : ".a";
  CHECK(told(quoted + " = 1\n").find(limit) != std::string::npos);
  for (int i = 0; i < 150; ++i) inner += "{ " + dotted(100) + " = ";
  CHECK(told(inner).find(limit) != std::string::npos);
  CHECK(told("[" + dotted(100) + "]\n" + dotted(150) + " = 1\n").find(limit) != std::string::npos);
  // Neither dots in values, texts and comments, nor keys beside each other, are deep.
  std::string flat =
      "# " + dotted(1000) + "\n[a]\nt = \"\"\"" + dotted(1000) + "\n\"\"\"\nu = '" + dotted(1000) + "'\nv = [\n";
  for (int i = 0; i < 500; ++i) flat += "  1.5, # " + dotted(300) + "\n";
  flat += "]\n";
  for (int i = 0; i < 300; ++i) flat += "[b.c" + std::to_string(i) + ".d]\nk.l = 2.5\n";
  CHECK(told(flat).find("lockstep does not know the key \"a.t\"") != std::string::npos);
  CHECK(told(dotted(150) + " = 1\n").find("lockstep does not know the key") != std::string::npos);
}

TEST_CASE("an alias of a long text is counted as often as it stands") {
  if (!is_readable("n.yaml")) return;
  std::string yaml = "a: &a " + std::string(500'000, 'x') + "\nb: [*a";
  for (int i = 0; i < 100'000; ++i) yaml += ",*a";
  CHECK_FALSE(imports(of("nanotron", "n.yaml"), yaml + "]\n"));
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
