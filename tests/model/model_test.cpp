// SPDX-License-Identifier: Apache-2.0
#include "lockstep/model.h"

#include "src/base/at.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Layout layout(int tp, int dp, int pp) {
  Layout layout;
  layout.tp = tp, layout.dp = dp, layout.dp_shard = dp, layout.pp = pp;
  return layout;
}

Parameter parameter(std::string name, std::vector<std::int64_t> shape, std::optional<int> stage = 0) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  parameter.stage = stage;
  return parameter;
}

std::vector<std::string> mistakes(const Layout& layout, const std::vector<Parameter>& parameters) {
  Diagnostics diagnostics;
  const Mesh mesh(layout);
  Model(mesh, parameters, diagnostics);
  std::vector<std::string> messages;
  for (const Diagnostic& diagnostic : diagnostics.sorted()) messages.push_back(diagnostic.message);
  return messages;
}

Model make(const Mesh& mesh, const std::vector<Parameter>& parameters) {
  Diagnostics diagnostics;
  Model model(mesh, parameters, diagnostics);
  REQUIRE(diagnostics.empty());
  return model;
}

}  // namespace

TEST_CASE("each stage holds its own parameters, and ranks with the same pieces share a local model") {
  const Mesh mesh(layout(2, 2, 2));
  Parameter weight = parameter("weight", {4, 6});
  weight.shard = {{Axis::tp, 1}};
  const Model model = make(mesh, {weight, parameter("head", {3}, 1), parameter("scale", {}, std::nullopt)});
  REQUIRE(model.locals().size() == 3);  // two for tp on the first stage, one for the last
  CHECK(&model.local(0) == &model.local(2));
  CHECK(&model.local(0) != &model.local(1));
  CHECK(&model.local(4) == &model.local(5));
  const LocalBuffer& buffer = model.local(1).buffers[0];
  CHECK(buffer.numel == 12);
  CHECK(buffer.rows == 4);
  CHECK(model.local(1).buffers[1].numel == 1);
  CHECK(model.local(1).buffers[1].rows == 1);
  CHECK(model.buffer_of(1, 0) == 0);
  CHECK(model.buffer_of(1, 1) == -1);
  CHECK(model.buffer_of(1, 2) == 1);
  CHECK(model.buffer_of(7, 1) == 0);
  CHECK(model.buffer_of(7, 0) == -1);
  // Element 4 of the right half: row 1, column 3 + 1.
  CHECK(model.global_index(0, buffer.piece, 4) == 10);
}

TEST_CASE("where two axes cut one dimension the first written cuts first") {
  const Mesh mesh(layout(2, 2, 1));
  Parameter weight = parameter("weight", {8});
  weight.shard = {{Axis::tp, 0}, {Axis::dp, 0}};
  const Model tp_first = make(mesh, {weight});
  const auto begin = [&](const Model& model, int rank) {
    return model.pieces(0)[at(model.local(rank).buffers[0].piece)].dims[0].begin;
  };
  CHECK(begin(tp_first, 1) == 4);  // tp 1, dp 0
  CHECK(begin(tp_first, 2) == 2);  // tp 0, dp 1
  weight.shard = {{Axis::dp, 0}, {Axis::tp, 0}};
  const Model dp_first = make(mesh, {weight});
  CHECK(begin(dp_first, 1) == 2);
  CHECK(begin(dp_first, 2) == 4);
}

TEST_CASE("uneven shards are cut as torch.chunk does") {
  const Mesh mesh(layout(4, 1, 1));
  Parameter weight = parameter("weight", {5, 2});
  weight.shard = {{Axis::tp, 0, true}};
  const Model model = make(mesh, {weight});
  std::vector<std::int64_t> numels;
  for (int rank = 0; rank < 4; ++rank) numels.push_back(model.local(rank).buffers[0].numel);
  CHECK(numels == std::vector<std::int64_t>{4, 4, 2, 0});
  CHECK(model.local(3).buffers[0].rows == 0);
}

TEST_CASE("tied parameters on one rank share one buffer in the place of the first") {
  Parameter embedding = parameter("embedding", {6}), head = parameter("head", {6}, 1);
  embedding.tied = head.tied = "words";
  head.uses = {"main", "mtp"};
  const Mesh two_stages(layout(1, 1, 2));
  const Model apart = make(two_stages, {embedding, parameter("norm", {2}), head});
  CHECK(apart.local(0).buffers.size() == 2);
  CHECK(apart.local(1).buffers.size() == 1);
  CHECK(apart.local(1).buffers[0].logical == 0);
  CHECK(apart.logicals().size() == 2);
  CHECK(apart.logical_of(2) == 0);
  CHECK(apart.site_use(2, "mtp") == 2);
  CHECK(apart.site_use(0, "mtp") == -1);

  head.stage = 0;
  const Mesh one_stage(layout(1, 2, 1));
  const Model together = make(one_stage, {embedding, parameter("norm", {2}), head});
  REQUIRE(together.local(0).buffers.size() == 2);
  CHECK(together.local(0).buffers[0].parameters == std::vector<int>{0, 2});
}

