// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/schedule.h"
#include "src/transformer/reference.h"

namespace lockstep::transformer {

/// The nearest float64, up to two roundings.
double to_double(const Rational& number);

/// What a scenario's batch becomes: one sequence for each micro-batch and dp coordinate, cut over cp and sp into pieces
/// of equal length. As many tokens of a piece as the scenario counts enter the loss, evenly spread and the last among
/// them; the others are masked, and still take part through attention.
///
/// Over cp the sequence is cut into twice as many parts as there are ranks, and a rank has one from each end, so that
/// causal attention is the same work everywhere.
class Data {
 public:
  /// Throws InputError at `place` for a batch that no sequence can stand for, or that is too long.
  Data(const Config& config, const Schedule& schedule, std::uint64_t seed, const Place& place);

  int piece_length() const { return piece_length_; }
  int sequence_length() const { return length_; }
  /// The positions in the sequence of the tokens of a piece.
  std::vector<int> positions(int cp, int sp) const;
  /// `micro_batch` is counted through the optimizer steps, here and below. As long as a sequence and its targets.
  std::vector<int> tokens(int micro_batch, int dp) const;
  /// All sequences of an optimizer step as one device has them.
  std::vector<Sequence> sequences(int optimizer_step) const;
  /// The factor with which one device's loss counts a token of a piece.
  double loss_weight(const std::string& use, int optimizer_step, int micro_batch, int dp, int cp, int sp) const;
  /// How many of a piece's tokens enter the loss of a use.
  std::int64_t counted(const std::string& use, int micro_batch, int dp, int cp, int sp) const;

  /// Whether token `i` of a piece is one of the `count` that do.
  bool enters_loss(int i, std::int64_t count) const {
    return (i + 1) * count / piece_length_ > i * count / piece_length_;
  }

  /// The sequence as one device has it, with the weights of the loss that the scenario asks for.
  Sequence sequence(int optimizer_step, int micro_batch, int dp) const;

 private:
  void check_work(const Place& place) const;
  std::vector<int> routing_groups() const;
  std::vector<double> weights(const std::string& use, int optimizer_step, int micro_batch, int dp) const;

  const Config& config_;
  const Schedule& schedule_;
  std::uint64_t seed_;
  int piece_length_ = 0, length_ = 0;
};

}  // namespace lockstep::transformer
