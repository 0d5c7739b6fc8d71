// SPDX-License-Identifier: Apache-2.0
#include "src/live/expected.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <utility>

#include "src/base/at.h"
#include "src/base/counted.h"

namespace lockstep::live {

double to_double(const Rational& value) {
  // Long fractions are sums of token counts at most: both parts are far below the largest float64.
  return std::strtod(value.numerator().to_string().c_str(), nullptr) /
         std::strtod(value.denominator().to_string().c_str(), nullptr);
}

Expected::Expected(const CapturedRun& run, std::optional<CapturedLoss> loss, int step) : run_(run), loss_(loss) {
  tokens_.resize(static_cast<std::size_t>(run.data_ranks));
  for (const RankRecord& rank : run.ranks) {
    const auto found = rank.steps.find(step);
    if (found == rank.steps.end()) continue;
    auto& known = tokens_[at(run.data_coordinate(rank.header.rank))];
    const auto& own = found->second.tokens;
    if (known.size() < own.size()) known.resize(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (!own[i]) continue;
      if (known[i] && *known[i] != *own[i] && unknown_.empty())
        unknown_ = fmt::format(
            "in optimizer step {}, rank {} counts {} tokens in micro-batch {}, and another rank of the "
            "same data counts {}",
            step, rank.header.rank, *own[i], i, *known[i]);
      if (!known[i]) known[i] = own[i];
    }
  }
  std::int64_t total = 0;
  bool too_many = false;
  of_rank_.resize(tokens_.size());
  for (std::size_t coordinate = 0; coordinate < tokens_.size(); ++coordinate) {
    const std::vector<std::optional<std::int64_t>>& counts = tokens_[coordinate];
    if (of_micro_batch_.size() < counts.size()) of_micro_batch_.resize(counts.size());
    bool all = !counts.empty();
    for (std::size_t i = 0; i < counts.size() && !too_many; ++i) {
      all = all && counts[i];
      const std::int64_t count = counts[i].value_or(0);
      too_many = __builtin_add_overflow(total, count, &total);
      if (too_many) break;
      of_rank_[coordinate] += count;  // each is a part of the total
      of_micro_batch_[i] += count;
    }
    if (!all && unknown_.empty())
      unknown_ =
          fmt::format("in optimizer step {}, the tokens of data-parallel rank {} are not known", step, coordinate);
  }
  if (unknown_.empty() && too_many)
    unknown_ = fmt::format("in optimizer step {}, there are more tokens than can be counted", step);
  if (unknown_.empty() && total == 0) unknown_ = fmt::format("in optimizer step {}, there is no token", step);
  if (unknown_.empty()) total_ = total;
  if (loss_ != CapturedLoss::token_mean && loss_ != CapturedLoss::token_sum) unknown_.clear();
  if (loss_ == CapturedLoss::local_mean) compare_micro_batches(step);
}

void Expected::compare_micro_batches(int step) {
  std::map<int, std::pair<int, int>> most;  // by data coordinate: micro-batches, and a rank that has them
  for (const RankRecord& rank : run_.ranks) {
    const auto found = rank.steps.find(step);
    if (found == rank.steps.end() || !found->second.complete) continue;
    auto& own = most[run_.data_coordinate(rank.header.rank)];
    if (own.first < found->second.micro_batches) own = {found->second.micro_batches, rank.header.rank};
  }
  const auto by_count = [](const auto& one, const auto& other) { return one.second.first < other.second.first; };
  const auto [few, many] = std::minmax_element(most.begin(), most.end(), by_count);
  if (few == most.end() || few->second.first == many->second.first) return;
  unknown_ = fmt::format(
      "in optimizer step {}, rank {} yields gradients of {}, and rank {} of {}: of a mean that each rank divides by "
      "its own micro-batches nobody knows what share it is of all",
      step, few->second.second, counted(few->second.first, "micro-batch"), many->second.second, many->second.first);
}

std::optional<std::int64_t> Expected::tokens(int rank, int micro_batch) const {
  const auto& known = tokens_[at(run_.data_coordinate(rank))];
  const auto index = static_cast<std::size_t>(micro_batch);
  return index < known.size() ? known[index] : std::nullopt;
}

std::optional<Rational> Expected::of(int rank, int micro_batch) const {
  if (!loss_) return std::nullopt;
  switch (*loss_) {
    case CapturedLoss::local_mean:
      if (!unknown_.empty()) return std::nullopt;
      return Rational(1, run_.data_ranks);
    case CapturedLoss::sum:
      return Rational(1);
    case CapturedLoss::token_sum:
      return total_ ? std::optional(Rational(1, *total_)) : std::nullopt;
    case CapturedLoss::token_mean: {
      const std::optional<std::int64_t> own = tokens(rank, micro_batch);
      return total_ && own ? std::optional(Rational(*own, *total_)) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<Rational> Expected::likely(int rank, int micro_batch, int kind) const {
  const std::optional<std::int64_t> own = tokens(rank, micro_batch);
  if (!total_ || !own || *own == 0) return std::nullopt;
  // Of sums over tokens and of means over a micro-batch: divided by the tokens of all, of a rank, of a micro-batch,
  // of one micro-batch on one rank; then by ranks, by micro-batches, by both, or multiplied with the ranks.
  const auto micro_batches = static_cast<std::int64_t>(of_micro_batch_.size());
  const std::int64_t divisors[] = {*total_, of_rank_[at(run_.data_coordinate(rank))], of_micro_batch_[at(micro_batch)],
                                   *own};
  const Rational d(run_.data_ranks);
  const Rational factors[] = {Rational(1), Rational(1, run_.data_ranks), Rational(1, micro_batches),
                              Rational(1) / (d * Rational(micro_batches)), d};
  constexpr int of_numerator = std::size(divisors) * std::size(factors);
  static_assert(likely_kinds == 2 * of_numerator);
  const Rational whole(kind < of_numerator ? 1 : *own, divisors[kind % of_numerator / std::ssize(factors)]);
  return whole * factors[kind % std::ssize(factors)];
}

}  // namespace lockstep::live
