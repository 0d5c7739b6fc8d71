// SPDX-License-Identifier: Apache-2.0
// Runs whose optimizers get parts of what is reduced.
#include <algorithm>
#include <functional>
#include <numeric>

#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/recorded.h"

namespace lockstep {
namespace {

using test::call;
using test::checked;
using test::words;

/// A parameter of 600 elements, cut in pieces, each with the rank whose optimizer gets it.
struct Tensor {
  std::string name;
  std::vector<std::pair<std::int64_t, int>> pieces;  // where one ends, and whose it is; -1: all ranks'
  int group = 0;
  std::vector<int> holders = {0, 1, 2, 3};  // ranks whose backward yields a gradient
  std::string shape = "600";
};

/// One optimizer step of two micro-batches.
struct Parts {
  test::RunWriter::Settings settings;
  std::vector<Tensor> tensors;
  /// With what a rank's contribution enters an optimizer's result.
  std::function<double(int owner, int rank, int micro_batch)> coefficient = [this](int, int, int) {
    return 1.0 / world();
  };
  std::function<std::vector<std::string>(int micro_batch)> lines = [](int) { return std::vector<std::string>{}; };
  std::vector<std::vector<int>> tokens;  ///< by rank and micro-batch

  explicit Parts(int ranks) {
    settings.collectives = true;
    settings.mesh = {{"dp", ranks}};
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  ~Parts() = default;

  int world() const {
    int ranks = 1;
    for (const auto& [axis, size] : settings.mesh) ranks *= size;
    return ranks;
  }

  RecordedRun recorded() const {
    const test::Folder folder;
    write(folder.path());
    return record_run(folder.path());
  }

  void write(const std::string& folder) const {
    test::RunWriter writer(folder, settings);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      std::vector<std::int64_t> cuts = {0};
      for (const auto& [end, owner] : tensors[i].pieces) cuts.push_back(end);
      writer.parameter(static_cast<int>(i), tensors[i].name, 600, cuts, tensors[i].group, tensors[i].shape);
    }
    for (int rank = 0; rank < world(); ++rank) {
      for (int m = 0; m < 2; ++m) {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          if (!holds(i, rank)) continue;
          each_piece(i, gradient(i, rank, m),
                     [&](int piece, int, const std::vector<double>& values, std::int64_t first) {
                       writer.contribution(rank, 0, m, static_cast<int>(i), piece, values, first);
                     });
        }
        for (const std::string& line : lines(m)) writer.line(rank, "{}", line);
      }
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        std::vector<double> sum(600);
        for (int source = 0; source < world(); ++source) {
          if (!holds(i, source)) continue;
          for (int m = 0; m < 2; ++m) {
            const double factor = coefficient(rank, source, m);
            const std::vector<double> values = gradient(i, source, m);
            for (std::size_t k = 0; k < sum.size(); ++k)
              sum[k] = test::rounded(sum[k] + factor * values[k], Dtype::float32);
          }
        }
        each_piece(i, sum, [&](int piece, int owner, const std::vector<double>& values, std::int64_t first) {
          if (owner == -1 || owner == rank) writer.result(rank, 0, static_cast<int>(i), piece, values, first);
        });
      }
      writer.step(
          rank, 0, 2,
          tokens.empty() ? "null" : fmt::format("[{}]", fmt::join(tokens[static_cast<std::size_t>(rank)], ",")));
    }
    writer.finish();
  }

 private:
  bool holds(std::size_t tensor, int rank) const {
    const std::vector<int>& all = tensors[tensor].holders;
    return std::find(all.begin(), all.end(), rank) != all.end();
  }
  static std::vector<double> gradient(std::size_t tensor, int rank, int micro_batch) {
    return test::drawn(
        600, 1000 * tensor + 10 * static_cast<std::uint64_t>(rank) + static_cast<std::uint64_t>(micro_batch) + 1);
  }

  template <class Use>
  void each_piece(std::size_t tensor, const std::vector<double>& values, const Use& use) const {
    std::int64_t first = 0;
    int piece = 0;
    for (const auto& [end, owner] : tensors[tensor].pieces) {
      use(piece++, owner, {values.begin() + first, values.begin() + end}, first);
      first = end;
    }
  }
};

std::vector<int> ranks(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Collectives after the last micro-batch.
auto at_the_end(const std::vector<std::string>& calls) {
  return [calls](int m) { return m == 1 ? calls : std::vector<std::string>{}; };
}

const std::string begin = "zero; micro_batches(backward by=\"1 / (tokens * micro_batches)\"); ";
const std::string scatter = "dp_reduce_scatter/train.py:9";

std::string geometry(const std::string& inside) { return "geometry={ \"kind\": " + inside + " }"; }

}  // namespace

