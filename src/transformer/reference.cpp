// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "src/base/at.h"
#include "src/transformer/reference_attention.h"
#include "src/transformer/reference_mixture.h"

namespace lockstep::transformer {

namespace reference {

/// A pre-norm transformer layer.
template <class Number>
class Layer {
 public:
  Layer(Context<Number>& context, const std::string& prefix, bool experts)
      : before_attention_(context, prefix + "input_layernorm"),
        before_mlp_(context, prefix + "pre_mlp_layernorm"),
        attention_(context, prefix) {
    if (experts)
      mixture_ = std::make_unique<Mixture<Number>>(context, prefix + "mlp.");
    else
      mlp_ = std::make_unique<Mlp<Number>>(context, prefix + "mlp.");
  }

  Matrix<Number> forward(const Matrix<Number>& input) {
    const Matrix<Number> middle = input + attention_.forward(before_attention_.forward(input));
    const Matrix<Number> normed = before_mlp_.forward(middle);
    return middle + (mixture_ ? mixture_->forward(normed) : mlp_->forward(normed));
  }
  Matrix<Number> backward(const Matrix<Number>& gradient) {
    const Matrix<Number> inner = mixture_ ? mixture_->backward(gradient) : mlp_->backward(gradient);
    const Matrix<Number> middle = gradient + before_mlp_.backward(inner);
    return middle + before_attention_.backward(attention_.backward(middle));
  }
  Number auxiliary_loss() const { return mixture_ ? mixture_->auxiliary_loss() : Number(0); }

 private:
  Norm<Number> before_attention_, before_mlp_;
  Attention<Number> attention_;
  std::unique_ptr<Mlp<Number>> mlp_;
  std::unique_ptr<Mixture<Number>> mixture_;
};

/// The rows of the word embedding, and of the learned positions, from token `shift` of the sequence on.
template <class Number>
class Embedding {
 public:
  Embedding(Context<Number>& context, const Sequence& sequence, int shift)
      : context_(context), sequence_(sequence), shift_(shift) {}

  Matrix<Number> forward() const {
    Matrix<Number> output(sequence_.length(), context_.config.hidden);
    for (Index i = 0; i < output.rows(); ++i) {
      output.row(i) = context_.parameter(words).row(token(i));
      if (context_.config.learned_positions) output.row(i) += context_.parameter(positions).row(i + shift_);
    }
    return output;
  }
  void backward(const Matrix<Number>& gradient) const {
    for (Index i = 0; i < gradient.rows(); ++i) {
      context_.gradient(words).row(token(i)) += gradient.row(i);
      if (context_.config.learned_positions) context_.gradient(positions).row(i + shift_) += gradient.row(i);
    }
  }

 private:
  static constexpr const char* words = "embedding.word_embeddings.weight";
  static constexpr const char* positions = "embedding.position_embeddings.weight";

  Index token(Index i) const { return sequence_.tokens[at(i + shift_)]; }

  Context<Number>& context_;
  const Sequence& sequence_;
  int shift_;
};

/// The head and the cross-entropy of the tokens `shift` ahead. Returns the loss and leaves the gradient of the input.
template <class Number>
Number cross_entropy(Context<Number>& context, const Matrix<Number>& input, const Sequence& sequence, int shift,
                     const std::vector<double>& weights, Matrix<Number>& input_gradient) {
  using std::exp;
  using std::log;
  Linear<Number> head(context, context.config.tied ? "embedding.word_embeddings.weight" : "output_layer.weight");
  Matrix<Number> logits = head.forward(input);
  Number loss(0);
  for (Index i = 0; i < logits.rows(); ++i) {
    const auto position = static_cast<std::size_t>(i);
    const Index target = sequence.tokens[position + static_cast<std::size_t>(shift)];
    const Number weight(weights[position]);
    const Number largest = *std::max_element(logits.row(i).begin(), logits.row(i).end());
    const Number at_target = logits(i, target) - largest;
    Number sum(0);
    for (Index word = 0; word < logits.cols(); ++word) {
      logits(i, word) = exp(logits(i, word) - largest);
      sum += logits(i, word);
    }
    loss += weight * (log(sum) - at_target);
    for (Index word = 0; word < logits.cols(); ++word)
      logits(i, word) = weight * (logits(i, word) / sum - Number(word == target ? 1 : 0));
  }
  input_gradient = head.backward(logits);
  return loss;
}

/// One depth of multi-token prediction: the hidden state and the embedding of the next token further on, normed and
/// projected together, then a layer and a norm.
template <class Number>
class Depth {
 public:
  Depth(Context<Number>& context, const Sequence& sequence, int depth)
      : embedding_(context, sequence, depth + 1),
        embedding_norm_(context, fmt::format("mtp.layers.{}.enorm", depth)),
        hidden_norm_(context, fmt::format("mtp.layers.{}.hnorm", depth)),
        projection_(context, fmt::format("mtp.layers.{}.eh_proj.weight", depth)),
        layer_(context, layer_prefix(depth, true), context.config.has_experts(context.config.layers - 1)),
        final_norm_(context, fmt::format("mtp.layers.{}.final_layernorm", depth)) {}

