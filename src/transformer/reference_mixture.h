// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "src/base/at.h"
#include "src/transformer/reference_mlp.h"

namespace lockstep::transformer::reference {

/// A mixture of experts: each token visits the top_k experts that the router likes best, weighted by the softmax over
/// those or over all. An expert of limited capacity takes so many tokens of each routing group; the rest, dropped, go
/// without it. The auxiliary loss balances the load (Fedus, Zoph, Shazeer, 2021). That of a token is experts times the
/// sum over experts of the fraction of the sequence's choices, dropped ones among them, times its probability; the mean
/// over the tokens is what one layer adds to the loss of a sequence.
template <class Number>
class Mixture {
 public:
  Mixture(Context<Number>& context, const std::string& prefix)
      : context_(context),
        name_(prefix),
        router_(context, prefix + "router.weight"),
        shared_(context, prefix + "shared_experts.") {
    for (int expert = 0; expert < context.config.experts; ++expert)
      experts_.emplace_back(context, prefix + "experts.", std::to_string(expert));
  }

  Matrix<Number> forward(const Matrix<Number>& input) {
    const Config& config = context_.config;
    input_ = input;
    const Matrix<Number> logits = router_.forward(input);
    route(logits);
    Matrix<Number> output = Matrix<Number>(input.rows(), input.cols());
    results_.clear();
    for (int expert = 0; expert < config.experts; ++expert) {
      const std::vector<Index>& tokens = tokens_of_[at(expert)];
      results_.push_back(experts_[at(expert)].forward(rows_at(input, tokens)));
      const Matrix<Number>& result = results_.back();
      for (std::size_t i = 0; i < tokens.size(); ++i)
        output.row(tokens[i]) += weights_(tokens[i], expert) * result.row(static_cast<Index>(i));
    }
    if (config.shared_expert_ffn > 0) {
      shared_result_ = shared_.forward(input);
      gate_ = Matrix<Number>(input.rows(), 1, Number(1));
      if (config.shared_expert_gate) {
        for (Index token = 0; token < input.rows(); ++token)
          gate_(token) = sigmoid<Number>(dot(input.row(token), gate_weight().row(0)));
      }
      for (Index token = 0; token < input.rows(); ++token)
        output.row(token) += gate_(token) * shared_result_.row(token);
    }
    return output;
  }

  Matrix<Number> backward(const Matrix<Number>& output_gradient) {
    const Config& config = context_.config;
    Matrix<Number> input_gradient = Matrix<Number>(output_gradient.rows(), output_gradient.cols());
    Matrix<Number> weights_gradient = Matrix<Number>(output_gradient.rows(), config.experts);
    for (int expert = 0; expert < config.experts; ++expert) {
      const std::vector<Index>& tokens = tokens_of_[at(expert)];
      Matrix<Number> gradient(static_cast<Index>(tokens.size()), output_gradient.cols());
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto row = static_cast<Index>(i);
        gradient.row(row) = weights_(tokens[i], expert) * output_gradient.row(tokens[i]);
        weights_gradient(tokens[i], expert) =
            dot(output_gradient.row(tokens[i]), std::as_const(results_[at(expert)]).row(row));
      }
      const Matrix<Number> back = experts_[at(expert)].backward(gradient);
      for (std::size_t i = 0; i < tokens.size(); ++i) input_gradient.row(tokens[i]) += back.row(static_cast<Index>(i));
    }
    if (config.shared_expert_ffn > 0) input_gradient += shared_backward(output_gradient);
    Matrix<Number> logits(weights_gradient.rows(), weights_gradient.cols());
    for (Index token = 0; token < logits.rows(); ++token) {
      // What is not chosen, or dropped, has no gradient and still a part in the softmax.
      const Matrix<Number>& softmax = config.pre_softmax ? probabilities_ : weights_;
      const Number along = dot<Number>(softmax.row(token), weights_gradient.row(token));
      const Number balance = dot<Number>(probabilities_.row(token), load_.row(0));
      for (Index expert = 0; expert < logits.cols(); ++expert) {
        logits(token, expert) = softmax(token, expert) * (weights_gradient(token, expert) - along) +
                                auxiliary_weight(token) * probabilities_(token, expert) * (load_(expert) - balance);
      }
    }
    return input_gradient + router_.backward(logits);
  }

  /// The load-balancing loss of the last forward.
  Number auxiliary_loss() const {
    Number sum(0);
    for (Index token = 0; token < probabilities_.rows(); ++token)
      sum += auxiliary_weight(token) * dot(probabilities_.row(token), load_.row(0));
    return sum;
  }

