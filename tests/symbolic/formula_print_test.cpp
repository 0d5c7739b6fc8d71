// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "tests/symbolic/formula_world.h"

using namespace formula_test;

namespace {

/// Both stages of a model with tied embeddings, two uses of the last stage's copy.
Schedule tied(int pp, std::vector<int> micro_batches) {
  Parameter embedding = parameter("embedding"), head = parameter("head", pp - 1);
  embedding.tied = head.tied = "words";
  head.uses = {"main", "mtp"};
  return schedule_of(layout(1, 2, pp), {embedding, parameter("norm"), head}, std::move(micro_batches));
}

}  // namespace

TEST_CASE("formulas stand as people write them") {
  const Schedule all = schedule_of(layout(1, 4, 1), {parameter("weight")});
  const Buffer buffer(all, 0);
  for (const char* text : {"0",
                           "g0",
                           "-g0",
                           "2*g0",
                           "g0/2",
                           "3*g0/2",
                           "-g0/2",
                           "g3 + (g0+g1)/2",
                           "(g0+g1+g2+g3)/2",
                           "g0 + g1",
                           "g0 - g1",
                           "-g0 + g1",
                           "2*(g0+g1)",
                           "-2*(g0+g1)",
                           "-g0 - g1",
                           "2*g0 + 3*g1 - g2",
                           "(3*g0 + 5*g1)/8",
                           "g0/2 + g1/4",
                           "2*(g0+g1)/3",
                           "-(g0+g1)/2",
                           "g3 - (g0+g1)/2",
                           "(g0 - g1)/2",
                           "g0/2 - 3*g1/4",
                           "(g0+g1)/2 + (g2+g3)/3",
                           "g0/12 + g1/20"}) {
    INFO(text);
    CHECK(buffer.again(text) == text);
  }
}

TEST_CASE("a use whose name would read as something else stands in quotes") {
  for (const char* name : {"2nd", "sum", "g", "g1", "a-b", "it''s"}) {
    std::string use = name;
    if (const std::size_t at = use.find("''"); at != std::string::npos) use.erase(at, 1);
    Parameter head = parameter("head");
    head.uses = {"main", use};
    const Schedule all = schedule_of(layout(1, 2, 1), {head});
    const std::string text = "g0.'" + std::string(name) + "'";
    INFO(text);
    CHECK(Buffer(all, 0).again(text) == text);
  }
}

TEST_CASE("a use of letters and digits stands without quotes") {
  for (const char* name : {"azAZ_09", "_", "Z", "G1"}) {
    Parameter head = parameter("head");
    head.uses = {"main", name};
    const Schedule all = schedule_of(layout(1, 2, 1), {head});
    const std::string text = "g0." + std::string(name);
    INFO(text);
    CHECK(Buffer(all, 0).again(text) == text);
  }
}

TEST_CASE("a rank's contributions are told in as few names as they can be") {
  const Schedule all = tied(2, {2});
  const Buffer buffer(all, 2);  // on the last stage
  for (const char* text : {"g2", "g2.0", "g2.1/2", "g2.main", "g2.mtp/3", "g2.0.mtp", "g2.0 + g2.1/2", "g0 + g2.main",
                           "g2.0.main + g2.1.mtp", "g2.0.mtp + g2.1/2"}) {
    INFO(text);
    CHECK(buffer.again(text) == text);
  }
  CHECK(buffer.again("g2.0 + g2.1") == "g2");
  CHECK(buffer.again("g2.0.main + g2.1.main") == "g2.main");
  CHECK(buffer.again("g2 - g2.mtp") == "g2.main");
}

TEST_CASE("a use that did not come in every micro-batch is told beside what all have") {
  Parameter weight = parameter("weight");
  weight.uses = {"main", "mtp"};
  const Schedule all = schedule_of(layout(1, 1, 1), {weight}, {4});
  const Buffer buffer(all, 0);
  for (const char* text :
       {"g0.main + g0.0.mtp", "g0 - g0.2.mtp", "g0.0 + g0.1 + g0.3.mtp", "g0.mtp + (g0.0.main+g0.3.main)/2"}) {
    INFO(text);
    CHECK(buffer.again(text) == text);
  }
  CHECK(buffer.again("g0.0.main + g0.1.main + g0.2.main + g0.3.main + g0.0.mtp") == "g0.main + g0.0.mtp");
}

TEST_CASE("sites are named where a rank's sites differ") {
  const Schedule all = tied(1, {2});
  const Buffer buffer(all, 0);
  CHECK(buffer.again("g0") == "g0");
  CHECK(buffer.again("g0[embedding]") == "g0[embedding]");
  CHECK(buffer.again("g0[embedding]/2 + g0[head]") == "g0[head] + g0[embedding]/2");
  CHECK(buffer.again("g0[head].1") == "g0.1[head]");
  CHECK(buffer.again("g0.mtp") == "g0.mtp");
  CHECK(buffer.again("g0.1") == "g0.1");
  CHECK(buffer.again("g0.1.main[embedding]") == "g0.1[embedding]");
}

