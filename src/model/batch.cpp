// SPDX-License-Identifier: Apache-2.0
#include "lockstep/batch.h"

#include <array>

#include "src/base/at.h"
#include "src/base/budget.h"

namespace lockstep {
namespace {

/// The entry of `use`, else that of `main`; null where there is neither.
template <typename Value>
const Value* entry(const std::map<std::string, Value>& by_use, const std::string& use) {
  auto found = by_use.find(use);
  if (found == by_use.end()) found = by_use.find("main");
  return found == by_use.end() ? nullptr : &found->second;
}

const Batch::Tokens& tokens_of(const Batch& batch, const std::string& use) {
  static const auto uneven = made_once([] { return Batch::Tokens(); });
  const Batch::Tokens* own = entry(batch.tokens_of_use, use);
  return own ? *own : uneven;
}

/// How many coordinates of a range leave 0, 1 and 2 when they are divided by 3.
using Residues = std::array<std::int64_t, 3>;

Residues residues(const TokenCounts::Range& range) {
  Residues counts{};
  for (int i = 0; i < 3; ++i) {
    const int with_this = (range.count - i + 2) / 3;  // of 0 … count-1, those that leave i
    counts[at((range.first + i * range.stride) % 3)] += with_this;
  }
  return counts;
}

Residues add(const Residues& a, const Residues& b) {
  Residues sums{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) sums[(i + j) % 3] += a[i] * b[j];
  }
  return sums;
}

}  // namespace

std::int64_t Batch::tokens(const std::string& use, int micro_batch, int dp, int cp, int sp) const {
  const Tokens& own = tokens_of(*this, use);
  switch (own.kind) {
    case Tokens::Kind::uneven:
      return std::int64_t{1} << (micro_batch + dp + cp + sp) % 3;
    case Tokens::Kind::even:
      return 1;
    case Tokens::Kind::list:
      break;
  }
  return own.list.at(micro_batch, dp, cp, sp);
}

Rational Batch::sum(const std::string& use, Range micro_batch, Range dp, Range cp, Range sp) const {
  const Tokens& own = tokens_of(*this, use);
  if (own.kind == Tokens::Kind::list) return own.list.sum(micro_batch, dp, cp, sp);
  if (own.kind == Tokens::Kind::even) return Rational(micro_batch.count) * dp.count * cp.count * sp.count;
  const Residues counts = add(add(residues(micro_batch), residues(dp)), add(residues(cp), residues(sp)));
  return Rational(counts[0]) + Rational(2) * counts[1] + Rational(4) * counts[2];
}

int Batch::first_micro_batch(int step) const {
  int first = 0;
  for (int earlier = 0; earlier < step; ++earlier) first += micro_batches(earlier);
  return first;
}

const Loss& Batch::loss(const std::string& use) const {
  static const auto token_mean = made_once([] { return Loss(); });
  const Loss* own = entry(loss_of_use, use);
  return own ? *own : token_mean;
}

Rational Loss::weight_of(const Environment& environment) const {
  try {
    return weight.number(environment);
  } catch (const ExpressionError& error) {
    throw mistake_in(place, error,
                     "in \"weight\" of the loss, on rank " + std::to_string(environment.rank.value()) +
                         ", micro-batch " + std::to_string(environment.micro_batch.value()));
  }
}

Rational Batch::weight(const std::string& use) const {
  const Rational* own = entry(weight_of_use, use);
  return own ? *own : Rational(1);
}

}  // namespace lockstep
