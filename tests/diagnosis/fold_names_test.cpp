// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/fold_names.h"

#include "tests/catch.h"

using lockstep::diagnosis::folded_name;

TEST_CASE("numbers between dots become stars") {
  CHECK(diagnosis::folded_name("decoder.layers.11.mlp.weight") == "decoder.layers.*.mlp.weight");
  CHECK(diagnosis::folded_name("experts.0.7") == "experts.*.*");
  CHECK(diagnosis::folded_name("90.layers.1099") == "*.layers.*");
}

TEST_CASE("numbers inside a word stay") {
  CHECK(diagnosis::folded_name("mlp.linear_fc1.weight") == "mlp.linear_fc1.weight");
  CHECK(diagnosis::folded_name("").empty());
  CHECK(diagnosis::folded_name("a..1:./2.b") == "a..1:./2.b");
}