TEST_CASE("terms of another optimizer step name their micro-batch") {
  const Schedule all = tied(2, {2, 1});
  const Buffer buffer(all, 2, 0, 1);
  CHECK(buffer.again("g2.2") == "g2");
  CHECK(buffer.again("g2 + g2.0 + g2.1") == "g2 + g2.0 + g2.1");
  CHECK(buffer.again("g2.0.mtp") == "g2.0.mtp");
}

TEST_CASE("foreign terms name their parameter, piece and offset") {
  Parameter weight = parameter("weight"), sharded = parameter("sharded");
  sharded.shard = {{Axis::tp, 0}};
  sharded.shape = {16};
  const Schedule all = schedule_of(layout(2, 2, 1), {weight, sharded});
  const Buffer buffer(all, 1, 1);  // piece 1 of `sharded`
  for (const char* text :
       {"g0[weight]", "g1 + g0[weight+5]", "g0[weight-12]/2", "g0[sharded]", "g1[sharded+1]", "g0[sharded-3]"}) {
    INFO(text);
    CHECK(buffer.again(text) == text);
  }
  CHECK(buffer.again("g0.0.main[weight]") == "g0[weight]");
  const std::vector<Term> terms = buffer.parse("g0[sharded-3]");
  REQUIRE(terms.size() == 1);
  CHECK(terms[0].foreign);
  CHECK(terms[0].piece == 0);
  CHECK(terms[0].offset == -3);
}

TEST_CASE("leftovers come last, with their rank where they differ by rank") {
  Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight")});
  Step equal;
  equal.op = Op::leftover;
  equal.what = "parameter";
  Step each_rank = equal;
  each_rank.what = "weight decay";
  each_rank.per_rank = true;
  all.steps = {equal, each_rank};
  const Buffer buffer(all, 0);
  CHECK(buffer.again("parameter + g0") == "g0 + parameter");
  CHECK(buffer.again("'weight decay'.1/2 + g0") == "g0 + 'weight decay'.1/2");
}

TEST_CASE("many ranks fold along axes") {
  const Schedule all = schedule_of(layout(2, 16, 2), {parameter("weight"), parameter("head", 1)}, {2});
  const Buffer own(all, 0), other_tp(all, 1);
  std::string sum;
  for (int rank = 0; rank < 32; rank += 2) sum += (sum.empty() ? "g" : "+g") + std::to_string(rank);
  CHECK(own.again("(" + sum + ")/16") == "sum(g, dp, micro_batch)/16");
  CHECK(other_tp.again("(" + sum + ")/16") == "sum(g0, dp, micro_batch)/16");
  CHECK(own.again("sum(g.1, dp)") == "sum(g.1, dp)");
  CHECK(own.again("g2 + sum(g, dp, micro_batch)/16") == "g2 + sum(g, dp, micro_batch)/16");
  CHECK(own.again("sum(g, dp, micro_batch)/16 - g30/16") == "(sum(g, dp, micro_batch) - g30)/16");
  const Schedule one = schedule_of(layout(1, 16, 1), {parameter("weight")});
  CHECK(Buffer(one, 3).again("sum(g, dp)/16") == "sum(g, dp)/16");
  const Buffer last(all, 32);
  CHECK(last.again("sum(g0[weight], dp, micro_batch)") == "sum(g0[weight], dp, micro_batch)");
}

TEST_CASE("ranks fold to several sums where one does not have them all") {
  Parameter embedding = parameter("embedding"), head = parameter("head", 3);
  embedding.tied = head.tied = "words";
  const Schedule tied_ends = schedule_of(layout(1, 16, 4), {embedding, head});
  const Buffer ends(tied_ends, 0);
  // All of the first stage, and one rank of the last.
  CHECK(ends.again("sum(g, dp)/2 + g48/2") == "(sum(g, dp)+g48)/2");
  // What both have, and what the one has more.
  CHECK(ends.again("sum(g, dp, pp) + sum(g48, dp)/3") == "sum(g, dp) + 4*sum(g48, dp)/3");
  CHECK(ends.again("sum(g, dp, pp) + 2*(g0+g1+g2)") == "sum(g, dp, pp) + 2*g0 + 2*g1 + 2*g2");
  Parameter replicated = parameter("replicated");
  replicated.partial = {Axis::tp};
  const Schedule grid = schedule_of(layout(4, 8, 1), {replicated});
  const Buffer of_grid(grid, 0);
  CHECK(of_grid.again("sum(g, dp) + sum(g1, dp)") == "sum(g, dp) + sum(g1, dp)");
  CHECK(of_grid.again("sum(g, tp) + sum(g4, tp) + sum(g28, tp)") == "sum(g, tp) + sum(g4, tp) + sum(g28, tp)");
}