TEST_CASE("copies of a tied parameter have buffers of their own and get gradients in the name of the first") {
  Parameter embedding = parameter("embedding", {6}), head = parameter("head", {6}), third = parameter("third", {6});
  embedding.tied = head.tied = third.tied = "words";
  head.copy = third.copy = "head";
  const Mesh mesh(layout(1, 1, 1));
  const Model model = make(mesh, {parameter("norm", {2}), embedding, head, third});
  REQUIRE(model.local(0).buffers.size() == 3);
  CHECK(model.local(0).buffers[2].parameters == std::vector<int>{2, 3});
  CHECK(model.logicals().size() == 3);
  CHECK(model.original(2) == 1);
  CHECK(model.copies(2) == std::vector<int>{1, 2});
  CHECK(model.copies(0) == std::vector<int>{0});
  CHECK(model.sites(2) == std::vector<int>{1, 2, 3});
  CHECK(model.is_trained_tensor(1));
  CHECK_FALSE(model.is_trained_tensor(2));
  CHECK(model.logicals()[1].uses.size() == 3);
  CHECK(model.site_use(3, "main") == 2);
  CHECK(model.buffer_of(0, 2) == 2);
  CHECK(model.buffer_of_copy(0, 2) == 1);
}

TEST_CASE("a tied group with a hundred copies is the largest") {
  std::vector<Parameter> parameters;
  for (int number = 0; number <= 100; ++number) {
    parameters.push_back(parameter("p" + std::to_string(number), {2}));
    parameters.back().tied = "t";
    parameters.back().copy = std::to_string(number);
  }
  const Mesh mesh(layout(1, 1, 1));
  Diagnostics diagnostics;
  Model(mesh, parameters, diagnostics);
  CHECK(diagnostics.size() == 1);
  parameters.pop_back();
  Diagnostics none;
  Model(mesh, parameters, none);
  CHECK(none.empty());
}

TEST_CASE("frozen parameters have no buffer and no use") {
  Parameter frozen = parameter("frozen", {6});
  frozen.frozen = true;
  const Mesh mesh(layout(1, 1, 1));
  const Model model = make(mesh, {frozen, parameter("norm", {2})});
  CHECK(model.local(0).buffers.size() == 1);
  CHECK(model.logicals()[0].frozen);
  CHECK(model.logicals()[0].uses.empty());
  CHECK_FALSE(model.takes_part(mesh, 0, 0, 0));
}

TEST_CASE("a parameter takes part where and when it says so") {
  Parameter some = parameter("some", {6});
  some.micro_batches = {1};
  some.only = {{Axis::dp, {0}}};
  const Mesh mesh(layout(1, 2, 1));
  const Model model = make(mesh, {some});
  CHECK(model.takes_part(mesh, 0, 0, 1));
  CHECK_FALSE(model.takes_part(mesh, 0, 0, 0));
  CHECK_FALSE(model.takes_part(mesh, 0, 1, 1));
}

TEST_CASE("mistakes in placements name their numbers") {
  using Messages = std::vector<std::string>;
  CHECK(mistakes(layout(1, 1, 1), {}) == Messages{"the model has no parameter; it needs at least one"});
  CHECK(mistakes(layout(1, 1, 1), {parameter("a", {2}), parameter("a", {2})}) ==
        Messages{"the parameter name \"a\" is given twice; names are unique"});

  Parameter a = parameter("a", {50257, 4});
  a.shard = {{Axis::tp, 0}};
  CHECK(mistakes(layout(2, 1, 1), {a}) ==
        Messages{"the parameter \"a\" has 50257 elements to cut in dimension 0, which tp = 2 does not divide; pad the "
                 "dimension, or write \"uneven\": true to cut it as torch.chunk does"});
  a.shard = {{Axis::tp, 1}, {Axis::dp, 1}};
  CHECK(mistakes(layout(2, 4, 1), {a}).at(0).find("has 2 elements to cut in dimension 1, which dp = 4") !=
        std::string::npos);
  a.shard = {{Axis::tp, 2}};
  CHECK(
      mistakes(layout(2, 1, 1), {a}) ==
      Messages{"the parameter \"a\" is sharded along dimension 2, but its shape has 2 dimensions, which count from 0"});
  a.shard = {{Axis::dp_shard, 1}};
  a.partial = {Axis::dp};
  CHECK(mistakes(layout(1, 2, 1), {a}) == Messages{"the parameter \"a\" is both sharded over \"dp_shard\" and partial "
                                                   "over \"dp\"; an axis can be one of the two"});
  CHECK(mistakes(layout(1, 1, 2), {parameter("a", {2}, 2)}) ==
        Messages{"the parameter \"a\" lives on stage 2, but there are only stages 0 to 1 (pp is 2)"});
  Parameter chunk = parameter("a", {2});
  chunk.chunk = 1;
  CHECK(mistakes(layout(1, 1, 1), {chunk}) ==
        Messages{"the parameter \"a\" lives in chunk 1, but \"virtual_stages\" is 1; chunks count from 0"});
  CHECK(mistakes(layout(1, 1, 1), {parameter("a", {1LL << 40, 1LL << 40})}) ==
        Messages{"the parameter \"a\" has more than 2^62 elements"});
  CHECK(mistakes(layout(1, 1, 1), {parameter("a", {1LL << 31, 1LL << 31})}).empty());
  Parameter some = parameter("a", {2});
  some.only = {{Axis::dp, {0, 1}}};
  CHECK(mistakes(layout(1, 2, 1), {some}).empty());
  some.only = {{Axis::dp, {1, 2}}};
  CHECK(mistakes(layout(1, 2, 1), {some}) ==
        Messages{"the parameter \"a\" takes part only on dp 2, but dp is 2; coordinates count from 0"});
  some.only = {{Axis::dp, {-1}}};
  CHECK(mistakes(layout(1, 2, 1), {some}).size() == 1);
  Parameter dispatched = parameter("a", {2});
  dispatched.dispatch = {Axis::dp};
  CHECK(mistakes(layout(1, 1, 1), {dispatched}).size() == 1);
}

