// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/live/recorded.h"

namespace lockstep {
namespace {

using test::call;
using test::checked;
using test::words;

/// A parameter of a run, or a copy of it under another name.
struct TensorOfRanks {
  std::string name, aliases;  // aliases with their quotes
  std::vector<std::int64_t> shape = {600};
  std::vector<std::int64_t> cuts = {0, 600};  // of its row-major index
  std::vector<std::string> boxes;             // or the pieces one after another are these
  std::map<int, std::vector<int>> pieces;     // by rank that holds it
  int chunk = 0;
  int drawn = 0;  // contributions of the same number are the same
};

/// One optimizer step, whose optimizers get all that their ranks hold.
struct Layouts {
  test::RunWriter::Settings settings;
  std::vector<TensorOfRanks> tensors;
  int micro_batches = 1;
  /// What an owner's optimizer gets, in a tensor, of a rank's contribution to this or another one.
  std::function<double(const TensorOfRanks& to, int owner, const TensorOfRanks& of, int rank)> coefficient =
      [](const TensorOfRanks& to, int owner, const TensorOfRanks& of, int rank) {
        return to.name == of.name && owner == rank ? 1.0 : 0.0;
      };
  std::map<int, std::vector<std::string>> lines;  // after the backward passes, by rank
  std::string tokens = "null";

  Layouts() { settings.collectives = true; }

  std::vector<double> gradient(const TensorOfRanks& tensor, int rank, int m) const {
    if (tensor.drawn == 0) return std::vector<double>(static_cast<std::size_t>(tensor.cuts.back()));
    return test::drawn(static_cast<std::size_t>(tensor.cuts.back()), 1000 * static_cast<std::uint64_t>(tensor.drawn) +
                                                                         10 * static_cast<std::uint64_t>(rank) +
                                                                         static_cast<std::uint64_t>(m) + 1);
  }

  static std::vector<double> part(const std::vector<double>& values, const TensorOfRanks& tensor, int piece) {
    const auto first = values.begin();
    return {first + tensor.cuts[static_cast<std::size_t>(piece)],
            first + tensor.cuts[static_cast<std::size_t>(piece) + 1]};
  }

  RecordedRun recorded() const {
    const test::Folder folder;
    test::RunWriter writer(folder.path(), settings);
    for (int rank = 0; rank < writer.world(); ++rank) {
      for (std::size_t id = 0; id < tensors.size(); ++id) {
        if (tensors[id].pieces.contains(rank)) declare(writer, rank, static_cast<int>(id));
      }
      for (int m = 0; m < micro_batches; ++m) {
        for (std::size_t id = 0; id < tensors.size(); ++id) {
          const auto held = tensors[id].pieces.find(rank);
          if (held == tensors[id].pieces.end()) continue;
          const std::vector<double> values = gradient(tensors[id], rank, m);
          for (const int piece : held->second)
            writer.contribution(rank, 0, m, static_cast<int>(id), piece, part(values, tensors[id], piece),
                                tensors[id].cuts[static_cast<std::size_t>(piece)]);
        }
      }
      if (const auto own = lines.find(rank); own != lines.end()) {
        for (const std::string& line : own->second) writer.line(rank, "{}", line);
      }
      for (std::size_t id = 0; id < tensors.size(); ++id) {
        const auto held = tensors[id].pieces.find(rank);
        if (held == tensors[id].pieces.end()) continue;
        for (const int piece : held->second) {
          const TensorOfRanks& own = tensors[id];
          writer.result(rank, 0, static_cast<int>(id), piece, part(sum(own, rank, piece), own, piece),
                        own.cuts[static_cast<std::size_t>(piece)]);
        }
      }
      writer.step(rank, 0, micro_batches, tokens);
    }
    writer.finish();
    return record_run(folder.path(), {});
  }

 private:
  /// Of all contributions to a piece.
  std::vector<double> sum(const TensorOfRanks& tensor, int owner, int piece) const {
    std::vector<double> all(static_cast<std::size_t>(tensor.cuts.back()));
    for (const TensorOfRanks& other : tensors) {
      for (const auto& [rank, pieces] : other.pieces) {
        const double factor = coefficient(tensor, owner, other, rank);
        if (factor == 0 || std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) continue;
        for (int m = 0; m < micro_batches; ++m) {
          const std::vector<double> values = gradient(other, rank, m);
          for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = test::rounded(all[i] + factor * values[i], Dtype::float32);
        }
      }
    }
    return all;
  }

