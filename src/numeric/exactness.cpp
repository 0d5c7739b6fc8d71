// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/exactness.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <unordered_map>

#include "lockstep/collective.h"
#include "lockstep/local_step.h"
#include "src/base/at.h"
#include "src/numeric/generator.h"

namespace lockstep::numeric {

namespace {

Rational absolute(const Rational& value) { return value.is_negative() ? -value : value; }

// How often a positive whole number can be halved.
int halvings(Rational whole) {
  static const Rational chunk(std::int64_t{1} << 32);
  int count = 0;
  for (;;) {
    if (const auto small = whole.to_int64()) return count + std::countr_zero(static_cast<std::uint64_t>(*small));
    const Rational shorter = whole / chunk;
    if (!shorter.is_integer()) break;
    whole = shorter;
    count += 32;
  }
  for (Rational half = whole / Rational(2); half.is_integer(); half = whole / Rational(2)) {
    whole = half;
    ++count;
  }
  return count;
}

Rational power_of_two(int exponent) {
  Rational result(1);
  const Rational step = exponent < 0 ? Rational(1, std::int64_t{1} << 30) : Rational(std::int64_t{1} << 30);
  int rest = std::abs(exponent);
  for (; rest >= 30; rest -= 30) result *= step;
  const Rational last(std::int64_t{1} << rest);
  return exponent < 0 ? result / last : result * last;
}

int twos(const Rational& value) { return halvings(absolute(value.numerator())) - halvings(value.denominator()); }

Rational odd_denominator(const Rational& value) {
  const Rational denominator = value.denominator();
  return denominator / power_of_two(halvings(denominator));
}

// Greatest rational of which both are whole multiples; 0 is a multiple of everything.
Rational common_measure(const Rational& a, const Rational& b) {
  if (a.is_zero() || a == b) return b;
  if (b.is_zero()) return a;
  const Rational x = a.numerator(), y = b.numerator();
  return x * y / Rational::lcm(x, y) / Rational::lcm(a.denominator(), b.denominator());
}

// Every value in a buffer is a whole multiple of `measure` and at most `magnitude`, both times a
// local gradient of 1.
struct Bound {
  Rational measure;
  Rational magnitude;

  void add(const Bound& other) {
    measure = common_measure(measure, other.measure);
    magnitude += other.magnitude;
  }
  void add(const Rational& coefficient) { add(Bound{absolute(coefficient), absolute(coefficient)}); }
  // Some elements are this, others that.
  void either(const Bound& other) {
    measure = common_measure(measure, other.measure);
    magnitude = std::max(magnitude, other.magnitude);
  }
  Bound times(const Rational& factor) const {
    const Rational size = absolute(factor);
    return size.is_zero() ? Bound{} : Bound{measure * size, magnitude * size};
  }
};

class Interpreter {
 public:
  explicit Interpreter(const Plan& plan) : plan_(plan), bounds_(plan.nodes.size()) {}

  Need run() {
    for (const PlannedEvent& planned : plan_.events) {
      if (need_.beyond()) return need_;
      if (planned.event) apply(planned);
    }
    for (const PieceUse& piece : plan_.pieces) {
      for (const auto& expected : piece.expected) {
        Bound bound;
        for (const GeneratedTerm& term : expected.terms) {
          if (bound.measure.denominator().bits() > Need::most_bits) break;
          bound.add(term.factor.exact);
        }
        note(bound);
        if (need_.beyond()) return need_;
      }
    }
    return need_;
  }

 private:
  void note(const Bound& bound) {
    if (bound.measure.is_zero()) return;
    const int last_bit = twos(bound.measure);
    const Rational odd = odd_denominator(bound.measure);
    if (!odd.is_one()) need_.multiple = Rational::lcm(need_.multiple, odd);
    need_.spread = std::max(need_.spread, bound.magnitude / power_of_two(last_bit));
    need_.lowest = std::min(need_.lowest, last_bit);
    need_.highest = std::max(need_.highest, bound.magnitude.bits());
  }
  // A factor acts as a multiplication and then a division, each of them exact.
  Bound scaled(const Bound& bound, const Rational& factor) {
    need_.highest = std::max({need_.highest, absolute(factor.numerator()).bits(), factor.denominator().bits()});
    const Bound multiplied = bound.times(factor.numerator());
    note(multiplied);
    const Bound result = multiplied.times(Rational(1) / factor.denominator());
    note(result);
    return result;
  }
  Bound& of(int node) { return bounds_[at(node)]; }