TEST_CASE("tied parameters must be one tensor, placed alike") {
  Parameter a = parameter("a", {4}), b = parameter("b", {4});
  a.tied = b.tied = "t";
  b.dtype = Dtype::bfloat16;
  b.partial = {Axis::tp};
  CHECK(mistakes(layout(2, 1, 1), {a, b}) ==
        std::vector<std::string>{
            "the parameters \"a\" and \"b\" are tied as \"t\" and must be one tensor, but they differ in: "
            "dtype, partial"});
}

TEST_CASE("the expert mesh is refused where its pipeline groups are others") {
  Layout odd = layout(2, 2, 2);
  odd.order = {Axis::tp, Axis::pp, Axis::dp};
  Parameter expert = parameter("expert", {4});
  expert.dispatch = {Axis::ep};
  CHECK(mistakes(odd, {expert}).size() == 1);
  CHECK(mistakes(layout(2, 2, 2), {expert}).empty());
}

TEST_CASE("sixteen thousand ranks with nine hundred parameters are placed quickly") {
  Layout large = layout(8, 128, 16);
  const Mesh mesh(large);
  std::vector<Parameter> parameters;
  for (int i = 0; i < 900; ++i) {
    parameters.push_back(parameter("p" + std::to_string(i), {64, 64}, i * 16 / 900));
    if (i % 2 == 0) parameters.back().shard = {{Axis::tp, 0}};
  }
  const Model model = make(mesh, parameters);
  CHECK(model.locals().size() == 8 * 16);
}

TEST_CASE("models of one list share what no other size changes, and are what they would be alone") {
  Parameter weight = parameter("weight", {4, 6});
  weight.shard = {{Axis::tp, 1}};
  const auto list = std::make_shared<const std::vector<Parameter>>(
      std::vector<Parameter>{weight, parameter("head", {3}, 1), parameter("scale", {}, std::nullopt)});
  const auto model_of = [&](const Mesh& mesh, const std::vector<Model>& others) {
    Diagnostics diagnostics;
    Model model(mesh, list, diagnostics, others);
    REQUIRE(diagnostics.empty());
    return model;
  };
  std::vector<Model> others;
  for (const Layout& sizes : {layout(2, 2, 2), layout(2, 5, 2), layout(3, 2, 2), layout(1, 1, 2), layout(2, 1, 2)}) {
    const Mesh mesh(sizes);
    const Model shared = model_of(mesh, others), alone = make(mesh, *list);
    REQUIRE(shared.locals().size() == alone.locals().size());
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const LocalModel &a = shared.local(rank), &b = alone.local(rank);
      CHECK(a.id == b.id);
      REQUIRE(a.buffers.size() == b.buffers.size());
      for (std::size_t i = 0; i < a.buffers.size(); ++i) {
        CHECK(a.buffers[i].piece == b.buffers[i].piece);
        CHECK(a.buffers[i].numel == b.buffers[i].numel);
        CHECK(shared.buffer_of(rank, a.buffers[i].logical) == alone.buffer_of(rank, a.buffers[i].logical));
      }
    }
    others.push_back(shared);
  }
  CHECK(others[1].shares_with(others[0]));
  CHECK(others[4].shares_with(others[0]));
  CHECK_FALSE(others[2].shares_with(others[0]));
  CHECK_FALSE(others[3].shares_with(others[2]));
}
