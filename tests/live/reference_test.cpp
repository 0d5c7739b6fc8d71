// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "lockstep/diagnostic.h"
#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

using namespace lockstep;
using test::Folder;
using test::RunWriter;
using PieceVerdict = VerifiedPiece::Verdict;

namespace {

constexpr std::size_t size = 3000;

/// Two runs of one model and one batch: on ranks with two micro-batches each, and on one device. Parameters "first" and
/// "last" have the same gradients, so that a mistake in one of them has something to stand beside.
struct Pair {
  RunWriter::Settings settings, single;
  /// What a rank's backward makes of its share of the gradient, by parameter, and what the optimizers make of all
  /// contributions.
  std::function<double(int id, int rank, int micro_batch)> backward = [](int, int, int) { return 1.0; };
  std::function<double(int id, int owner, int rank)> synchronized;
  std::vector<std::string> names = {"first", "last"};
  std::vector<std::string> alone;  ///< parameters that the reference has besides
  std::function<double(int id)> magnitude = [](int) { return 1.0; };
  double error = 0;       ///< relative, of every element that backward yields
  int micro_batches = 1;  ///< of the reference
  double scale = 1;       ///< of the reference's loss
  bool ended = true;      ///< the reference
  std::string tokens = "null", single_tokens = "null";
  VerifyOptions options;

  static std::vector<double> share(int rank, int micro_batch) {
    return test::drawn(size, static_cast<std::uint64_t>(10 * rank + micro_batch));
  }

  VerifyResult verified() const {
    const Folder folder, other;
    RunWriter run(folder.path(), settings);
    const int world = run.world();
    for (int id = 0; id < 2; ++id) run.parameter(id, id == 0 ? "first" : "last", size, {0, 1000, size});
    for (int id = 0; id < 2; ++id) {
      std::vector<std::vector<double>> sums(static_cast<std::size_t>(world), std::vector<double>(size));
      for (int rank = 0; rank < world; ++rank) {
        for (int m = 0; m < 2; ++m) {
          std::vector<double> own = share(rank, m);
          const std::vector<double> noise = test::drawn(size, 999);
          for (std::size_t i = 0; i < size; ++i)
            own[i] = test::rounded(own[i] * magnitude(id) * backward(id, rank, m) + error * noise[i], settings.dtype);
          run.contribution(rank, 0, m, id, 0, {own.begin(), own.begin() + 1000});
          run.contribution(rank, 0, m, id, 1, {own.begin() + 1000, own.end()}, 1000);
          for (int owner = 0; owner < world; ++owner) {
            const double factor = synchronized ? synchronized(id, owner, rank) : 1.0 / world;
            for (std::size_t i = 0; i < size; ++i)
              sums[static_cast<std::size_t>(owner)][i] =
                  test::rounded(sums[static_cast<std::size_t>(owner)][i] + factor * own[i], settings.dtype);
          }
        }
      }
      for (int rank = 0; rank < world; ++rank) {
        const std::vector<double>& sum = sums[static_cast<std::size_t>(rank)];
        run.result(rank, 0, id, 0, {sum.begin(), sum.begin() + 1000});
        run.result(rank, 0, id, 1, {sum.begin() + 1000, sum.end()}, 1000);
      }
    }
    for (int rank = 0; rank < world; ++rank) run.step(rank, 0, 2, tokens);
    run.finish();
    RunWriter one(other.path(), single);
    for (std::size_t i = 0; i < alone.size(); ++i) one.parameter(static_cast<int>(names.size() + i), alone[i], 1);
    for (int id = 0; id < 2; ++id) {
      one.parameter(id, names[static_cast<std::size_t>(id)], static_cast<int>(size));
      std::vector<double> result(size);
      for (int part = 0; part < micro_batches; ++part) {
        std::vector<double> sum(size);
        for (int rank = 0; rank < world; ++rank) {
          for (int m = 0; m < 2; ++m) {
            const std::vector<double> own = share(rank, m);
            if ((2 * rank + m) % micro_batches != part) continue;
            for (std::size_t i = 0; i < size; ++i) sum[i] += scale * magnitude(id) * own[i] / world;
          }
        }
        for (double& value : sum) value = test::rounded(value, single.dtype);
        for (std::size_t i = 0; i < size; ++i) result[i] = test::rounded(result[i] + sum[i], single.dtype);
        one.contribution(0, 0, part, id, 0, sum);
      }
      one.result(0, 0, id, 0, result);
    }
    if (ended) one.step(0, 0, micro_batches, single_tokens);
    one.finish();
    VerifyOptions all = options;
    all.reference = other.path();
    return verify_run(folder.path(), all);
  }
};

Pair pair() {
  Pair pair;
  pair.single.mesh = {{"dp", 1}};
  return pair;
}

std::string error_of(const Pair& pair) {
  try {
    pair.verified();
  } catch (const InputError& error) {
    return error.diagnostics().front().message;
  }
  return "";
}

bool has(const std::vector<std::string>& sentences, const std::string& part) {
  for (const std::string& sentence : sentences) {
    if (sentence.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("contributions that add up to the gradient on one device are right, however its batch is cut") {
  for (const int micro_batches : {1, 2, 4}) {
    Pair both = pair();
    both.micro_batches = micro_batches;
    const VerifyResult result = both.verified();
    CHECK(result.verdict() == PieceVerdict::right);
    CHECK(result.findings.empty());
    REQUIRE(result.reference);
    CHECK(result.reference->step == 0);
    CHECK(result.reference->micro_batches == micro_batches);
    REQUIRE(result.reference->parameters.size() == 2);
    for (const ReferencedParameter& one : result.reference->parameters) {
      CHECK(one.contributions == PieceVerdict::right);
      CHECK(one.result == PieceVerdict::right);
      CHECK(one.roundings < 4);
      CHECK(one.dtype == "float32");
    }
  }
}

TEST_CASE("a wrong synchronization of right contributions is told apart from wrong contributions") {
  Pair both = pair();
  both.synchronized = [](int id, int, int rank) { return id == 1 && rank == 1 ? 0 : 0.5; };
  VerifyResult result = both.verified();
  CHECK(result.verdict() == PieceVerdict::wrong);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].what == "the share of dp 1 is missing");
  CHECK(result.reference->count(PieceVerdict::right) == 2);
  CHECK(result.reference->parameters[0].result == PieceVerdict::right);
  CHECK(result.reference->parameters[1].result == PieceVerdict::wrong);
  for (const VerifiedPiece& piece : result.pieces) {
    if (piece.verdict == PieceVerdict::wrong)
      CHECK(piece.why == "the contributions add up to the true gradient: the synchronization is wrong");
  }

  both = pair();
  both.backward = [](int id, int, int) { return id == 1 ? 0.5 : 1; };
  result = both.verified();
  CHECK(result.verdict() == PieceVerdict::wrong);
  CHECK(result.count(PieceVerdict::wrong) == 0);  // the synchronization is right
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].what == "the contributions add up to 1/2 of the true gradient");
  CHECK(result.findings[0].parameters == std::vector<int>{1});
  CHECK(result.findings[0].pieces == 0);
  const ReferencedParameter& wrong = result.reference->parameters[1];
  CHECK(wrong.part == Rational(1, 2));
  CHECK(wrong.formula == "g0 + g1");
  CHECK(wrong.result == PieceVerdict::wrong);
  CHECK(wrong.roundings > 1e5);
  CHECK(result.notes.empty());

