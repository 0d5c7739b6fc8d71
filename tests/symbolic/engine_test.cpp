// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

// A scenario and what the symbolic engine makes of it.
struct Run {
  explicit Run(const std::string& text)
      : scenario(read_scenario(std::make_shared<Source>(Source{"test.json", text}))),
        schedule(*scenario.schedule),
        timeline(walk(schedule)),
        engine(schedule, timeline),
        result(engine.run()) {}

  const BufferResult& buffer(int rank, const std::string& name) const {
    for (const BufferResult& buffer : result.buffers) {
      if (buffer.rank != rank) continue;
      for (int parameter : schedule.model.local(rank).buffers[static_cast<std::size_t>(buffer.buffer)].parameters) {
        if (schedule.model.parameters()[static_cast<std::size_t>(parameter)].name == name) return buffer;
      }
    }
    throw InternalError("no such buffer: " + name);
  }
  std::string print(int form, const BufferResult& of) const {
    const LocalBuffer& local = schedule.model.local(of.rank).buffers[static_cast<std::size_t>(of.buffer)];
    return print_formula(schedule, of.rank, of.buffer, engine.terms(form, of.rank, of.buffer),
                         reference_terms(schedule, local.logical, local.piece, result.step));
  }
  // "[0,2) g0; [2,4) g1" for what a rank hands to its optimizer.
  std::string got(int rank, const std::string& name) const {
    const BufferResult& of = buffer(rank, name);
    std::string text;
    for (const PieceResult& piece : of.pieces) {
      text += (text.empty() ? "[" : "; [") + std::to_string(piece.elements.begin) + "," +
              std::to_string(piece.elements.end) + ") " + print(piece.form, of);
    }
    return text;
  }
  std::string expected(int rank, const std::string& name) const {
    const BufferResult& of = buffer(rank, name);
    return print(of.pieces.front().reference, of);
  }

  Scenario scenario;
  const Schedule& schedule;
  Timeline timeline;
  SymbolicEngine engine;
  SymbolicResult result;
};

const std::string one =
    R"("lockstep": 1, "name": "t", "batch": { "micro_batches": 1, "tokens": "even", "loss": "token_mean" })";
const std::string backward =
    R"({ "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] })";

std::string text(const std::string& layout, const std::string& parameters, const std::string& steps,
                 const std::string& head = one, const std::string& schedule_keys = "") {
  return "{ " + head + ", \"layout\": " + layout + ", \"model\": { \"parameters\": [" + parameters +
         "] }, \"schedule\": { " + schedule_keys + "\"steps\": [" + steps + "] } }";
}

}  // namespace

TEST_CASE("the average over dp is the mean of two ranks") {
  const Run run(text(R"({ "dp": 2 })", R"({ "name": "w", "shape": [4] })",
                     backward + R"(, { "name": "s", "op": "all_reduce", "over": "dp", "reduce": "avg" })"));
  CHECK(run.result.match);
  CHECK(run.got(0, "w") == "[0,4) (g0+g1)/2");
}

TEST_CASE("a missing all-reduce leaves each rank its own gradient, and replicas disagree") {
  const Run run(text(R"({ "dp": 2 })", R"({ "name": "w", "shape": [4] })", backward));
  CHECK_FALSE(run.result.match);
  CHECK(run.got(1, "w") == "[0,4) g1");
  CHECK(run.expected(1, "w") == "(g0+g1)/2");
  CHECK_FALSE(run.result.replicas_agree[0]);
}

TEST_CASE("a wrong factor is a ratio, and replicas agree on it") {
  const Run run(text(R"({ "dp": 2 })", R"({ "name": "w", "shape": [4] })",
                     backward + R"(, { "name": "s", "op": "all_reduce", "over": "dp" })"));
  CHECK_FALSE(run.result.match);
  CHECK(run.buffer(0, "w").pieces.front().ratio == Rational(2));
  CHECK(run.result.replicas_agree[0]);
}

TEST_CASE("a reduce-scatter leaves the other elements stale, and a later all-reduce mixes them in") {
  const Run run(
      text(R"({ "dp": 2, "pp": 2 })",
           R"({ "name": "a", "shape": [3], "tied": "e" }, { "name": "b", "shape": [3], "tied": "e", "stage": -1 },
                        { "name": "c", "shape": [3], "stage": -1 })",
           backward + R"(, { "name": "s", "op": "reduce_scatter", "over": "dp", "reduce": "avg",
                                       "geometry": { "kind": "flat" } },
                                     { "name": "e", "op": "all_reduce", "params": "tied:e", "over": { "pp": ["first", "last"] } })"));
  CHECK_FALSE(run.result.match);
  CHECK(run.got(0, "a") == "[0,2) (g0+g1+g2+g3)/2");
  CHECK(run.got(1, "a") == "[2,3) g3 + (g0+g1)/2");
  CHECK(run.got(2, "b") == "[0,2) (g0+g1+g2+g3)/2; [2,3) g0 + (g2+g3)/2");
  CHECK(run.got(3, "b") == "");
  CHECK_FALSE(run.result.replicas_agree[0]);
}

