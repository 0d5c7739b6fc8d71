// SPDX-License-Identifier: Apache-2.0
#include "lockstep/batch.h"

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("uneven tokens count micro-batches through the optimizer steps") {
  Batch batch;
  batch.micro_batch_counts = {2, 1};
  CHECK(batch.first_micro_batch(1) == 2);
  CHECK(batch.total_micro_batches() == 3);
  CHECK(batch.tokens("main", 0, 0, 0, 0) == 1);
  CHECK(batch.tokens("main", 1, 0, 0, 0) == 2);
  CHECK(batch.tokens("main", 2, 0, 0, 0) == 4);
  CHECK(batch.tokens("main", 2, 1, 0, 0) == 1);
  CHECK(batch.tokens("main", 1, 1, 1, 1) == 2);
}

TEST_CASE("a list for one micro-batch is used again") {
  Batch batch;
  Batch::Tokens& tokens = batch.tokens_of_use["main"];
  tokens.kind = Batch::Tokens::Kind::list;
  tokens.list = TokenTable({{{{3, 5}}, {{2, 10}}}});
  CHECK(batch.tokens("main", 0, 1, 0, 1) == 10);
  CHECK(batch.tokens("main", 1, 1, 0, 0) == 2);
  tokens.list = TokenTable({{{{3, 5}}, {{2, 10}}}, {{{7, 8}}, {{9, 0}}}});
  CHECK(batch.tokens("main", 1, 0, 0, 1) == 8);
  CHECK(batch.sum("main", {0, 2}, {0, 2}, {0, 1}, {0, 2}) == 20 + 24);
}

TEST_CASE("a use without tokens, loss or weight of its own takes those of main") {
  Batch batch;
  batch.tokens_of_use["main"].kind = Batch::Tokens::Kind::even;
  batch.tokens_of_use["aux"].kind = Batch::Tokens::Kind::uneven;
  batch.loss_of_use["main"].kind = Loss::Kind::sum;
  batch.weight_of_use["aux"] = Rational(1, 100);
  CHECK(batch.tokens("mtp", 1, 0, 0, 0) == 1);
  CHECK(batch.tokens("aux", 1, 0, 0, 0) == 2);
  CHECK(batch.loss("aux").kind == Loss::Kind::sum);
  CHECK(batch.weight("aux") == Rational(1, 100));
  CHECK(batch.weight("main") == 1);
  CHECK(Batch().loss("main").kind == Loss::Kind::token_mean);
}

TEST_CASE("sums in closed form are the sums over the pieces") {
  Batch batch;
  batch.tokens_of_use["even"].kind = Batch::Tokens::Kind::even;
  for (int count = 0; count < 8; ++count) {
    for (int first = 0; first < 3; ++first) {
      for (int stride = 1; stride < 4; ++stride) {
        const TokenCounts::Range dp{first, count, stride}, cp{0, 2}, sp{1, 3}, micro_batch{first, 2};
        for (const char* use : {"main", "even"}) {
          CHECK(batch.sum(use, micro_batch, dp, cp, sp) == batch.TokenCounts::sum(use, micro_batch, dp, cp, sp));
        }
      }
    }
  }
}

TEST_CASE("where counts have no closed form, a sum visits each piece at its own coordinates") {
  struct Digits : TokenCounts {
    std::int64_t tokens(const std::string&, int micro_batch, int dp, int cp, int sp) const override {
      return 1000 * micro_batch + 100 * dp + 10 * cp + sp;
    }
    int micro_batches(int) const override { return 10; }
    int first_micro_batch(int) const override { return 0; }
    int steps() const override { return 1; }
  };
  CHECK(Digits().sum("main", {1}, {2}, {3, 2, 4}, {5}) == 1235 + 1275);
  CHECK(Digits().sum("main", {1, 3, 2}, {0}, {0}, {6, 2, 3}) == 3 * 15 + 2 * (1000 + 3000 + 5000));
}