  both.synchronized = [](int, int, int rank) { return rank == 1 ? 0 : 0.5; };
  result = both.verified();
  REQUIRE(result.findings.size() == 2);
  CHECK(result.findings[0].what == "the contributions add up to 1/2 of the true gradient");
  CHECK(result.findings[1].what == "the share of dp 1 is missing");
}

TEST_CASE("mistakes that cancel are told") {
  Pair both = pair();
  both.backward = [](int, int, int) { return 2.0; };
  both.synchronized = [](int, int, int) { return 0.25; };
  const VerifyResult result = both.verified();
  CHECK(result.verdict() == PieceVerdict::wrong);
  for (const ReferencedParameter& one : result.reference->parameters) {
    CHECK(one.contributions == PieceVerdict::wrong);
    CHECK(one.result == PieceVerdict::right);
  }
  CHECK(result.pieces.at(0).why ==
        "the optimizers get the true gradient all the same: two mistakes cancel, or the loss is another");
  CHECK(has(result.notes, "all contributions differ from the true gradient by one factor"));
}

TEST_CASE("a rank whose contributions are too large or none of the gradient is named") {
  Pair both = pair();
  both.backward = [](int id, int rank, int) { return id == 0 && rank == 1 ? 2 : 1; };
  CHECK(both.verified().findings.at(0).what == "what rank 1 contributes is 2 × its share of the true gradient");
  both.backward = [](int id, int rank, int micro_batch) { return id == 0 && rank == 1 && micro_batch == 0 ? 2 : 1; };
  CHECK(both.verified().findings.at(0).what == "the contributions add up to the true gradient with other coefficients");
  both.backward = [](int, int, int) { return 1; };
  both.error = 0.7;
  const VerifyResult result = both.verified();
  CHECK(result.findings.at(0).what == "the contributions do not add up to the true gradient");
  CHECK(result.verdict() == PieceVerdict::wrong);
}

