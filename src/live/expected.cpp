// SPDX-License-Identifier: Apache-2.0
#include "src/live/expected.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

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
    auto& known = tokens_[static_cast<std::size_t>(run.data_coordinate(rank.header.rank))];
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
  for (std::size_t coordinate = 0; coordinate < tokens_.size(); ++coordinate) {
    bool all = !tokens_[coordinate].empty();
    for (const std::optional<std::int64_t>& count : tokens_[coordinate]) {
      all = all && count;
      total += count.value_or(0);
    }
    if (!all && unknown_.empty())
      unknown_ =
          fmt::format("in optimizer step {}, the tokens of data-parallel rank {} are not known", step, coordinate);
  }
  if (unknown_.empty() && total == 0) unknown_ = fmt::format("in optimizer step {}, there is no token", step);
  if (unknown_.empty()) {
    total_ = total;
    find_likely();
  }
  if (loss_ != CapturedLoss::token_mean && loss_ != CapturedLoss::token_sum) unknown_.clear();
}

std::optional<std::int64_t> Expected::tokens(int rank, int micro_batch) const {
  const auto& known = tokens_[static_cast<std::size_t>(run_.data_coordinate(rank))];
  const auto index = static_cast<std::size_t>(micro_batch);
  return index < known.size() ? known[index] : std::nullopt;
}

std::optional<Rational> Expected::of(int rank, int micro_batch) const {
  if (!loss_) return std::nullopt;
  switch (*loss_) {
    case CapturedLoss::mean:
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

const std::vector<Rational>& Expected::likely(int rank, int micro_batch) const {
  static const std::vector<Rational> none;
  const auto coordinate = static_cast<std::size_t>(run_.data_coordinate(rank));
  const auto index = static_cast<std::size_t>(micro_batch);
  return coordinate < likely_.size() && index < likely_[coordinate].size() ? likely_[coordinate][index] : none;
}

void Expected::find_likely() {
  std::size_t micro_batches = 0;
  for (const auto& counts : tokens_) micro_batches = std::max(micro_batches, counts.size());
  std::vector<std::int64_t> of_micro_batch(micro_batches);
  for (const auto& counts : tokens_) {
    for (std::size_t i = 0; i < counts.size(); ++i) of_micro_batch[i] += *counts[i];
  }
  const Rational one(1), d(run_.data_ranks), m(static_cast<std::int64_t>(micro_batches));
  likely_.resize(tokens_.size());
  for (std::size_t coordinate = 0; coordinate < tokens_.size(); ++coordinate) {
    std::int64_t of_rank = 0;
    for (const auto& count : tokens_[coordinate]) of_rank += *count;
    for (std::size_t i = 0; i < tokens_[coordinate].size(); ++i) {
      std::vector<Rational>& all = likely_[coordinate].emplace_back();
      const Rational t(*tokens_[coordinate][i]);
      if (t.is_zero()) continue;
      // Of sums over tokens and of means over a micro-batch: divided by the tokens of all, of a rank, of a micro-batch,
      // of one micro-batch on one rank; then by ranks, by micro-batches, by both, or multiplied with the ranks.
      for (const Rational& numerator : {one, t}) {
        for (const Rational& divisor : {Rational(*total_), Rational(of_rank), Rational(of_micro_batch[i]), t}) {
          for (const Rational& factor : {one, one / d, one / m, one / (d * m), d})
            all.push_back(numerator / divisor * factor);
        }
      }
    }
  }
}

}  // namespace lockstep::live