TEST_CASE("uneven tokens weigh the pieces") {
  const Run run(
      text(R"({ "dp": 2 })", R"({ "name": "w", "shape": [1] })",
           R"({ "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/tokens" } ] },
                        { "name": "s", "op": "all_reduce", "over": "dp", "reduce": "avg" })",
           R"("lockstep": 1, "name": "t", "batch": { "micro_batches": 1, "tokens": [[[[3]], [[5]]]] })"));
  CHECK(run.got(0, "w") == "[0,1) (g0+g1)/2");
  CHECK(run.expected(0, "w") == "(3*g0 + 5*g1)/8");
}

TEST_CASE("a piece without tokens contributes to nothing, and `by` is not evaluated there") {
  const Run run(text(
      R"({ "dp": 2 })", R"({ "name": "w", "shape": [1] })",
      R"({ "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/tokens" } ] },
                        { "name": "s", "op": "all_reduce", "over": "dp", "reduce": "avg" })",
      R"("lockstep": 1, "name": "t", "batch": { "micro_batches": 1, "tokens": [[[[4]], [[0]]]], "loss": "local_mean" })"));
  CHECK(run.result.match);
  CHECK(run.got(1, "w") == "[0,1) g0/2");
}

TEST_CASE("replicated parameters are named by the lowest rank, partial ones are summed") {
  const std::string parameters = R"({ "name": "r", "shape": [2] }, { "name": "p", "shape": [2], "partial": ["tp"] },
                                    { "name": "s", "shape": [4], "shard": { "tp": 0 } })";
  const Run run(text(R"({ "tp": 2 })", parameters, backward));
  CHECK(run.got(1, "r") == "[0,2) g0");
  CHECK(run.got(1, "p") == "[0,2) g1");
  CHECK(run.expected(1, "p") == "g0 + g1");
  CHECK(run.got(1, "s") == "[0,2) g1");
  CHECK(run.expected(1, "s") == "g1");
  const Run reduced(
      text(R"({ "tp": 2 })", parameters, backward + R"(, { "name": "n", "op": "all_reduce", "over": "tp" })"));
  CHECK(reduced.got(1, "r") == "[0,2) 2*g0");
  CHECK(reduced.got(1, "p") == "[0,2) g0 + g1");
  CHECK(reduced.got(1, "s") == "[0,2) g1 + g0[s]");
}