TEST_CASE("what is reduced whole and owned in parts of a flat tensor has a step that moves nothing") {
  Parts run(4);
  run.tensors = {{"a", {{300, 0}, {600, 1}}}, {"b", {{300, 2}, {600, 3}}}};
  run.lines = at_the_end({call("all_reduce", ranks(4), 1200, "null", "0,1", "avg")});
  RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(recorded.notes.empty());
  CHECK(words(recorded) ==
        begin + "dp_all_reduce/train.py:9 over=\"dp\" reduce=\"avg\"; dp_own over=\"dp\" " + geometry("\"flat\""));
  CHECK(checked(recorded).verdict == Verdict::match);

  // Filled up to a multiple of 32: slices of 304.
  run.tensors = {{"a", {{304, 0}, {600, 1}}}, {"b", {{8, 1}, {312, 2}, {600, 3}}}};
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).ends_with("dp_own over=\"dp\" " + geometry("\"flat\", \"align\": \"8 * n\"")));
  // To no power of two.
  run.tensors = {{"a", {{330, 0}, {600, 1}}}, {"b", {{60, 1}, {390, 2}, {600, 3}}}};
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).ends_with("dp_own over=\"dp\" " + geometry("\"flat\", \"align\": \"330 * n\"")));
}

TEST_CASE("each parameter may be owned in parts by itself") {
  Parts run(4);
  const std::vector<std::pair<std::int64_t, int>> quarters = {{150, 0}, {300, 1}, {450, 2}, {600, 3}};
  run.tensors = {{"a", quarters}, {"b", quarters}};
  run.lines = at_the_end({call("all_reduce", ranks(4), 1200, "null", "0,1", "avg")});
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).ends_with("dp_own over=\"dp\" " + geometry("\"parameter\"")));
}

TEST_CASE("ownership that no geometry gives does not meet") {
  Parts run(2);
  run.tensors = {{"a", {{100, 0}, {600, 1}}}, {"b", {{100, 0}, {600, 1}}}};
  run.lines = at_the_end({call("all_reduce", ranks(2), 1200, "null", "0,1", "avg")});
  RecordedRun recorded = run.recorded();
  REQUIRE(recorded.unmet.size() == 1);
  CHECK(recorded.unmet[0] ==
        "a and b on ranks 0 and 1: the schedule's optimizers get other elements of it than the run's.");
  CHECK(words(recorded) == begin + "dp_all_reduce/train.py:9 over=\"dp\" reduce=\"avg\"");
  // A flat tensor in another order than the model's.
  run.tensors = {{"a", {{600, 0}}}, {"b", {{600, 1}}}, {"c", {{600, 0}}}, {"d", {{600, 1}}}};
  run.lines = at_the_end({call("all_reduce", ranks(2), 2400, "null", "0,1,2,3", "avg")});
  recorded = run.recorded();
  CHECK(recorded.unmet.size() == 2);
}

TEST_CASE("the optimizer's groups have flat tensors of their own") {
  Parts run(2);
  run.tensors = {{"a", {{600, 0}}, 0}, {"b", {{600, 0}}, 1}, {"c", {{600, 0}}, 0},
                 {"d", {{600, 1}}, 1}, {"e", {{600, 1}}, 0}, {"f", {{600, 1}}, 0}};
  run.lines = at_the_end({call("all_reduce", ranks(2), 3600, "null", "0,1,2,3,4,5", "avg")});
  RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  run.tensors[1].pieces = {{300, 0}, {600, 1}};
  run.tensors.erase(run.tensors.begin() + 3);
  run.lines = at_the_end({call("all_reduce", ranks(2), 3000, "null", "0,1,2,3,4", "avg")});
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).ends_with("dp_own params=[\"b\"] over=\"dp\" " + geometry("\"parameter\"") +
                                  "; dp_own.2 params=[\"!b\"] over=\"dp\" " + geometry("\"flat\"")));
}

