// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/handed_over.h"

#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Pieces = std::vector<diagnosis::HandedOver::Piece>;

Intervals elements_of(const Pieces& pieces) {
  Intervals elements;
  for (const auto& piece : pieces) elements.push_back(piece.elements);
  return elements;
}

}  // namespace

TEST_CASE("each rank hands over what it owns at the end of each optimizer step, as it is then") {
  // In the second step nothing is reduced any more, and the first half is doubled behind the sum.
  Step twice = when(step(Op::scale, "twice"), "rank.dp == 1 and step == 1");
  twice.by = Expression::parse("2");
  const Schedule built = schedule_of(
      dp(2), {parameter("w", {8}), parameter("v", {6})},
      {step(Op::zero, "zero"), backwards(), collective(Op::reduce_scatter, "scatter", Axis::dp), twice}, 1, 2);
  const Timeline timeline = walk(built);
  const diagnosis::Replayed replayed = diagnosis::replay_handed_over(built, timeline);
  REQUIRE(replayed.steps.size() == 2);
  for (const diagnosis::HandedOver& handed : replayed.steps) {
    REQUIRE(handed.pieces.size() == 2);
    CHECK(elements_of(handed.pieces[0].at(0)) == Intervals{{0, 4}});
    CHECK(elements_of(handed.pieces[1].at(0)) == Intervals{{4, 8}});
    CHECK(elements_of(handed.pieces[0].at(1)) == Intervals{{0, 3}});
    CHECK(elements_of(handed.pieces[1].at(1)) == Intervals{{3, 6}});
  }
  const auto coefficient = [&](int optimizer_step, int rank) {
    const int form = replayed.steps[static_cast<std::size_t>(optimizer_step)]
                         .pieces[static_cast<std::size_t>(rank)]
                         .front()
                         .front()
                         .form;
    const std::vector<Term> terms = replayed.engine->terms(form, rank, 0);
    REQUIRE(terms.size() == 2);
    return terms.front().coefficient;
  };
  CHECK(coefficient(0, 0) == Rational(1));
  CHECK(coefficient(0, 1) == Rational(1));
  CHECK(coefficient(1, 0) == Rational(1));
  CHECK(coefficient(1, 1) == Rational(2));
}

TEST_CASE("what the owned elements hold is told stretch by stretch") {
  // Rank 0 doubles what it owns, the first half, and owns all again.
  Step twice = when(step(Op::scale, "twice"), "rank.dp == 0");
  twice.by = Expression::parse("2");
  twice.on_owned = true;
  Step all = collective(Op::all_gather, "gather", Axis::dp);
  const Schedule built =
      schedule_of(dp(2), {parameter("w", {8})}, {backwards(), collective(Op::own, "own", Axis::dp), twice, all});
  const diagnosis::Replayed replayed = diagnosis::replay_handed_over(built, walk(built));
  REQUIRE(replayed.steps.size() == 1);
  for (const auto& rank : replayed.steps.front().pieces) {
    REQUIRE(rank.front().size() == 2);
    CHECK(elements_of(rank.front()) == Intervals{{0, 4}, {4, 8}});
    CHECK(rank.front()[0].form != rank.front()[1].form);
  }
}

TEST_CASE("of elements that hold one sum a rank hands over those that it owns") {
  const Schedule built =
      schedule_of(dp(2), {parameter("w", {8})},
                  {backwards(), collective(Op::all_reduce, "sum", Axis::dp), collective(Op::own, "own", Axis::dp)});
  const diagnosis::Replayed replayed = diagnosis::replay_handed_over(built, walk(built));
  REQUIRE(replayed.steps.size() == 1);
  const Pieces &first = replayed.steps.front().pieces[0].front(), &second = replayed.steps.front().pieces[1].front();
  CHECK(elements_of(first) == Intervals{{0, 4}});
  CHECK(elements_of(second) == Intervals{{4, 8}});
  CHECK(first.front().form == second.front().form);
}