  Matrix<Number> forward(const Matrix<Number>& hidden) {
    Matrix<Number> both(hidden.rows(), 2 * hidden.cols());
    both.set_columns(0, embedding_norm_.forward(embedding_.forward()));
    both.set_columns(hidden.cols(), hidden_norm_.forward(hidden));
    return final_norm_.forward(layer_.forward(projection_.forward(both)));
  }
  Matrix<Number> backward(const Matrix<Number>& gradient) {
    const Matrix<Number> both = projection_.backward(layer_.backward(final_norm_.backward(gradient)));
    const Index half = both.cols() / 2;
    embedding_.backward(embedding_norm_.backward(columns_of(both, 0, half)));
    return hidden_norm_.backward(columns_of(both, half, half));
  }
  Number auxiliary_loss() const { return layer_.auxiliary_loss(); }

 private:
  Embedding<Number> embedding_;
  Norm<Number> embedding_norm_, hidden_norm_;
  Linear<Number> projection_;
  Layer<Number> layer_;
  Norm<Number> final_norm_;
};

}  // namespace reference

template <class Number>
Number run_reference(const Config& config, const Tensors<Number>& parameters, const Sequence& sequence,
                     Tensors<Number>& gradients) {
  using namespace reference;
  Context<Number> context{config, parameters, gradients, sequence};
  const Embedding<Number> embedding(context, sequence, 0);
  std::vector<Layer<Number>> layers;
  for (int layer = 0; layer < config.layers; ++layer)
    layers.emplace_back(context, layer_prefix(layer, false), config.has_experts(layer));
  Norm<Number> final_norm(context, "decoder.final_layernorm");
  std::vector<Depth<Number>> depths;
  if (!sequence.mtp_weights.empty()) {
    for (int depth = 0; depth < config.mtp_layers; ++depth) depths.emplace_back(context, sequence, depth);
  }

  Matrix<Number> hidden = embedding.forward();
  for (Layer<Number>& layer : layers) hidden = layer.forward(hidden);
  hidden = final_norm.forward(hidden);
  std::vector<Matrix<Number>> head_gradients(1 + depths.size());
  Number loss = cross_entropy(context, hidden, sequence, 1, sequence.weights, head_gradients[0]);
  for (std::size_t depth = 0; depth < depths.size(); ++depth) {
    hidden = depths[depth].forward(hidden);
    loss += cross_entropy(context, hidden, sequence, 2 + static_cast<int>(depth), sequence.mtp_weights,
                          head_gradients[depth + 1]);
    loss += depths[depth].auxiliary_loss();
  }
  for (const Layer<Number>& layer : layers) loss += layer.auxiliary_loss();

  Matrix<Number> gradient = head_gradients.back();
  for (std::size_t depth = depths.size(); depth-- > 0;)
    gradient = head_gradients[depth] + depths[depth].backward(gradient);
  gradient = final_norm.backward(gradient);
  for (std::size_t layer = layers.size(); layer-- > 0;) gradient = layers[layer].backward(gradient);
  embedding.backward(gradient);
  return loss;
}

template double run_reference(const Config&, const Tensors<double>&, const Sequence&, Tensors<double>&);
template long double run_reference(const Config&, const Tensors<long double>&, const Sequence&, Tensors<long double>&);
template Perturbed run_reference(const Config&, const Tensors<Perturbed>&, const Sequence&, Tensors<Perturbed>&);

}  // namespace lockstep::transformer