  void declare(test::RunWriter& writer, int rank, int id) const {
    const TensorOfRanks& tensor = tensors[static_cast<std::size_t>(id)];
    std::string pieces;
    for (std::size_t i = 0; i + 1 < tensor.cuts.size(); ++i)
      pieces += (i > 0 ? "," : "") + (tensor.boxes.empty()
                                          ? fmt::format(R"({{"range":[{},{}]}})", tensor.cuts[i], tensor.cuts[i + 1])
                                          : fmt::format(R"({{"box":{}}})", tensor.boxes[i]));
    writer.line(rank,
                R"({{"event":"parameter","id":{},"name":"{}","shape":[{}],"dtype":"float32","frozen":false,)"
                R"("chunk":{},"aliases":[{}],"pieces":[{}]}})",
                id, tensor.name, fmt::join(tensor.shape, ","), tensor.chunk, tensor.aliases, pieces);
  }
};

TensorOfRanks whole(const std::string& name, const std::vector<int>& ranks, int drawn,
                    const std::string& aliases = "") {
  TensorOfRanks tensor;
  tensor.name = name;
  tensor.aliases = aliases;
  tensor.drawn = drawn;
  for (const int rank : ranks) tensor.pieces[rank] = {0};
  return tensor;
}

/// The scenario's parameter of this name, without its name and shape.
std::string written(const RecordedRun& run, const std::string& name) {
  for (const Json& one : run.scenario.find("model")->find("parameters")->items()) {
    if (one.find("name")->text() != name) continue;
    std::string text;
    for (const Json::Member& member : one.members()) {
      if (member.key == "name") continue;
      text += (text.empty() ? "" : " ") + member.key + "=" + write_json(member.value);
    }
    text.erase(std::remove(text.begin(), text.end(), '\n'), text.end());
    return text;
  }
  return "no parameter";
}

const std::string prefix = "zero; micro_batches(backward by=\"1 / (tokens * micro_batches)\"); ";

/// Four stages; the first and the last share an embedding, and all have a gate.
Layouts pipeline() {
  Layouts run;
  run.settings.mesh = {{"pp", 4}};
  run.settings.data_axes = {};
  run.tensors = {whole("embedding", {0}, 1, "\"head\""), whole("first", {0}, 2), whole("second", {1}, 3),
                 whole("gate", {0, 1, 2, 3}, 4), whole("head", {3}, 5, "\"embedding\"")};
  return run;
}

/// Two data-parallel ranks for each of two experts, which see tokens of both.
Layouts experts(const std::string& reduce) {
  Layouts run;
  run.settings.mesh = {{"dp", 4}};
  run.tensors = {whole("dense", {0, 1, 2, 3}, 1), whole("experts.0.weight", {0, 2}, 2),
                 whole("experts.1.weight", {1, 3}, 3)};
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<int> alike = {rank % 2, rank % 2 + 2};
    run.lines[rank] = {call("all_reduce", {0, 1, 2, 3}, 600, "null", "0", "avg"),
                       call("all_reduce", alike, 600, "null", std::to_string(1 + rank % 2), reduce, "experts.py:3")};
  }
  return run;
}

std::string refusal(const Layouts& run) {
  try {
    run.recorded();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("stages hold parameters, tied ones under the name that each has for them") {
  Layouts run = pipeline();
  CHECK(written(run.recorded(), "gate") == "shape=[600] stage=\"all\"");
  run.tensors.erase(run.tensors.begin() + 3);
  const RecordedRun alone = run.recorded();
  CHECK(alone.unmet.empty());
  CHECK(words(alone) + "; " == prefix);
  CHECK(written(alone, "embedding") == "shape=[600] stage=0 tied=\"embedding\"");
  CHECK(written(alone, "head") == "shape=[600] stage=3 tied=\"embedding\"");
  CHECK(written(alone, "second") == "shape=[600] stage=1");
  const CheckResult check = checked(alone);
  CHECK(check.verdict == Verdict::mismatch);
  REQUIRE_FALSE(check.repairs.empty());
  CHECK(check.blame.front().step == "ends_all_reduce");
}

TEST_CASE("stages of several chunks are virtual ones") {
  Layouts run = pipeline();
  run.tensors[3].chunk = run.tensors[4].chunk = 2;
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(recorded.scenario.find("layout")->find("virtual_stages")->text() == "3");
  CHECK(written(recorded, "gate") == "shape=[600] stage=\"all\" chunk=2");
  CHECK(written(recorded, "embedding") == "shape=[600] stage=0 tied=\"embedding\"");
  CHECK(written(recorded, "head") == "shape=[600] stage=3 chunk=2 tied=\"embedding\"");
}

TEST_CASE("groups of some stages are picks") {
  Layouts run = pipeline();
  run.coefficient = [](const TensorOfRanks& to, int owner, const TensorOfRanks& of, int rank) {
    const bool tied = !to.aliases.empty() && !of.aliases.empty();
    return tied || (to.name == of.name && owner == rank) ? 1.0 : 0.0;
  };
  run.tensors.erase(run.tensors.begin() + 3);  // the gate
  run.lines[0] = {call("all_reduce", {0, 3}, 600, "null", "0")};
  run.lines[3] = {call("all_reduce", {0, 3}, 600, "null", "3", "sum", "train.py:12 in main")};
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == prefix + "pp_all_reduce/train.py:9 params=[\"tied:embedding\"] over={  \"pp\": [0, 3]}");
  CHECK(checked(recorded).verdict == Verdict::match);
}

TEST_CASE("equal blocks of a dimension, each as far from the next, are one more dimension") {
  Layouts run;
  run.settings.mesh = {{"tp", 2}};
  run.settings.data_axes = {};
  TensorOfRanks tensor;
  tensor.name = "gated";
  tensor.drawn = 1;
  tensor.shape = {8, 75};
  tensor.cuts = {0, 150, 300, 450, 600};
  tensor.pieces = {{0, {0, 2}}, {1, {1, 3}}};
  run.tensors = {tensor};
  RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(written(recorded, "gated") == "shape=[2, 4, 75] shard={ \"tp\": 1 }");
  CHECK(checked(recorded).verdict == Verdict::match);
  // What no row ends is in the same order.
  run.tensors[0].cuts = {0, 100, 150, 300, 450, 520, 600};
  run.tensors[0].pieces = {{0, {0, 1, 3}}, {1, {2, 4, 5}}};
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(written(recorded, "gated") == "shape=[2, 4, 75] shard={ \"tp\": 1 }");
  // Columns.
  tensor.shape = {4, 150};
  tensor.cuts = {0, 100, 200, 300, 400, 500, 600};
  tensor.boxes = {"[[0,4],[0,25]]",   "[[0,4],[25,50]]",   "[[0,4],[50,75]]",
                  "[[0,4],[75,100]]", "[[0,4],[100,125]]", "[[0,4],[125,150]]"};
  tensor.pieces = {{0, {0, 2, 4}}, {1, {1, 3, 5}}};
  run.tensors = {tensor};
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(written(recorded, "gated") == "shape=[4, 3, 50] shard={ \"tp\": 2 }");
  // Those of a rank that are not as far from each other as the others are.
  run.tensors[0].pieces = {{0, {0, 2, 5}}, {1, {1, 3, 4}}};
  CHECK_THROWS_WITH(run.recorded(),
                    Catch::Matchers::Contains("rank 0 yields a gradient for a part of gated that is no box"));
}

TEST_CASE("experts of different ranks are one parameter, whose tokens are dispatched") {
  Layouts run = experts("avg");
  run.coefficient = [](const TensorOfRanks& to, int, const TensorOfRanks& of, int) {
    return to.name != of.name ? 0.0 : to.name == "dense" ? 0.25 : 0.5;
  };
  RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(write_json(*recorded.scenario.find("layout")) == "{ \"dp\": 4, \"ep\": 2, \"order\": \"ep-dp\" }\n");
  CHECK(written(recorded, "dense") == "shape=[600]");
  CHECK(written(recorded, "experts.0+1.weight") == "shape=[2, 600] shard={ \"ep\": 0 } dispatch=[\"ep\"]");
  CHECK(words(recorded) == prefix +
                               "dp_all_reduce/train.py:9 params=[\"!shard:ep\"] over=\"dp\" reduce=\"avg\"; "
                               "edp_all_reduce/experts.py:3 params=[\"shard:ep\"] over=\"edp\" reduce=\"avg\"");
  CHECK(checked(recorded).verdict == Verdict::mismatch);
  // Each has the tokens of two ranks in it: the mean is over four.
  run = experts("sum");
  run.coefficient = [](const TensorOfRanks& to, int, const TensorOfRanks& of, int) {
    return to.name == of.name ? 0.25 : 0.0;
  };
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(checked(recorded).verdict == Verdict::match);
  // An expert that no token has visited.
  run.tensors[2].drawn = 0;
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(written(recorded, "experts.0+1.weight") == "shape=[2, 600] shard={ \"ep\": 0 } dispatch=[\"ep\"]");
  run.tensors[2].drawn = 3;
  run.tensors[1].pieces = {{0, {}}, {2, {}}};  // and whose optimizer gets nothing
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(written(recorded, "experts.0+1.weight") == "shape=[2, 600] shard={ \"ep\": 0 } dispatch=[\"ep\"]");
  run = experts("sum");
  run.lines[1][1] = call("all_reduce", {1, 3}, 600, "null", "2", "avg", "experts.py:3");
  run.lines[3][1] = run.lines[1][1];
  CHECK(test::says(refusal(run),
                   "experts.0.weight meets other collectives than that of experts.1.weight, an expert of other ranks"));
}

TEST_CASE("what of another expert is added to one is predicted") {
  Layouts run;
  run.tensors = {whole("experts.0.weight", {0}, 1), whole("experts.1.weight", {1}, 2)};
  run.coefficient = [](const TensorOfRanks&, int, const TensorOfRanks&, int) { return 0.5; };
  for (int rank = 0; rank < 2; ++rank)
    run.lines[rank] = {call("all_reduce", {0, 1}, 600, "null", std::to_string(rank), "avg")};
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == prefix + "dp_all_reduce/train.py:9 over=\"dp\" reduce=\"avg\"");
  CHECK(checked(recorded).verdict == Verdict::mismatch);
  // With another factor it is not.
  run.coefficient = [](const TensorOfRanks& to, int, const TensorOfRanks& of, int) {
    return to.name == of.name ? 0.5 : 0.25;
  };
  CHECK_FALSE(run.recorded().unmet.empty());
}

TEST_CASE("each stage has experts of its own") {
  Layouts run;
  run.settings.mesh = {{"pp", 2}, {"dp", 2}};
  run.tensors = {whole("layers.0.experts.0", {0}, 1), whole("layers.0.experts.1", {1}, 2),
                 whole("layers.1.experts.0", {2}, 3), whole("layers.1.experts.1", {3}, 4)};
  run.coefficient = [](const TensorOfRanks& to, int, const TensorOfRanks& of, int) {
    return to.name == of.name ? 0.5 : 0.0;
  };
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(written(recorded, "layers.0.experts.0+1") == "shape=[2, 600] stage=0 shard={ \"ep\": 0 } dispatch=[\"ep\"]");
  CHECK(written(recorded, "layers.1.experts.0+1") == "shape=[2, 600] stage=1 shard={ \"ep\": 0 } dispatch=[\"ep\"]");
  CHECK(checked(recorded).verdict == Verdict::match);
}

TEST_CASE("what some ranks of a stage hold and is on no expert mesh is refused in a sentence") {
  Layouts run = experts("avg");
  run.tensors[1].pieces = {{0, {0}}, {1, {0}}, {2, {0}}};
  CHECK(test::says(refusal(run), "experts.0.weight is on ranks 0 to 2 and on no other of their stage"));
  run = experts("avg");
  run.tensors.push_back(whole("experts.3.weight", {1, 3}, 4));
  CHECK(test::says(refusal(run), "ranks of one stage hold 1 and 2 parameters that the others have not"));
  run = experts("avg");
  run.tensors[2].name = "other.3.weight";
  CHECK(test::says(refusal(run), "experts.0.weight and other.3.weight are in the same place"));
  run = experts("avg");
  run.settings.mesh = {{"dp", 2}, {"tp", 2}};
  CHECK(test::says(refusal(run), "are not recorded under tensor parallelism yet"));
}

TEST_CASE("axes that split sequences have shares of a loss where a rank's is its part of the mean") {
  for (const std::string axis : {"sp", "cp"}) {
    Layouts run;
    run.settings.mesh = {{"dp", 2}, {axis, 2}};
    run.settings.data_axes = {"dp"};
    run.tensors = {whole("a", {0, 1, 2, 3}, 1)};
    run.coefficient = [](const TensorOfRanks&, int, const TensorOfRanks&, int) { return 0.5; };
    for (int rank = 0; rank < 4; ++rank) {
      run.lines[rank] = {call("all_reduce", {rank % 2, rank % 2 + 2}, 600, "null", "0", "avg"),
                         call("all_reduce", {rank / 2 * 2, rank / 2 * 2 + 1}, 600, "null", "0")};
    }
    RecordedRun recorded = run.recorded();
    CHECK(recorded.unmet.empty());
    CHECK(words(recorded) == fmt::format("zero; micro_batches(backward by=\"1 / (tokens * micro_batches * {0})\"); "
                                         "dp_all_reduce/train.py:9 over=\"dp\" reduce=\"avg\"; "
                                         "{0}_all_reduce/train.py:9 over=\"{0}\"",
                                         axis));
    CHECK(written(recorded, "a") == "shape=[600]");
    CHECK(checked(recorded).verdict == Verdict::match);
    // 4 tokens of 8.
    run.tokens = "[4]";
    for (const auto& [loss, by, right] :
         std::vector<std::tuple<std::string, std::string, double>>{{"token_sum", "1 / " + axis, 1.0 / 8},
                                                                   {"token_mean", "1 / (tokens * " + axis + ")", 0.5},
                                                                   {"sum", "", 1}}) {
      run.settings.loss = "\"" + loss + "\"";
      for (const double factor : {right, right / 2}) {
        run.coefficient = [factor](const TensorOfRanks&, int, const TensorOfRanks&, int) { return factor; };
        recorded = run.recorded();
        CHECK(recorded.unmet.empty());
        CHECK(words(recorded).starts_with("zero; micro_batches(backward" + (by.empty() ? ")" : " by=\"" + by + "\")")));
        CHECK(checked(recorded).verdict == (factor == right ? Verdict::match : Verdict::mismatch));
      }
    }
  }
}

TEST_CASE("what all stages hold is summed over the pipeline, whatever else each of them calls") {
  Layouts run = pipeline();
  run.tensors[0].aliases = run.tensors[4].aliases = "";
  run.settings.mesh = {{"pp", 4}, {"dp", 2}};
  run.settings.data_axes = {"dp"};
  for (TensorOfRanks& tensor : run.tensors) {
    std::map<int, std::vector<int>> both;
    for (const auto& [rank, pieces] : tensor.pieces) both[2 * rank] = both[2 * rank + 1] = pieces;
    tensor.pieces = both;
  }
  for (int rank = 0; rank < 8; ++rank) {
    const std::vector<int> data = {rank / 2 * 2, rank / 2 * 2 + 1};
    const std::vector<int> stages = {rank % 2, rank % 2 + 2, rank % 2 + 4, rank % 2 + 6};
    // A stage that has more to do comes later to what all of them do.
    for (int other = 0; other < rank / 2; ++other) run.lines[rank].push_back(call("all_gather", data, 1, "null", ""));
    if (rank == 2 || rank == 3)
      run.lines[rank].push_back(call("all_reduce", data, 600, "null", "2", "avg", "own.py:1"));
    if (rank < 2) run.lines[rank].push_back(call("all_reduce", data, 1200, "null", "0,1", "avg", "own.py:2"));
    run.lines[rank].push_back(call("all_reduce", data, 600, "null", "3", "avg"));
    run.lines[rank].push_back(call("all_reduce", stages, 600, "null", "3", "sum", "train.py:10"));
    if (rank >= 6) run.lines[rank].push_back(call("all_reduce", data, 600, "null", "4", "avg", "own.py:3"));
  }
  run.coefficient = [](const TensorOfRanks& to, int, const TensorOfRanks& of, int) {
    return to.name == of.name ? 0.5 : 0.0;
  };
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == prefix +
                               "dp_all_reduce/own.py:2 params=[\"embedding\", \"first\"] over=\"dp\" reduce=\"avg\"; "
                               "dp_all_reduce/train.py:9 params=[\"gate\"] over=\"dp\" reduce=\"avg\"; "
                               "dp_all_reduce/own.py:1 params=[\"second\"] over=\"dp\" reduce=\"avg\"; "
                               "pp_all_reduce/train.py:10 params=[\"gate\"] over=\"pp\"; "
                               "dp_all_reduce/own.py:3 params=[\"head\"] over=\"dp\" reduce=\"avg\"");
  CHECK(checked(recorded).verdict == Verdict::match);
}

}  // namespace lockstep