  void apply(const PlannedEvent& planned) {
    const bool on_part = !planned.views.empty() && !operation(planned.event->op).collective;
    const Bound before = on_part ? of(planned.nodes.front()) : Bound();
    change(planned);
    if (on_part) of(planned.nodes.front()).either(before);
  }

  void change(const PlannedEvent& planned) {
    const Operation& row = operation(planned.event->op);
    if (row.collective) {
      Members members{*this, planned};
      apply_collective(row, members);
    } else {
      LocalChange local{*this, planned, of(planned.nodes.front())};
      apply_local(row, local);
    }
  }

  /// A local step, for apply_local().
  struct LocalChange {
    Interpreter& interpreter;
    const PlannedEvent& planned;
    Bound& target;

    void clear() { target = {}; }
    void multiply() { target = interpreter.scaled(target, planned.by.exact); }
    void clip() {}
    void take_over() { target = interpreter.of(planned.from); }
    void add_buffer() {
      target.add(Bound(interpreter.of(planned.from)));
      interpreter.note(target);
    }
    void add_gradient() { add_terms(); }
    void add_leftover() { add_terms(); }
    void add_terms() {
      for (const GeneratedTerm& term : planned.terms) {
        interpreter.need_.highest = std::max(interpreter.need_.highest, absolute(term.factor.exact).bits());
        target.add(term.factor.exact);
      }
      interpreter.note(target);
    }
  };

  /// The members of a collective, for apply_collective(). What is written on part of a buffer leaves the rest as it is.
  struct Members {
    Interpreter& interpreter;
    const PlannedEvent& planned;

    Bound reduce() {
      Bound sum;
      for (const int node : planned.nodes) sum.add(interpreter.of(node));
      interpreter.note(sum);
      return planned.event->average ? interpreter.scaled(sum, planned.by.exact) : sum;
    }
    Bound root() { return interpreter.of(planned.nodes[at(planned.event->root)]); }
    Bound slices() {
      Bound any;
      for (const int node : planned.nodes) any.either(interpreter.of(node));
      return any;
    }
    void write(int node, const Bound& bound, bool whole) {
      Bound& target = interpreter.of(node);
      if (whole && planned.views.empty()) {
        target = bound;
      } else {
        target.either(bound);
      }
    }
    void write_everywhere(const Bound& bound) {
      for (const int node : planned.nodes) write(node, bound, true);
    }
    void write_own_slices(const Bound& bound) {
      for (const int node : planned.nodes) write(node, bound, false);
    }
    void write_every_slice(const Bound& bound) { write_own_slices(bound); }
    void write_root(const Bound& bound) { write(planned.nodes[at(planned.event->root)], bound, true); }
  };

  const Plan& plan_;
  std::vector<Bound> bounds_;
  Need need_;
};

// Exact where the value has few enough bits, which find_need() saw to.
double to_double(const Rational& value) {
  const auto whole = [](const Rational& number) {
    const auto small = number.to_int64();
    return small ? static_cast<double>(*small) : std::strtod(number.to_string().c_str(), nullptr);
  };
  return whole(value.numerator()) / whole(value.denominator());
}

// Thousands of terms share a few factors, and an inverse modulo a prime costs more than all else that is done with a
// term: the numbers of each different factor are worked out once.
class FactorNumbers {
 public:
  /// Fills `factor` from its exact value: the residue, and what work(factor) adds. False where there is no residue.
  template <class Work>
  bool fill(Factor& factor, const Work& work) {
    const auto [found, is_new] = known_.try_emplace(factor.exact);
    Numbers& numbers = found->second;
    if (is_new) {
      numbers.factor = factor;
      const auto residue = factor.exact.modulo_prime61();
      numbers.has_residue = residue && (*residue != 0 || factor.exact.is_zero());
      if (numbers.has_residue) numbers.factor.residue = *residue;
      work(numbers.factor);
    }
    factor = numbers.factor;
    return numbers.has_residue;
  }

