// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/base/at.h"
#include "src/transformer/reference_parts.h"

namespace lockstep::transformer::reference {

/// Causal self-attention of one sequence, multi-head or grouped-query, with optional q/k norms and rotary positions.
template <class Number>
class Attention {
 public:
  Attention(Context<Number>& context, const std::string& prefix)
      : context_(context),
        name_(prefix + "self_attention."),
        qkv_(context, name_ + "linear_qkv.weight", name_ + "linear_qkv.bias"),
        projection_(context, name_ + "linear_proj.weight", name_ + "linear_proj.bias") {}

  Matrix<Number> forward(const Matrix<Number>& input) {
    const Config& config = context_.config;
    const Index size = config.head_size;
    const Matrix<Number> qkv = qkv_.forward(input);
    Matrix<Number> output(input.rows(), config.heads * size);
    const int queries = config.heads / config.kv_heads;
    heads_.clear();
    keys_.clear();
    for (int group = 0; group < config.kv_heads; ++group) {
      // The rows of linear_qkv: this group's queries, its key, its value.
      const Index first = group * (queries + 2) * size;
      Key& key = keys_.emplace_back(Key{Norm<Number>(context_, name_ + "k_layernorm"), {}, {}});
      key.key = prepare(key.norm, columns_of(qkv, first + queries * size, size));
      key.value = columns_of(qkv, first + (queries + 1) * size, size);
      for (int query = 0; query < queries; ++query) {
        Head& head = heads_.emplace_back(Head{Norm<Number>(context_, name_ + "q_layernorm"), {}, {}});
        head.query = prepare(head.norm, columns_of(qkv, first + query * size, size));
        head.weights = softmax(head.query * transposed(key.key));
        output.set_columns((group * queries + query) * size, head.weights * key.value);
      }
    }
    return projection_.forward(output);
  }

  Matrix<Number> backward(const Matrix<Number>& output_gradient) {
    const Config& config = context_.config;
    const Index size = config.head_size;
    const int queries = config.heads / config.kv_heads;
    const Matrix<Number> inner = projection_.backward(output_gradient);
    Matrix<Number> qkv(inner.rows(), config.qkv_rows());
    for (int group = 0; group < config.kv_heads; ++group) {
      const Index first = group * (queries + 2) * size;
      Key& key = keys_[at(group)];
      Matrix<Number> key_gradient = Matrix<Number>(inner.rows(), size);
      Matrix<Number> value_gradient = Matrix<Number>(inner.rows(), size);
      for (int query = 0; query < queries; ++query) {
        Head& head = heads_[at(group * queries + query)];
        const Matrix<Number> from = columns_of(inner, (group * queries + query) * size, size);
        value_gradient += transposed(head.weights) * from;
        const Matrix<Number> scores = softmax_backward(head.weights, from * transposed(key.value));
        key_gradient += transposed(scores) * head.query;
        qkv.set_columns(first + query * size, prepare_backward(head.norm, scores * key.key));
      }
      qkv.set_columns(first + queries * size, prepare_backward(key.norm, key_gradient));
      qkv.set_columns(first + (queries + 1) * size, value_gradient);
    }
    return qkv_.backward(qkv);
  }

 private:
  struct Head {
    Norm<Number> norm;
    Matrix<Number> query, weights;
  };
  struct Key {
    Norm<Number> norm;
    Matrix<Number> key, value;
  };

  Number scale() const { return Number(1 / std::sqrt(static_cast<double>(context_.config.head_size))); }

  Matrix<Number> prepare(Norm<Number>& norm, const Matrix<Number>& head) const {
    const Matrix<Number> normed = context_.config.qk_norm ? norm.forward(head) : head;
    return context_.config.learned_positions ? normed : rotate(normed, 1);
  }
  Matrix<Number> prepare_backward(Norm<Number>& norm, const Matrix<Number>& gradient) const {
    const Matrix<Number> turned = context_.config.learned_positions ? gradient : rotate(gradient, -1);
    return context_.config.qk_norm ? norm.backward(turned) : turned;
  }

  /// Rotary positions (Su et al., 2021): element i of the first half of a head turns with element i of the second.
  Matrix<Number> rotate(const Matrix<Number>& head, int direction) const {
    Matrix<Number> turned = head;
    const Index half = head.cols() / 2;
    for (Index token = 0; token < head.rows(); ++token) {
      for (Index i = 0; i < half; ++i) {
        const double angle = static_cast<double>(token) *
                             std::pow(10000.0, -static_cast<double>(2 * i) / static_cast<double>(head.cols()));
        const Number cosine(std::cos(angle)), sine(direction * std::sin(angle));
        turned(token, i) = cosine * head(token, i) - sine * head(token, i + half);
        turned(token, i + half) = sine * head(token, i) + cosine * head(token, i + half);
      }
    }
    return turned;
  }

  /// Row by row, over the tokens up to the row's own.
  Matrix<Number> softmax(Matrix<Number> scores) const {
    using std::exp;
    for (Index row = 0; row < scores.rows(); ++row) {
      Number largest = scores(row, 0) * scale();
      for (Index column = 0; column <= row; ++column) {
        scores(row, column) *= scale();
        if (largest < scores(row, column)) largest = scores(row, column);
      }
      Number sum(0);
      for (Index column = 0; column < scores.cols(); ++column) {
        scores(row, column) = column <= row ? Number(exp(scores(row, column) - largest)) : Number(0);
        sum += scores(row, column);
      }
      for (Index column = 0; column <= row; ++column) scores(row, column) /= sum;
    }
    return scores;
  }
  Matrix<Number> softmax_backward(const Matrix<Number>& weights, Matrix<Number> gradient) const {
    for (Index row = 0; row < weights.rows(); ++row) {
      const Number along = dot<Number>(weights.row(row), gradient.row(row));
      for (Index column = 0; column < weights.cols(); ++column)
        gradient(row, column) = weights(row, column) * (gradient(row, column) - along) * scale();
    }
    return gradient;
  }

  Context<Number>& context_;
  std::string name_;
  Linear<Number> qkv_, projection_;
  std::vector<Head> heads_;
  std::vector<Key> keys_;
};

}  // namespace lockstep::transformer::reference