 private:
  Number auxiliary_weight(Index token) const {
    const std::vector<double>& weights = context_.sequence.auxiliary_weights;
    return Number(weights.empty() ? 0 : weights[at(token)]);
  }

  void route(const Matrix<Number>& logits) {
    const Config& config = context_.config;
    weights_ = Matrix<Number>(logits.rows(), config.experts);
    probabilities_ = logits;
    tokens_of_.assign(static_cast<std::size_t>(config.experts), {});
    for (Index token = 0; token < logits.rows(); ++token) {
      std::vector<Index> order;
      for (Index expert = 0; expert < config.experts; ++expert) order.push_back(expert);
      std::stable_sort(order.begin(), order.end(),
                       [&](Index a, Index b) { return logits(token, a) > logits(token, b); });
      const Number largest = logits(token, order.front());
      const std::vector<Index> chosen(order.begin(), order.begin() + config.top_k);
      set_softmax(logits, token, largest, order, probabilities_);
      if (!config.pre_softmax) set_softmax(logits, token, largest, chosen, weights_);
      for (const Index expert : chosen) {
        if (config.pre_softmax) weights_(token, expert) = probabilities_(token, expert);
        tokens_of_[at(expert)].push_back(token);
      }
    }
    // The derivative of a token's auxiliary loss by one probability; the fractions of choices have none.
    load_ = Matrix<Number>(1, config.experts);
    const double choices = static_cast<double>(logits.rows()) * config.top_k;
    for (Index expert = 0; expert < config.experts; ++expert) {
      const auto count = static_cast<double>(tokens_of_[at(expert)].size());
      load_(expert) = Number(config.auxiliary_loss * config.experts * count / choices);
    }
    if (config.capacity_factor > 0) drop();
  }

  /// Of the tokens of each routing group that chose an expert, keeps as many as it takes.
  void drop() {
    const Config& config = context_.config;
    std::vector<int> groups = context_.sequence.routing_groups;
    groups.resize(static_cast<std::size_t>(weights_.rows()), 0);
    std::map<int, int> sizes;
    for (const int group : groups) ++sizes[group];
    for (Index expert = 0; expert < config.experts; ++expert) {
      std::vector<Index> kept;
      std::vector<Index>& tokens = tokens_of_[at(expert)];
      for (const Index token : tokens) {
        const int group = groups[at(token)];
        // It stays where fewer than the capacity come before it.
        const auto ahead = std::count_if(tokens.begin(), tokens.end(), [&](Index other) {
          if (groups[at(other)] != group || other == token) return false;
          if (config.drop_by_position || weights_(other, expert) == weights_(token, expert)) return other < token;
          return weights_(other, expert) > weights_(token, expert);
        });
        const double mean = static_cast<double>(sizes[group] * config.top_k) / config.experts;
        if (static_cast<double>(ahead) < std::ceil(mean * config.capacity_factor)) kept.push_back(token);
      }
      tokens = kept;
    }
  }

  static void set_softmax(const Matrix<Number>& logits, Index token, const Number& largest,
                          const std::vector<Index>& over, Matrix<Number>& result) {
    using std::exp;
    Number sum(0);
    for (const Index expert : over) sum += exp(logits(token, expert) - largest);
    for (const Index expert : over) result(token, expert) = exp(logits(token, expert) - largest) / sum;
  }

  const Matrix<Number>& gate_weight() const { return context_.parameter(name_ + "shared_experts.gate_weight"); }

  Matrix<Number> shared_backward(const Matrix<Number>& output_gradient) {
    Matrix<Number> scaled = output_gradient;
    for (Index token = 0; token < scaled.rows(); ++token) scaled.row(token) *= gate_(token);
    Matrix<Number> input_gradient = shared_.backward(scaled);
    if (!context_.config.shared_expert_gate) return input_gradient;
    for (Index token = 0; token < scaled.rows(); ++token) {
      const Number slope = dot<Number>(output_gradient.row(token), shared_result_.row(token)) * gate_(token) *
                           (Number(1) - gate_(token));
      context_.gradient(name_ + "shared_experts.gate_weight").row(0) += slope * input_.row(token);
      input_gradient.row(token) += slope * gate_weight().row(0);
    }
    return input_gradient;
  }

  Context<Number>& context_;
  std::string name_;
  Linear<Number> router_;
  std::vector<Mlp<Number>> experts_;
  Mlp<Number> shared_;
  Matrix<Number> input_, weights_, probabilities_, shared_result_;
  Matrix<Number> gate_, load_;  ///< a column; a row
  std::vector<std::vector<Index>> tokens_of_;
  std::vector<Matrix<Number>> results_;
};

}  // namespace lockstep::transformer::reference