 private:
  struct Numbers {
    Factor factor;
    bool has_residue = false;
  };
  std::unordered_map<Rational, Numbers> known_;
};

// Generators narrower than this leave too much to chance.
int least_generator_bits(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::bfloat16 || arithmetic == Arithmetic::float16 ? 4 : 12;
}

// Values stay below two to the power of `highest`, and their last bits above two to the power of `lowest`. float16 is
// used down to its subnormal numbers; the other types have room to spare.
struct Exponents {
  int lowest, highest;
};
Exponents exponents(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::float16:
      return {-25, 16};
    case Arithmetic::float64:
      return {-1000, 1000};
    default:
      return {-120, 120};
  }
}

Arithmetic arithmetic_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bfloat16:
      return Arithmetic::bfloat16;
    case Dtype::float16:
      return Arithmetic::float16;
    case Dtype::float32:
      return Arithmetic::float32;
    case Dtype::float64:
      return Arithmetic::float64;
  }
  throw InternalError("a dtype of unknown kind");
}

}  // namespace

void Need::join(const Need& other) {
  multiple = Rational::lcm(multiple, other.multiple);
  spread = std::max(spread, other.spread);
  lowest = std::min(lowest, other.lowest);
  highest = std::max(highest, other.highest);
}

int significand_bits(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::bfloat16:
      return 8;
    case Arithmetic::float16:
      return 11;
    case Arithmetic::float32:
      return 24;
    case Arithmetic::float64:
      return 53;
    case Arithmetic::prime61:
      return 61;
  }
  throw InternalError("an arithmetic of unknown kind");
}

Need find_need(const Plan& plan) { return Interpreter(plan).run(); }

Choice choose_arithmetic(Dtype dtype, const Need& need) {
  const Arithmetic first = arithmetic_of(dtype);
  const int used = (need.spread * need.multiple).bits();
  Choice choice;
  choice.multiple = need.multiple;
  choice.needed_bits = used + least_generator_bits(first);
  for (const Arithmetic arithmetic : {first, Arithmetic::float32, Arithmetic::float64}) {
    if (significand_bits(arithmetic) < significand_bits(first)) continue;
    const Exponents range = exponents(arithmetic);
    const int room = range.highest - 1 - need.highest - need.multiple.bits();  // of the generator's numbers
    // The short range of float16 is used to its end; in the others the widest generator must fit.
    const bool short_range = arithmetic == Arithmetic::float16;
    const int widest = short_range ? std::min(room, max_generator_bits) : max_generator_bits;
    const int bits = std::min(significand_bits(arithmetic) - used, widest);
    const bool in_range = need.lowest > range.lowest && widest <= room;
    if (bits < least_generator_bits(arithmetic) || !in_range) continue;
    choice.arithmetic = arithmetic;
    choice.bits = bits;
    return choice;
  }
  choice.arithmetic = Arithmetic::prime61;
  return choice;
}

bool bind(Plan& plan, const Choice& choice) {
  bool has_residues = true;
  const bool in_floats = choice.arithmetic != Arithmetic::prime61;
  FactorNumbers of_terms, of_steps;
  std::map<int, FactorNumbers> of_weights;  // by the unit that they are counted in
  for (PlannedEvent& planned : plan.events) {
    for (GeneratedTerm& term : planned.terms) {
      has_residues &= of_terms.fill(term.factor, [&](Factor& factor) {
        if (in_floats) factor.multiply = to_double(factor.exact * choice.multiple);
      });
    }
    has_residues &= of_steps.fill(planned.by, [&](Factor& factor) {
      if (!in_floats) return;
      factor.multiply = to_double(factor.exact.numerator());
      factor.divide = to_double(factor.exact.denominator());
    });
  }
  for (PieceUse& piece : plan.pieces) {
    for (auto& expected : piece.expected) {
      Bound bound;
      for (const GeneratedTerm& term : expected.terms) bound.add(term.factor.exact);
      expected.unit = bound.measure.is_zero() ? 0 : twos(bound.measure);
      const Rational unit = power_of_two(expected.unit);
      FactorNumbers& numbers = of_weights[expected.unit];
      for (GeneratedTerm& term : expected.terms) {
        has_residues &= numbers.fill(term.factor, [&](Factor& factor) {
          if (!in_floats) return;
          const auto whole = (factor.exact * choice.multiple / unit).to_int64();
          if (!whole) throw InternalError("a weight of the loss is no whole number of the reference's units");
          factor.whole = *whole;
        });
      }
    }
  }
  return has_residues;
}

}  // namespace lockstep::numeric
