// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/reference.h"

#include <map>

#include "tests/catch.h"
#include "tests/numeric/expected.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Weights = std::map<std::uint64_t, std::string>;

Weights weights(const Schedule& schedule, int logical, int piece, int optimizer_step = 0) {
  Weights result;
  for (const numeric::ReferenceTerm& term : numeric::Reference(schedule).terms(logical, piece, optimizer_step)) {
    CHECK(result.emplace(term.key, term.weight.to_string()).second);  // each contribution once
  }
  return result;
}

std::uint64_t key(int source, int micro_batch = 0, int use = 0, int logical = 0) {
  return numeric::gradient_key(logical, source, micro_batch, use);
}

Schedule with(Layout layout, std::vector<Parameter> parameters, Loss::Kind kind, int micro_batches = 1, int steps = 1) {
  Schedule result = schedule_of(layout, std::move(parameters), {}, micro_batches, steps);
  result.batch.loss_of_use["main"].kind = kind;
  return result;
}

}  // namespace

TEST_CASE("replicated parameters count once, by the lowest rank that takes part; partial ones on every rank") {
  Layout layout = dp(2);
  layout.tp = 2;
  Parameter replicated = parameter("r", {4}), partial = parameter("p", {4}), only = parameter("o", {4}),
            sharded = parameter("s", {4});
  partial.partial = {Axis::tp};
  only.only = {{Axis::tp, {1}}};
  sharded.shard = {{Axis::tp, 0, false}};
  const Schedule built = with(layout, {replicated, partial, only, sharded}, Loss::Kind::sum);
  CHECK(weights(built, 0, 0) == Weights{{key(0), "1"}, {key(2), "1"}});
  CHECK(weights(built, 1, 0) ==
        Weights{{key(0, 0, 0, 1), "1"}, {key(1, 0, 0, 1), "1"}, {key(2, 0, 0, 1), "1"}, {key(3, 0, 0, 1), "1"}});
  CHECK(weights(built, 2, 0) == Weights{{key(1, 0, 0, 2), "1"}, {key(3, 0, 0, 2), "1"}});
  const auto piece = [&](int rank) { return built.model.local(rank).buffers[3].piece; };
  CHECK(weights(built, 3, piece(0)) == Weights{{key(0, 0, 0, 3), "1"}, {key(2, 0, 0, 3), "1"}});
  CHECK(weights(built, 3, piece(1)) == Weights{{key(1, 0, 0, 3), "1"}, {key(3, 0, 0, 3), "1"}});
}

TEST_CASE("a dispatched expert gets a contribution from every source rank of the groups that hold it") {
  Layout layout = dp(4);
  layout.ep = 2;
  Parameter expert = parameter("e", {4});
  expert.shard = {{Axis::ep, 0, false}};
  expert.dispatch = {Axis::ep};
  const Schedule built = with(layout, {expert}, Loss::Kind::sum);
  const int piece = built.model.local(0).buffers[0].piece;
  CHECK(weights(built, 0, piece) == Weights{{key(0), "1"}, {key(1), "1"}, {key(2), "1"}, {key(3), "1"}});
  expert.only = {{Axis::edp, {1}}};
  const Schedule restricted = with(layout, {expert}, Loss::Kind::sum);
  CHECK(weights(restricted, 0, piece) == Weights{{key(2), "1"}, {key(3), "1"}});
  // Held twice in one group: the tokens are still dispatched once.
  Parameter twice = parameter("t", {4});
  twice.dispatch = {Axis::ep};
  const Schedule replicated = with(layout, {twice}, Loss::Kind::sum);
  CHECK(weights(replicated, 0, 0) == Weights{{key(0), "1"}, {key(1), "1"}, {key(2), "1"}, {key(3), "1"}});
}