TEST_CASE("few ranks fold where a formula has many names") {
  const Schedule all = schedule_of(layout(1, 8, 1), {parameter("weight")}, {3});
  const Buffer buffer(all, 0);
  CHECK(buffer.again("sum(g.0, dp)") == "g0.0 + g1.0 + g2.0 + g3.0 + g4.0 + g5.0 + g6.0 + g7.0");
  CHECK(buffer.again("4*sum(g.0, dp) + 2*sum(g.1, dp) + sum(g.2, dp) - g7.2") ==
        "4*sum(g.0, dp) + 2*sum(g.1, dp) + sum(g.2, dp) - g7.2");
}

TEST_CASE("tied embeddings on both ends fold over the stages that have them") {
  Parameter embedding = parameter("embedding"), head = parameter("head", 3);
  embedding.tied = head.tied = "words";
  const Schedule all = schedule_of(layout(1, 8, 4), {embedding, head});
  const Buffer buffer(all, 0);
  CHECK(buffer.print(buffer.support) == "sum(g, dp, pp)/17");
}

TEST_CASE("hierarchical data parallelism folds over its parts") {
  Layout hybrid = layout(1, 32, 1);
  hybrid.dp_shard = 16;
  hybrid.dp_replicate = 2;
  const Schedule all = schedule_of(hybrid, {parameter("weight")});
  const Buffer buffer(all, 3);
  CHECK(buffer.again("sum(g, dp_shard)") == "sum(g, dp_shard)");
  CHECK(buffer.again("sum(g16, dp_shard)") == "sum(g16, dp_shard)");
  CHECK(buffer.again("sum(g, dp_shard, dp_replicate)") == "sum(g, dp)");
}

TEST_CASE("what is printed reads back to the same terms") {
  Parameter embedding = parameter("embedding"), head = parameter("head", 1), sharded = parameter("sharded");
  embedding.tied = head.tied = "words";
  head.uses = {"main", "mtp"};
  sharded.shard = {{Axis::tp, 0}};
  Parameter both = parameter("both"), again = parameter("again");
  both.tied = again.tied = "twice";
  again.uses = {"main", "aux"};
  std::mt19937 random(7);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  for (const int dp : {2, 12}) {
    Schedule all = schedule_of(layout(2, dp, 2), {embedding, sharded, both, again, parameter("norm", 1), head}, {2, 3});
    Step left;
    left.op = Op::leftover;
    left.what = "parameter";
    all.steps = {left};
    for (int round = 0; round < 600; ++round) {
      const int rank = below(all.mesh.world()), step = below(2);
      const int buffers = static_cast<int>(all.model.local(rank).buffers.size());
      const Buffer buffer(all, rank, below(buffers), step);
      const LocalBuffer& local = all.model.local(rank).buffers[static_cast<std::size_t>(buffer.buffer)];
      std::vector<Term> terms;
      const int pattern = below(5);
      for (Term term : buffer.support) {
        // Whole ranks, micro-batches or uses left out or weighted, so that every kind of name occurs.
        const int part = pattern == 0   ? term.rank
                         : pattern == 1 ? term.micro_batch
                         : pattern == 2 ? term.site_use
                                        : below(3);
        term.coefficient = pattern == 4 ? Rational(1) : Rational(part % 3, 1 + part % 4);
        if (!term.coefficient.is_zero()) terms.push_back(term);
      }
      std::set<std::tuple<int, int, int, int, int, std::int64_t>> seen;
      for (int extra = below(4); extra > 0; --extra) {
        Term term;
        term.rank = below(all.mesh.world());
        term.micro_batch = below(5);
        term.logical = below(static_cast<int>(all.model.logicals().size()));
        const auto i = static_cast<std::size_t>(term.logical);
        term.piece = below(static_cast<int>(all.model.pieces(term.logical).size()));
        term.site_use = below(static_cast<int>(all.model.logicals()[i].uses.size()));
        term.offset = below(5) - 2;
        term.foreign = term.logical != local.logical || term.piece != local.piece || term.offset != 0;
        term.coefficient = Rational(1 + below(5), 1 + below(3)) * Rational(below(2) ? 1 : -1);
        if (!term.foreign && (term.micro_batch >= 2) == (step == 1)) continue;
        if (!seen.emplace(term.rank, term.micro_batch, term.logical, term.piece, term.site_use, term.offset).second)
          continue;
        terms.push_back(term);
      }
      if (below(3) == 0) {
        Term term;
        term.leftover = "parameter";
        term.logical = local.logical;
        term.piece = local.piece;
        term.coefficient = Rational(2);
        terms.push_back(term);
      }
      std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
        const auto key = [](const Term& t) {
          return std::tuple(!t.leftover.empty(), t.foreign, t.rank, t.micro_batch, t.site_use, t.logical, t.piece,
                            t.offset);
        };
        return key(a) < key(b);
      });
      const std::string text = buffer.print(terms);
      INFO("rank " << rank << ": " << text);
      REQUIRE(same_terms(buffer.parse(text), terms));
      CHECK(buffer.again(text) == text);
    }
  }
}