TEST_CASE("the buckets of a distributed optimizer are found") {
  Parts run(4);
  const auto scattered = [](int elements, const std::string& parameters) {
    return call("reduce_scatter", ranks(4), elements, "null", parameters, "avg");
  };
  // The last parameter lies first, and a begins at 640.
  run.tensors = {{"a", {{320, 2}, {600, 3}}}, {"b", {{320, 0}, {600, 1}}}};
  run.lines = at_the_end({scattered(1280, "1,0")});
  RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == begin + scatter + " over=\"dp\" reduce=\"avg\" " + geometry("\"bucket\""));
  CHECK(checked(recorded).verdict == Verdict::match);
  // Without gaps.
  run.tensors = {{"a", {{300, 2}, {600, 3}}}, {"b", {{300, 0}, {600, 1}}}};
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).ends_with(geometry("\"bucket\", \"align_parameter\": \"1\", \"align_bucket\": \"n\"")));
  // Two buckets.
  const std::vector<std::pair<std::int64_t, int>> quarters = {{160, 0}, {320, 1}, {480, 2}, {600, 3}};
  run.tensors = {{"a", quarters}, {"b", quarters}};
  run.lines = at_the_end({scattered(640, "1"), scattered(640, "0")});
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).ends_with(geometry("\"bucket\", \"size\": 600")));
  // One for c by itself, which is no larger than b, after which none closes.
  run.tensors = {{"a", {{320, 2}, {600, 3}}}, {"b", {{320, 0}, {600, 1}}}, {"c", quarters}};
  run.lines = at_the_end({scattered(640, "2"), scattered(1280, "1,0")});
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).ends_with("geometry={  \"kind\": \"bucket\",  \"separate\": [\"c\"]}"));
  // Of those of three and of two parameters no size makes both.
  run.tensors = {{"a", {{160, 2}, {600, 3}}},
                 {"b", {{320, 1}, {600, 2}}},
                 {"c", {{480, 0}, {600, 1}}},
                 {"d", {{320, 2}, {600, 3}}},
                 {"e", {{320, 0}, {600, 1}}}};
  run.lines = at_the_end({scattered(1280, "4,3"), scattered(1920, "2,1,0")});
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  const std::string alone = " over=\"dp\" reduce=\"avg\" " + geometry("\"bucket\"");
  CHECK(words(recorded) ==
        begin + scatter + " params=[\"d\", \"e\"]" + alone + "; " + scatter + ".2 params=[\"!d\", \"!e\"]" + alone);
}

TEST_CASE("a bucket that is reduced in parts to their owners is a reduce-scatter") {
  Parts run(4);
  run.tensors = {{"a", {{450, 0}, {600, 1}}}, {"b", {{300, 1}, {600, 2}}}, {"c", {{150, 2}, {600, 3}}}};
  const auto part = [](int root, int elements, const std::string& parameters) {
    std::string line = call("reduce", ranks(4), elements, "null", parameters, "avg");
    line.insert(line.size() - 1, fmt::format(R"(,"root":{})", root));
    return line;
  };
  run.lines = at_the_end({part(0, 450, "0"), part(1, 450, "0,1"), part(2, 450, "1,2"), part(3, 450, "2")});
  RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(recorded.notes ==
        std::vector<std::string>{"4 calls such as reduce of 450 float32 at train.py:9 in main: it takes a part of the "
                                 "gradients to its owner; together they are recorded as a reduce_scatter."});
  CHECK(words(recorded) == begin + scatter + " over=\"dp\" reduce=\"avg\" " + geometry("\"flat\""));
  CHECK(checked(recorded).verdict == Verdict::match);
  // One part is not reduced: the calls do not carry all of it together.
  run.lines = at_the_end({part(0, 450, "0"), part(1, 450, "0,1"), part(2, 450, "1,2")});
  recorded = run.recorded();
  CHECK_FALSE(recorded.unmet.empty());
  CHECK(words(recorded).find("reduce") == std::string::npos);
}

TEST_CASE("a gradient that is all-reduced in parts is all-reduced") {
  Parts run(2);
  run.tensors = {{"a", {{600, -1}}}};
  run.lines = at_the_end(
      {call("all_reduce", ranks(2), 400, "null", "0", "avg"), call("all_reduce", ranks(2), 200, "null", "0", "avg")});
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == begin + "dp_all_reduce/train.py:9 over=\"dp\" reduce=\"avg\"");
}

TEST_CASE("what is added to a reduced slice in its place is told from what is added up beside it") {
  Parts run(2);
  run.tensors = {{"a", {{300, 0}, {600, 1}}}};
  run.lines = [](int m) { return std::vector{call("reduce_scatter", ranks(2), 600, std::to_string(m), "0", "avg")}; };
  CHECK(words(run.recorded()).find("unreduced") != std::string::npos);
  // The average of the first micro-batch is halved again, and the others' share of it, which is stale, is added.
  run.coefficient = [](int owner, int rank, int m) { return m == 1 ? 0.5 : owner == rank ? 0.25 : 0.75; };
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == "zero; micro_batches(backward by=\"1 / (tokens * micro_batches)\"; " + scatter +
                               " over=\"dp\" reduce=\"avg\" " + geometry("\"rows\"") + ")");
  CHECK(recorded.notes ==
        std::vector<std::string>{"all parameters: reduced in the buffer to which later micro-batches are added, which "
                                 "no collective shows; the coefficients do."});
  CHECK(checked(recorded).verdict == Verdict::mismatch);
}

