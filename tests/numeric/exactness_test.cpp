// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/exactness.h"

#include "tests/catch.h"
#include "tests/numeric/expected.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;
using numeric::Choice;
using numeric::Need;

namespace {

Need need_of(int ranks, const std::string& by, std::vector<Step> more) {
  Step backward = backwards();
  backward.steps[0].by = Expression::parse(by);
  more.insert(more.begin(), backward);
  Schedule built = schedule_of(dp(ranks), {parameter("w", {10})}, std::move(more));
  built.batch.loss_of_use["main"].kind = Loss::Kind::sum;
  const Timeline timeline = walk(built);
  const numeric::Components components = numeric::find_components(built, timeline);
  return numeric::find_need(numeric::Planner(built, timeline, components).plan(components.list.at(0)));
}

Step scaled_by(const std::string& by) {
  Step result = step(Op::scale, "scale " + by);
  result.by = Expression::parse(by);
  return result;
}

Step averaged(const std::string& name) {
  Step result = collective(Op::all_reduce, name, Axis::dp);
  result.reduction = Reduction::average;
  return result;
}

}  // namespace

TEST_CASE("local gradients are multiples of the odd denominators along each path") {
  CHECK(need_of(2, "1", {}).multiple == Rational(1));
  CHECK(need_of(8, "1", {averaged("a")}).multiple == Rational(1));
  CHECK(need_of(6, "1", {averaged("a")}).multiple == Rational(3));
  CHECK(need_of(6, "1", {averaged("a"), averaged("b")}).multiple == Rational(9));
  CHECK(need_of(6, "1/5", {averaged("a")}).multiple == Rational(15));
  // What a multiplication has cancelled need not be divisible any more.
  CHECK(need_of(2, "3", {scaled_by("1/3")}).multiple == Rational(1));
  CHECK(need_of(2, "1", {scaled_by("3"), scaled_by("1/3")}).multiple == Rational(1));
  CHECK(need_of(2, "1", {scaled_by("1/3"), scaled_by("3")}).multiple == Rational(3));
}

TEST_CASE("magnitudes add up and powers of two cost nothing by themselves") {
  CHECK(need_of(3, "1", {collective(Op::all_reduce, "a", Axis::dp)}).spread == Rational(3));
  CHECK(need_of(4, "1", {averaged("a")}).spread == Rational(4));
  CHECK(need_of(2, "1024", {}).spread == Rational(2));  // the reference alone adds two up
  CHECK(need_of(1, "1024", {}).spread == Rational(1));
  CHECK(need_of(1, "1", {scaled_by("5/8")}).spread == Rational(5));
  CHECK(need_of(1, "1", {scaled_by("0")}).spread == Rational(1));
  CHECK(need_of(1, "1", {scaled_by("1/1048576")}).lowest == -20);
}

TEST_CASE("the narrowest arithmetic that holds everything is chosen, and its range is used") {
  Need need;
  need.spread = Rational(8);
  Choice choice = numeric::choose_arithmetic(Dtype::float32, need);
  CHECK(choice.arithmetic == Arithmetic::float32);
  CHECK(choice.bits == 21);
  need.spread = Rational(4096);
  CHECK(numeric::choose_arithmetic(Dtype::float32, need).bits == 12);
  need.spread = Rational(4097);
  CHECK(numeric::choose_arithmetic(Dtype::float32, need).arithmetic == Arithmetic::float64);
  need.multiple = Rational(std::int64_t{1} << 28);
  CHECK(numeric::choose_arithmetic(Dtype::float32, need).arithmetic == Arithmetic::float64);
  need.multiple = Rational(std::int64_t{1} << 29);
  CHECK(numeric::choose_arithmetic(Dtype::float32, need).arithmetic == Arithmetic::prime61);
  need.multiple = Rational(1);
  need.spread = Rational(16);
  CHECK(numeric::choose_arithmetic(Dtype::bfloat16, need).bits == 4);
  need.spread = Rational(17);
  CHECK(numeric::choose_arithmetic(Dtype::bfloat16, need).arithmetic == Arithmetic::float32);
}

TEST_CASE("float16 is chosen up to its 11 bits, and within its range") {
  Need need;
  need.spread = Rational(2);
  CHECK(numeric::choose_arithmetic(Dtype::float16, need).arithmetic == Arithmetic::float16);
  CHECK(numeric::choose_arithmetic(Dtype::float16, need).bits == 10);
  need.spread = Rational(128);
  CHECK(numeric::choose_arithmetic(Dtype::float16, need).bits == 4);
  need.spread = Rational(129);
  CHECK(numeric::choose_arithmetic(Dtype::float16, need).arithmetic == Arithmetic::float32);
  // Values up to 2^highest · 2^bits stay below 2^16, so that the generator narrows before float16 is given up.
  need.spread = Rational(2);
  need.highest = 8;
  CHECK(numeric::choose_arithmetic(Dtype::float16, need).bits == 7);
  need.multiple = Rational(7);
  CHECK(numeric::choose_arithmetic(Dtype::float16, need).bits == 4);
  need.highest = 9;
  CHECK(numeric::choose_arithmetic(Dtype::float16, need).arithmetic == Arithmetic::float32);
  need.multiple = Rational(1);
  need.highest = 1;
  need.lowest = -24;
  CHECK(numeric::choose_arithmetic(Dtype::float16, need).arithmetic == Arithmetic::float16);
  need.lowest = -25;
  CHECK(numeric::choose_arithmetic(Dtype::float16, need).arithmetic == Arithmetic::float32);
  // A type of more bits and a shorter range is no substitute.
  need.spread = Rational(17);
  CHECK(numeric::choose_arithmetic(Dtype::bfloat16, need).arithmetic == Arithmetic::float32);
}

TEST_CASE("values outside of a type's exponents need another type") {
  Need need;
  need.spread = Rational(2);
  need.lowest = -130;
  CHECK(numeric::choose_arithmetic(Dtype::float32, need).arithmetic == Arithmetic::float64);
  need.lowest = -1100;
  CHECK(numeric::choose_arithmetic(Dtype::float32, need).arithmetic == Arithmetic::prime61);
  const Need tiny = need_of(1, "1", {scaled_by("1e-40")});
  CHECK(numeric::choose_arithmetic(Dtype::float32, tiny).arithmetic == Arithmetic::prime61);
}