TEST_CASE("dispatch: an expert's gradient sums the tokens of its group, named by their ranks") {
  const Run run(text(R"({ "dp": 4, "ep": 2 })",
                     R"({ "name": "e", "shape": [2, 3], "shard": { "ep": 0 }, "dispatch": ["ep"] })",
                     backward + R"(, { "name": "s", "op": "all_reduce", "over": "edp" },
                                     { "name": "f", "op": "scale", "by": "1/dp" })"));
  CHECK(run.result.match);
  CHECK(run.got(3, "e") == "[0,3) (g0+g1+g2+g3)/4");
}

TEST_CASE("tied parameters on one rank share a buffer that takes all their uses") {
  const Run run(text("{}", R"({ "name": "a", "shape": [2], "tied": "t" }, { "name": "b", "shape": [2], "tied": "t" })",
                     backward));
  CHECK(run.result.match);
  CHECK(run.result.buffers.size() == 1);
  CHECK(run.got(0, "b") == "[0,2) g0");
}

TEST_CASE("elements that nobody in a family owns are a mismatch, though no value is wrong") {
  const Run run(text(R"({ "dp": 2 })", R"({ "name": "w", "shape": [4] })",
                     backward + R"(, { "name": "s", "op": "all_reduce", "over": "dp", "reduce": "avg" },
                                     { "name": "o", "op": "own", "over": "dp" }, { "name": "again", "op": "reduce_scatter",
                                       "over": "dp", "reduce": "avg", "geometry": { "kind": "flat", "align": 8 } })"));
  CHECK_FALSE(run.result.match);
  CHECK(run.got(0, "w") == "[0,2) (g0+g1)/2");
  REQUIRE(run.result.unowned.size() == 2);
  CHECK(run.result.unowned[0].elements == Intervals{{2, 4}});
}

TEST_CASE("a leftover is one unknown per element, equal on all ranks unless it is per rank") {
  const Run run(text(R"({ "dp": 2 })", R"({ "name": "w", "shape": [4] })",
                     backward + R"(, { "name": "l", "op": "leftover", "what": "parameter" },
                                     { "name": "k", "op": "leftover", "what": "noise", "per": "rank", "by": "1/2" },
                                     { "name": "s", "op": "all_reduce", "over": "dp", "reduce": "avg" })"));
  CHECK(run.got(0, "w") == "[0,4) parameter + (g0+g1)/2 + (noise.0+noise.1)/4");
  const BufferResult& buffer = run.buffer(0, "w");
  for (const Term& term : run.engine.terms(buffer.pieces.front().form, 0, buffer.buffer)) {
    if (!term.leftover.empty()) CHECK(run.engine.by(term) == 1);  // no backward multiplied it
  }
}

TEST_CASE("what an earlier optimizer step left behind stays in the buffer unless it is cleared") {
  const std::string head =
      R"("lockstep": 1, "name": "t", "batch": { "micro_batches": 1, "steps": 2, "tokens": "even" })";
  const Run run(text("{}", R"({ "name": "w", "shape": [1] })", backward, head));
  CHECK(run.result.step == 1);
  CHECK(run.got(0, "w") == "[0,1) g0 + g0.0");
  CHECK(Run(text("{}", R"({ "name": "w", "shape": [1] })", R"({ "name": "zero", "op": "zero" }, )" + backward, head))
            .result.match);
}

TEST_CASE("ranks whose norms count the same elements equally often are told from others") {
  const std::string sync = backward + R"(, { "name": "s", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
  const std::string w = R"({ "name": "w", "shape": [4], "shard": { "tp": 0 } }, { "name": "v", "shape": [2] })";
  const auto norms = [&](const std::string& steps) {
    return Run(text(R"({ "tp": 2, "dp": 2 })", w, sync + steps)).result.norm_of;
  };
  CHECK(norms("").empty());
  // Other groups, but the same elements.
  CHECK(norms(R"(, { "name": "n", "op": "norm", "over": "tp" })") == std::vector<int>{0, 0, 0, 0});
  CHECK(norms(R"(, { "name": "n", "op": "norm", "over": "tp", "only": { "dp": [1] } })") ==
        std::vector<int>{0, 0, 1, 1});
  // Each counts half of w: the same number of elements, but others.
  CHECK(norms(R"(, { "name": "n", "op": "norm" })") == std::vector<int>{0, 1, 0, 1});
}

TEST_CASE("the norm must count every element once, in its final state, on every rank") {
  const std::string sync = backward + R"(, { "name": "s", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
  const std::string w = R"({ "name": "w", "shape": [4] }, { "name": "v", "shape": [2], "stage": -1 })";
  const auto norm = [&](const std::string& steps) {
    std::vector<std::string> found;
    const Run run(text(R"({ "dp": 2, "pp": 2 })", w, steps));
    for (const NormResult& entry : run.result.norm) {
      found.push_back(run.schedule.model.parameters()[static_cast<std::size_t>(entry.parameter)].name + "@" +
                      std::to_string(entry.rank) + "=" + entry.counted);
    }
    CHECK(run.result.match == found.empty());
    return found;
  };
  using Found = std::vector<std::string>;
  CHECK(norm(sync + R"(, { "name": "n", "op": "norm", "over": "pp" })").empty());
  CHECK(norm(sync + R"(, { "name": "n", "op": "norm" })") == Found{"v@0=0", "v@1=0", "w@2=0", "w@3=0"});
  CHECK(norm(sync + R"(, { "name": "n", "op": "norm", "over": ["dp", "pp"] })").size() == 8);
  CHECK(norm(sync + R"(, { "name": "n", "op": "norm", "over": ["dp", "pp"], "count": "rank.dp == 0" })").empty());
  CHECK(norm(backward + R"(, { "name": "n", "op": "norm", "over": "pp", "params": "w" },
                             { "name": "s", "op": "all_reduce", "over": "dp", "reduce": "avg" },
                             { "name": "m", "op": "norm", "over": "pp", "params": "v" })") ==
        Found{"w@0=1", "w@1=1", "w@2=1", "w@3=1"});
  CHECK(norm(sync + R"(, { "name": "n", "op": "norm", "over": "pp", "combine": "mean_of_norms" })").front() ==
        "w@0=mean_of_norms");
}