TEST_CASE("a difference is held against the rounding of the recorded types") {
  Pair both = pair();
  both.error = 0x1p-22;
  CHECK(both.verified().verdict() == PieceVerdict::right);
  both.error = 0x1p-8;  // of 16 bits, which float32 gradients may be computed in
  const VerifyResult result = both.verified();
  CHECK(result.verdict() == PieceVerdict::undecided);
  CHECK(result.findings.at(0).what ==
        "the contributions are as far from the true gradient as rounding to 16 bits leaves them, and no recorded "
        "gradient has so few");
  both.settings.dtype = both.settings.result_dtype = Dtype::bfloat16;
  CHECK(both.verified().reference->count(PieceVerdict::right) == 2);
  both.backward = [](int, int rank, int) { return rank == 0 ? 1.07 : 1.0; };  // some per cent: a mistake, or rounding
  const VerifyResult far = both.verified();
  CHECK(far.reference->count(PieceVerdict::right) == 0);
  CHECK(far.verdict() != PieceVerdict::right);
  both.backward = [](int, int, int) { return 0.5; };  // a factor is found through that noise as well
  CHECK(both.verified().reference->parameters[0].part == Rational(1, 2));
}

TEST_CASE("a gradient that is nothing but rounding of larger ones is zero in both runs") {
  Pair both = pair();
  both.magnitude = [](int id) { return id == 1 ? 0x1p-28 : 1; };
  both.backward = [](int id, int, int) { return id == 1 ? -3 : 1; };
  const VerifyResult zero = both.verified();
  CHECK(zero.verdict() == PieceVerdict::right);
  CHECK(zero.reference->parameters[1].roundings > 1e6);
  both.options.parameters = Selectors({"last"});  // what is zero does not depend on which are looked at
  CHECK(both.verified().verdict() == PieceVerdict::right);
  both.options.parameters = {};
  both.magnitude = [](int id) { return id == 1 ? 0x1p-18 : 1; };
  CHECK(both.verified().verdict() == PieceVerdict::wrong);
  both.settings.dtype = both.settings.result_dtype = Dtype::bfloat16;  // in which more than zero may be so small
  both.backward = [](int, int, int) { return 1; };
  both.error = 0x1p-18;
  const VerifyResult small = both.verified();
  CHECK(small.verdict() == PieceVerdict::undecided);
  CHECK(small.findings.at(0).what ==
        "the contributions do not add up to the true gradient, which is as small as what rounding leaves of others");
}

TEST_CASE("a gradient that one run has alone is wrong") {
  Pair both = pair();
  both.backward = [](int id, int, int) { return id == 0 ? 1 : 0; };
  CHECK(both.verified().findings.at(0).what == "no rank contributes to it, and on one device there is a gradient");
  both = pair();
  both.scale = 0;
  CHECK(both.verified().findings.at(0).what == "ranks contribute to it, and on one device there is no gradient");
}

TEST_CASE("losses, tokens, steps and names that do not fit are told") {
  Pair both = pair();
  both.settings.loss = "null";
  VerifyResult result = both.verified();
  CHECK(result.verdict() == PieceVerdict::undecided);
  CHECK(result.findings.at(0).what == "what the contributions should add up to is not known without the loss");
  CHECK(result.reference->parameters[0].result == PieceVerdict::right);
  both = pair();
  both.single.loss = "null";  // as autograd adds them
  CHECK(both.verified().verdict() == PieceVerdict::right);

  both = pair();
  both.tokens = "[5,6]";
  both.single_tokens = "[21]";
  result = both.verified();
  CHECK(has(result.gaps, "counts 22 tokens and the reference 21"));
  CHECK(result.reference->parameters.empty());
  CHECK(result.verdict() == PieceVerdict::undecided);

  both = pair();
  both.names = {"first", "lost"};
  result = both.verified();
  CHECK(has(result.gaps, "last is not in the reference; did you mean"));
  CHECK(has(result.gaps, "lost is in the reference alone."));
  CHECK(result.verdict() == PieceVerdict::undecided);
  CHECK(result.reference->parameters.size() == 1);

  both = pair();
  both.alone = {"a", "b", "c", "d", "e", "f", "g", "h"};
  CHECK(has(both.verified().gaps, "a, b, c, d, e, f and 2 more are in the reference alone."));

  both = pair();
  both.ended = false;
  result = both.verified();
  CHECK(has(result.gaps, "no complete optimizer step"));
  CHECK_FALSE(result.reference->step);
}

TEST_CASE("a reference with a multiple of the sums is as good as one with as many") {
  for (const int sums : {128, 256, 384}) {
    Pair both = pair();
    both.single.sums = sums;
    CHECK(both.verified().verdict() == PieceVerdict::right);
    both.scale = 2;
    const VerifyResult result = both.verified();
    CHECK(result.verdict() != PieceVerdict::right);
    CHECK_FALSE(result.findings.empty());
  }
}

TEST_CASE("a reference that cannot be one is refused") {
  Pair both = pair();
  both.single.sums = 64;
  CHECK(error_of(both).find("its \"sums\" is 64, and that of") != std::string::npos);
  CHECK(error_of(both).find("so capture it anew with sums=128") != std::string::npos);
  both = pair();
  both.single.mesh = {{"dp", 2}};
  CHECK(error_of(both).find("the run has 2 ranks; expected a reference on one") != std::string::npos);
  both = pair();
  both.names = {"a", "b"};
  CHECK(error_of(both).find("no parameter has the name of one of") != std::string::npos);
}