TEST_CASE("tied uses on several stages, named uses and chosen micro-batches all count") {
  Layout layout;
  layout.pp = 2;
  Parameter first = parameter("a", {4}), last = parameter("b", {4});
  first.tied = last.tied = "t";
  last.stage = 1;
  last.uses = {"main", "aux"};
  last.micro_batches = std::vector<int>{1};
  Schedule built = with(layout, {first, last}, Loss::Kind::sum, 2);
  built.batch.weight_of_use["aux"] = Rational(1, 100);
  CHECK(weights(built, 0, 0) ==
        Weights{{key(0, 0, 0), "1"}, {key(0, 1, 0), "1"}, {key(1, 1, 1), "1"}, {key(1, 1, 2), "1/100"}});
  Parameter everywhere = parameter("e", {4});
  everywhere.stage.reset();
  const Schedule stages = with(layout, {everywhere}, Loss::Kind::sum);
  CHECK(weights(stages, 0, 0) == Weights{{key(0), "1"}, {key(1), "1"}});
}

TEST_CASE("the weights of each loss, and pieces of 0 tokens") {
  Layout layout = dp(2);
  layout.cp = 2;  // ranks: cp fastest
  const auto build = [&](Loss::Kind kind) {
    Schedule built = with(layout, {parameter("w", {4})}, kind, 2);
    built.batch.tokens_of_use["main"] = {Batch::Tokens::Kind::list,
                                         TokenTable({{{{1}, {2}}, {{3}, {0}}}, {{{4}, {4}}, {{5}, {1}}}})};
    return built;
  };
  const std::vector<std::uint64_t> keys = {key(0), key(1), key(2), key(0, 1), key(1, 1), key(2, 1), key(3, 1)};
  const auto expect = [&](const std::vector<std::string>& values) {
    Weights result;
    for (std::size_t i = 0; i < keys.size(); ++i) result[keys[i]] = values[i];
    return result;
  };
  CHECK(weights(build(Loss::Kind::sum), 0, 0) == expect({"1", "1", "1", "1", "1", "1", "1"}));
  CHECK(weights(build(Loss::Kind::token_mean), 0, 0) ==
        expect({"1/20", "1/20", "1/20", "1/20", "1/20", "1/20", "1/20"}));
  CHECK(weights(build(Loss::Kind::micro_batch_mean), 0, 0) ==
        expect({"1/12", "1/12", "1/12", "1/32", "1/32", "1/24", "1/24"}));
  CHECK(weights(build(Loss::Kind::local_mean), 0, 0) == expect({"1/8", "1/16", "1/24", "1/32", "1/32", "1/40", "1/8"}));
  Schedule weighted = build(Loss::Kind::weight);
  weighted.batch.loss_of_use["main"].weight = Expression::parse("(rank.cp + 1) / (micro_batch + 1) / tokens");
  CHECK(weights(weighted, 0, 0) == expect({"1", "1", "1/3", "1/8", "1/4", "1/10", "1"}));
}

TEST_CASE("each optimizer step has its own micro-batches") {
  Schedule built = with(dp(1), {parameter("w", {4})}, Loss::Kind::token_mean, 1, 2);
  built.batch.micro_batch_counts = {1, 2};
  built.batch.tokens_of_use["main"].kind = Batch::Tokens::Kind::even;
  CHECK(weights(built, 0, 0, 0) == Weights{{key(0, 0), "1"}});
  CHECK(weights(built, 0, 0, 1) == Weights{{key(0, 1), "1/2"}, {key(0, 2), "1/2"}});
}

TEST_CASE("a frozen parameter has no gradient") {
  Layout layout;
  layout.pp = 2;
  Parameter first = parameter("a", {4}), last = parameter("b", {4});
  first.tied = last.tied = "t";
  last.stage = 1;
  last.frozen = true;
  CHECK(weights(with(layout, {first, last}, Loss::Kind::sum), 0, 0) == Weights{{key(0), "1"}});
}

TEST_CASE("sums of the reference agree in all three kinds of number") {
  const std::size_t count = 2500;
  std::vector<std::int32_t> narrow(count, 0), numbers(count);
  std::vector<std::int64_t> wide(count, 0);
  numeric::add_reference(5, 12, -7, 1000, count, narrow.data());
  numeric::add_reference(5, 12, -7, 1000, count, wide.data());
  numeric::generate(5, 12, 1000, count, numbers.data());
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(narrow[i] == -7 * numbers[i]);
    REQUIRE(wide[i] == narrow[i]);
  }
}
