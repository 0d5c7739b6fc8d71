// SPDX-License-Identifier: Apache-2.0
// No path, token or host name of a configuration reaches what an import hands on, right or wrong.
#include <fmt/format.h>

#include <memory>

#include "src/importers/redact.h"
#include "tests/catch.h"
#include "tests/importers/cases.h"

using namespace lockstep;
using namespace lockstep::importers;

namespace {

std::string all_text(const Imported& imported) {
  std::string text = write_json(imported.scenario);
  for (const ImportedKey& key : imported.used) text += key.key + " " + key.value + " " + key.meaning + "\n";
  for (const ImportedKey& key : imported.ignored) text += key.key + " " + key.value + " " + key.meaning + "\n";
  for (const std::string& line : imported.unknown) text += line + "\n";
  for (const std::string& line : imported.assumed) text += line + "\n";
  return text;
}

/// The values in the cases that stand for secrets.
void check_no_secret(const std::string& text) {
  for (const char* secret : {"ecret", "10.20.30.40", "node17", "registry.example", "someone", "lustre"}) {
    INFO(secret);
    CHECK(text.find(secret) == std::string::npos);
  }
}

}  // namespace

TEST_CASE("no secret of any configuration reaches the scenario or the list of keys") {
  for (const Case& one : all_cases()) {
    INFO(one.file.filename().string());
    check_no_secret(all_text(import_configuration(one.request)));
  }
}

TEST_CASE("no secret reaches a diagnostic, whatever line it is about") {
  for (const Case& one : all_cases()) {
    INFO(one.file.filename().string());
    for (const auto& source : one.request.files) {
      // As if every line were wrong.
      std::vector<Diagnostic> diagnostics;
      for (std::size_t begin = 0; begin < source->text.size(); begin = source->text.find('\n', begin) + 1) {
        diagnostics.push_back({{source, begin, begin + 1, ""}, "wrong"});
        if (source->text.find('\n', begin) == std::string::npos) break;
      }
      for (const Diagnostic& diagnostic : importers::redacted(diagnostics)) check_no_secret(render(diagnostic));
    }
  }
}

TEST_CASE("a redacted line keeps keys, flags, numbers and punctuation") {
  CHECK(importers::redacted("  save: /data/me/x  # note") == "  save: **********  # ****");
  CHECK(importers::redacted("export WANDB_API_KEY=abc123 torchrun --lr 1e-4 $TP") ==
        "export WANDB_API_KEY=****** ******** --lr 1e-4 $TP");
  CHECK(importers::redacted(R"({ "token": "hf_abc", "steps": 12, "on": true })") ==
        R"({ "token": "******", "steps": 12, "on": true })");
  CHECK(importers::redacted("run \"${A[@]}\" me@corp") == "*** \"${A[@]}\" *******");
  CHECK(importers::redacted("  data_path ........ ['/data/x']") == "  data_path ........ ['*******']");
}

TEST_CASE("padded base64 is no key, and a dollar sign inside of a word begins no variable") {
  CHECK(importers::redacted("  token: c2VjcmV0cw==") == "  token: **********==");
  CHECK(importers::redacted("  token: c2VjcmV0cw=") == "  token: **********=");
  CHECK(importers::redacted("--token c2VjcmV0cw= --lr 1") == "--token **********= --lr 1");
  CHECK(importers::redacted("{ \"token\": \"c2VjcmV0cw=\", \"steps\": 1 }") ==
        "{ \"token\": \"**********=\", \"steps\": 1 }");
  CHECK(importers::redacted("tokens: [c2VjcmV0cw=, c2VjcmV0cw=]") == "tokens: [**********=, **********=]");
  CHECK(importers::redacted("flavor = \"9B\"") == "flavor = \"**\"");
  CHECK(importers::redacted("--save pa$sw0rd --load pa${sw0rd} --x pa$$sw0rd") ==
        "--save **$***** --load **${*****} --x **$$*****");
  CHECK(importers::redacted("--save $sw0rd --load ${sw0rd} --x \"$sw0rd\"") ==
        "--save $***** --load ${*****} --x \"$*****\"");
  CHECK(importers::redacted("sw0rd=1 $sw0rd") == "sw0rd=1 $sw0rd");
  CHECK(importers::redacted("TP=$TP \"$TP\" \"${TP}\"") == "TP=$TP \"$TP\" \"${TP}\"");
}