TEST_CASE("a reduce-scatter after the last micro-batch alone needs no other buffer") {
  Parts run(2);
  run.tensors = {{"a", {{300, 0}, {600, 1}}}};
  run.lines = at_the_end({call("reduce_scatter", ranks(2), 600, "null", "0", "avg")});
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == begin + scatter + " over=\"dp\" reduce=\"avg\" " + geometry("\"rows\""));
}

TEST_CASE("slices that end within a row are not cut by rows") {
  Parts run(2);
  run.settings.adapter = "megatron";
  run.tensors = {{"a", {{300, 0}, {600, 1}}, 0, {0, 1}, "3,200"}};
  run.lines = at_the_end({call("reduce_scatter", ranks(2), 600, "null", "0", "avg")});
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == begin + scatter + " over=\"dp\" reduce=\"avg\" " + geometry("\"parameter\""));
}

TEST_CASE("what is reduced whole after a reduce-scatter has its stale elements as well") {
  Parts run(2);
  run.tensors = {{"a", {{300, 0}, {600, 1}}}};
  run.lines = at_the_end({call("reduce_scatter", ranks(2), 600, "null", "0", "avg"),
                          call("all_reduce", ranks(2), 600, "null", "0", "sum", "train.py:12 in main")});
  run.coefficient = [](int owner, int rank, int) { return owner == rank ? 0.5 : 1.5; };
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).ends_with(geometry("\"rows\"") + "; dp_all_reduce/train.py:12 over=\"dp\""));
}

TEST_CASE("parts of what nobody used are owned as well, and experts are no parts") {
  Parts run(2);
  run.tensors = {{"a", {{600, 0}}}, {"b", {{600, 1}}, 0, {}}};
  run.lines = at_the_end({call("all_reduce", ranks(2), 600, "null", "0", "avg")});
  RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).ends_with("dp_own over=\"dp\" " + geometry("\"flat\"")));
  CHECK(checked(recorded).verdict == Verdict::match);
  run.tensors = {{"a", {{600, 0}}, 0, {0}}, {"b", {{600, 1}}, 0, {1}}};
  run.lines = at_the_end({});
  run.coefficient = [](int, int, int) { return 1.0; };
  recorded = run.recorded();
  CHECK_FALSE(recorded.unmet.empty());
  CHECK(words(recorded).find("own") == std::string::npos);
}

TEST_CASE("sums of each micro-batch that are added up elsewhere are told from those that are summed again") {
  Parts run(2);
  run.tensors = {{"a", {{600, -1}}}};
  run.lines = [](int m) { return std::vector{call("all_reduce", ranks(2), 600, std::to_string(m), "0")}; };
  run.coefficient = [](int, int, int) { return 1.0; };
  const RecordedRun recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded).find("buffer=\"unreduced\"; accumulate from=\"unreduced\" to=\"grad\"") != std::string::npos);
  CHECK(recorded.notes ==
        std::vector<std::string>{"all parameters: reduced in another buffer than what comes out is added up in, which "
                                 "no collective shows; the coefficients do."});
}

TEST_CASE("a factor that is one over a number of tokens is written so") {
  Parts run(4);
  run.settings.loss = "\"token_sum\"";
  run.settings.mesh = {{"dp", 2}, {"cp", 2}};
  run.settings.data_axes = {"dp", "cp"};
  run.tensors = {{"a", {{600, -1}}}};
  run.tokens = {{1, 2}, {2, 3}, {3, 2}, {1, 2}};
  run.lines = at_the_end({call("all_reduce", ranks(4), 600, "null", "0")});
  run.coefficient = [](int, int, int) { return 1.0 / 16; };
  RecordedRun recorded = run.recorded();
  const std::string reduced = "zero; micro_batches(backward); dp_cp_all_reduce/train.py:9 over=[\"dp\", \"cp\"]; ";
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == reduced + "token_count_scale by=\"1 / sum(tokens, dp, cp, micro_batch)\"");
  CHECK(checked(recorded).verdict == Verdict::match);
  // Counted over dp alone: another number on each rank along cp.
  run.tokens = {{1, 2}, {2, 3}, {3, 2}, {4, 2}};  // 8 and 11
  run.coefficient = [](int owner, int, int) { return owner % 2 == 0 ? 1.0 / 8 : 1.0 / 11; };
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == reduced + "token_count_scale by=\"1 / sum(tokens, dp, micro_batch)\"");
  const CheckResult check = checked(recorded);
  CHECK(check.verdict == Verdict::mismatch);
  REQUIRE_FALSE(check.blame.empty());
  CHECK(check.blame.front().step == "token_count_scale");
  // A number that no tokens have.
  run.coefficient = [](int, int, int) { return 1.0 / 7; };
  recorded = run.recorded();
  CHECK(recorded.unmet.empty());
  CHECK(words(recorded) == reduced + "scale by=\"1/7\"");
}

}  // namespace lockstep
