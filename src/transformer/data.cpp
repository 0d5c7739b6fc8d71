// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "src/base/at.h"
#include "src/transformer/generator.h"

namespace lockstep::transformer {

namespace {

/// A rank with these coordinates, for expressions that are evaluated where the tokens are.
int rank_at(const Mesh& mesh, int dp, int cp, int sp) {
  for (int rank = 0; rank < mesh.world(); ++rank) {
    if (mesh.coordinate(rank, Axis::dp) == dp && mesh.coordinate(rank, Axis::cp) == cp &&
        mesh.coordinate(rank, Axis::sp) == sp)
      return rank;
  }
  throw InternalError("a mesh without a rank at these coordinates");
}

}  // namespace

double to_double(const Rational& number) {
  const auto part = [](const Rational& whole) {
    const std::optional<std::int64_t> small = whole.to_int64();
    return small ? static_cast<double>(*small) : std::stod(whole.to_string());
  };
  return part(number.numerator()) / part(number.denominator());
}

Data::Data(const Config& config, const Schedule& schedule, std::uint64_t seed, const Place& place)
    : config_(config), schedule_(schedule), seed_(seed) {
  const Mesh& mesh = schedule.mesh;
  const int cp = mesh.size(Axis::cp), sp = mesh.size(Axis::sp);
  std::int64_t most = 1;
  for (int m = 0; m < schedule.batch.total_micro_batches(); ++m) {
    for (int d = 0; d < mesh.size(Axis::dp); ++d) {
      for (int c = 0; c < cp; ++c) {
        for (int s = 0; s < sp; ++s) {
          for (const std::string& use : config.uses()) {
            const std::int64_t count = counted(use, m, d, c, s);
            if (count == 0 && cp * sp > 1) {
              throw InputError(
                  {{place, fmt::format("the piece of micro-batch {}, dp {}, cp {}, sp {} has 0 tokens, and the "
                                       "transformer engine attends to it all the same, so its rank contributes; "
                                       "give each piece at least 1 token, or use --engine symbolic,host",
                                       m, d, c, s)}});
            }
            most = std::max(most, count);
          }
        }
      }
    }
  }
  // Sequence parallelism cuts a piece over tp, and two parts of it come from the two ends of the sequence.
  const std::int64_t unit = std::lcm(2, mesh.size(Axis::tp));
  const std::int64_t length = (std::max<std::int64_t>(most, 2) + unit - 1) / unit * unit;
  constexpr std::int64_t limit = 256;
  if (length * cp * sp > limit ||
      (config.learned_positions && length * cp * sp + config.mtp_layers > config.positions)) {
    throw InputError(
        {{place,
          fmt::format("the pieces have up to {} tokens, which makes sequences of {} for the transformer engine; "
                      "it takes up to {}. Give smaller token counts: only their proportions matter",
                      most, length * cp * sp,
                      config.learned_positions ? std::min<std::int64_t>(limit, config.positions - config.mtp_layers)
                                               : limit)}});
  }
  piece_length_ = static_cast<int>(length);
  length_ = static_cast<int>(length * cp * sp);
  check_work(place);
}

// So that a run takes seconds.
void Data::check_work(const Place& place) const {
  constexpr double most = 1e8;
  double elements = 0;
  for (const TensorShape& shape : tensor_shapes(config_))
    elements += static_cast<double>(shape.rows) * static_cast<double>(shape.columns);
  const double tokens =
      static_cast<double>(schedule_.batch.total_micro_batches()) * schedule_.mesh.size(Axis::dp) * length_;
  if (elements * tokens <= most) return;
  throw InputError({{place, fmt::format("the model has {:.2g} parameters and the batch {:.2g} tokens, and the "
                                        "transformer engine takes up to {:.0e} for the product; give it smaller sizes "
                                        "(hidden 16 to 64, a vocabulary of 64), which show the same fault",
                                        elements, tokens, most)}});
}

std::vector<int> Data::positions(int cp, int sp) const {
  const int of_cp = schedule_.mesh.size(Axis::cp);
  const int local = length_ / of_cp;  // tokens of a cp rank, which sp cuts further
  std::vector<int> of_rank;
  for (int i = 0; i < local; ++i) {
    const int half = local / 2;
    const int part = i < half ? cp : 2 * of_cp - 1 - cp;
    of_rank.push_back(of_cp == 1 ? i : part * half + i % half);
  }
  return {of_rank.begin() + std::ptrdiff_t{sp} * piece_length_,
          of_rank.begin() + (std::ptrdiff_t{sp} + 1) * piece_length_};
}

std::vector<int> Data::tokens(int micro_batch, int dp) const {
  const auto index = static_cast<std::uint64_t>(std::int64_t{micro_batch} * schedule_.mesh.size(Axis::dp) + dp);
  return random_tokens(config_, seed_, index, length_ + 1 + config_.mtp_layers);
}

std::int64_t Data::counted(const std::string& use, int micro_batch, int dp, int cp, int sp) const {
  return schedule_.batch.tokens(use, micro_batch, dp, cp, sp);
}

double Data::loss_weight(const std::string& use, int optimizer_step, int micro_batch, int dp, int cp, int sp) const {
  const Batch& batch = schedule_.batch;
  const Mesh& mesh = schedule_.mesh;
  const Loss& loss = batch.loss(use);
  const int first = batch.first_micro_batch(optimizer_step), count = batch.micro_batches(optimizer_step);
  const auto all = [&](Axis axis) { return TokenCounts::Range{0, mesh.size(axis)}; };
  const Rational pieces_of_a_sequence = Rational(count) * Rational(mesh.size(Axis::dp));
  Rational divisor(1);
  switch (loss.kind) {
    case Loss::Kind::sum:
      break;
    case Loss::Kind::token_mean:
      divisor = batch.sum(use, {first, count}, all(Axis::dp), all(Axis::cp), all(Axis::sp));
      break;
    case Loss::Kind::micro_batch_mean:
      divisor = pieces_of_a_sequence * batch.sum(use, {micro_batch, 1}, {dp, 1}, all(Axis::cp), all(Axis::sp));
      break;
    case Loss::Kind::local_mean:
      divisor = pieces_of_a_sequence * Rational(mesh.size(Axis::cp)) * Rational(mesh.size(Axis::sp)) *
                Rational(counted(use, micro_batch, dp, cp, sp));
      break;
    case Loss::Kind::weight: {
      Environment environment;
      environment.mesh = &mesh;
      environment.counts = &batch;
      environment.rank = rank_at(mesh, dp, cp, sp);
      environment.step = optimizer_step;
      environment.micro_batch = micro_batch - first;
      return to_double(batch.weight(use) * loss.weight_of(environment));
    }
  }
  return to_double(batch.weight(use) / divisor);
}

std::vector<double> Data::weights(const std::string& use, int optimizer_step, int micro_batch, int dp) const {
  std::vector<double> result(static_cast<std::size_t>(length_));
  for (int cp = 0; cp < schedule_.mesh.size(Axis::cp); ++cp) {
    for (int sp = 0; sp < schedule_.mesh.size(Axis::sp); ++sp) {
      const std::int64_t count = counted(use, micro_batch, dp, cp, sp);
      if (count == 0) continue;
      const double weight = loss_weight(use, optimizer_step, micro_batch, dp, cp, sp);
      const std::vector<int> at = positions(cp, sp);
      for (int i = 0; i < piece_length_; ++i) {
        if (enters_loss(i, count)) result[lockstep::at(at[lockstep::at(i)])] = weight;
      }
    }
  }
  return result;
}

std::vector<Sequence> Data::sequences(int optimizer_step) const {
  const int first = schedule_.batch.first_micro_batch(optimizer_step);
  std::vector<Sequence> result;
  for (int m = first; m < first + schedule_.batch.micro_batches(optimizer_step); ++m) {
    for (int dp = 0; dp < schedule_.mesh.size(Axis::dp); ++dp) result.push_back(sequence(optimizer_step, m, dp));
  }
  return result;
}

Sequence Data::sequence(int optimizer_step, int micro_batch, int dp) const {
  Sequence sequence;
  sequence.tokens = tokens(micro_batch, dp);
  sequence.weights = weights("main", optimizer_step, micro_batch, dp);
  if (config_.mtp_layers > 0) sequence.mtp_weights = weights("mtp", optimizer_step, micro_batch, dp);
  if (config_.experts > 0 && config_.auxiliary_loss > 0)
    sequence.auxiliary_weights = weights("aux", optimizer_step, micro_batch, dp);
  sequence.routing_groups = routing_groups();
  return sequence;
}

// The tokens of a rank: a piece, or with sequence parallelism its part of one.
std::vector<int> Data::routing_groups() const {
  const Mesh& mesh = schedule_.mesh;
  const int parts = mesh.layout().sequence_parallel ? mesh.size(Axis::tp) : 1;
  std::vector<int> groups(static_cast<std::size_t>(length_));
  int group = 0;
  for (int cp = 0; cp < mesh.size(Axis::cp); ++cp) {
    for (int sp = 0; sp < mesh.size(Axis::sp); ++sp) {
      const std::vector<int> at = positions(cp, sp);
      for (int i = 0; i < piece_length_; ++i)
        groups[lockstep::at(at[lockstep::at(i)])] = group + i / (piece_length_ / parts);
      group += parts;
    }
  }
  return groups;
}

}  // namespace lockstep::transformer
