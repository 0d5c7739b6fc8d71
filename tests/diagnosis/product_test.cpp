// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/product.h"

#include "tests/catch.h"

using lockstep::diagnosis::Product;

namespace {

std::string times(const char* a, const char* b) { return Product::parse(a).times(Product::parse(b)).to_string(); }
std::string over(const char* a, const char* b) { return Product::parse(a).over(Product::parse(b)).to_string(); }

}  // namespace

TEST_CASE("what stands above and below is cancelled") {
  CHECK(times("1 / (dp * cp)", "cp") == "1 / dp");
  CHECK(times("1 / dp", "dp") == "1");
  CHECK(over("1 / dp", "cp") == "1 / (dp * cp)");
  CHECK(over("sp", "sp / 4") == "4");
  CHECK(times("dp / cp", "cp / tp") == "dp / tp");
}

TEST_CASE("a fraction stands above and below") {
  CHECK(times("0.5", "dp") == "dp / 2");
  CHECK(times("3/4 * cp", "1 / 3") == "cp / 4");
  CHECK(times("2", "dp") == "2 * dp");
  CHECK(over("dp", "1/2") == "dp * 2");
}

TEST_CASE("a call and a sum are factors of their own") {
  CHECK(times("1 / sum(tokens, dp, cp)", "micro_batches") == "micro_batches / sum(tokens, dp, cp)");
  CHECK(times("1 / (tokens * (6 + 2 * cp))", "tokens") == "1 / (6 + 2 * cp)");
  CHECK(times("1 + rank.dp", "dp") == "(1 + rank.dp) * dp");
  CHECK(over("1 - 1", "1 - 1") == "1");
}
