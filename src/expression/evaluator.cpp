// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/diagnostic.h"
#include "src/base/counted.h"
#include "src/expression/node.h"
#include "src/expression/values.h"
#include "src/mesh/instances.h"

namespace lockstep {

Rational TokenCounts::sum(const std::string& use, Range micro_batch, Range dp, Range cp, Range sp) const {
  Rational total;
  for (int m = 0; m < micro_batch.count; ++m) {
    for (int d = 0; d < dp.count; ++d) {
      for (int c = 0; c < cp.count; ++c) {
        for (int s = 0; s < sp.count; ++s) {
          total += tokens(use, micro_batch.first + m * micro_batch.stride, dp.first + d * dp.stride,
                          cp.first + c * cp.stride, sp.first + s * sp.stride);
        }
      }
    }
  }
  return total;
}

namespace expression {
namespace {

[[noreturn]] void fail(const Node& node, const std::string& message) {
  throw ExpressionError(message, node.offset, node.length);
}

/// Number of micro-batches of the current optimizer step; without one, of all if they agree.
int micro_batches(const Node& node, const Environment& environment) {
  const TokenCounts& counts = *environment.counts;
  if (environment.step) return counts.micro_batches(*environment.step);
  for (int step = 1; step < counts.steps(); ++step) {
    if (counts.micro_batches(step) != counts.micro_batches(0)) {
      fail(node, "\"micro_batches\" has no one value here: optimizer step 0 has " +
                     counted(counts.micro_batches(0), "micro-batch") + ", step " + std::to_string(step) + " has " +
                     std::to_string(counts.micro_batches(step)));
    }
  }
  return counts.micro_batches(0);
}

std::optional<ExpressionValue> builtin(const Node& node, const Environment& environment) {
  const std::string& name = node.text;
  if (const Mesh* mesh = environment.mesh) {
    if (const std::optional<Axis> axis = axis_named(name)) return Rational(mesh->size(*axis));
    if (name == "world") return Rational(mesh->world());
    if (name == "virtual_stages") return Rational(mesh->layout().virtual_stages);
    if (name == "sequence_parallel") return mesh->layout().sequence_parallel;
    if (name == "pipeline_groups_agree") return mesh->pipeline_groups_agree();
    if (name == "instance_groups_agree") return mesh::instance_groups_agree(mesh->layout());
  }
  if (const TokenCounts* counts = environment.counts) {
    if (name == "steps") return Rational(counts->steps());
    if (name == "micro_batches") return Rational(micro_batches(node, environment));
  }
  return std::nullopt;
}

ExpressionValue named(const Node& node, const Environment& environment) {
  if (environment.names) {
    const auto found = environment.names->find(node.text);
    if (found != environment.names->end()) return found->second;
  }
  if (std::optional<ExpressionValue> value = builtin(node, environment)) return *std::move(value);
  std::vector<std::string> known = {"micro_batch", "step", "tokens", "true", "false"};
  if (environment.mesh) {
    known.insert(known.end(),
                 {"world", "virtual_stages", "sequence_parallel", "pipeline_groups_agree", "instance_groups_agree"});
    known.insert(known.end(), axis_names().begin(), axis_names().end());
  }
  if (environment.counts) known.insert(known.end(), {"steps", "micro_batches"});
  if (environment.names) {
    for (const auto& [name, value] : *environment.names) known.push_back(name);
  }
  const std::string hint = did_you_mean(node.text, known);
  fail(node, "there is no name \"" + node.text + "\" here" + hint);
}

const Mesh& mesh_of(const Node& node, const Environment& environment) {
  if (!environment.mesh) fail(node, "the layout is not known here");
  return *environment.mesh;
}

int coordinate(const Node& node, const Environment& environment, Axis axis) {
  const Mesh& mesh = mesh_of(node, environment);
  if (environment.rank) return mesh.coordinate(*environment.rank, axis);
  if (mesh.size(axis) == 1) return 0;
  fail(node, "this depends on the rank, and there is no rank here");
}

int micro_batch(const Node& node, const Environment& environment) {
  if (environment.micro_batch) return *environment.micro_batch;
  fail(node,
       node.kind == Node::Kind::micro_batch
           ? std::string("\"micro_batch\" has a meaning only inside \"each\"")
           : "outside \"each\" there is no current micro-batch; write \"sum(tokens, …, micro_batch)\" for all of them");
}

/// The optimizer step, which may stay unsaid where there is only one.
int optimizer_step(const Node& node, const Environment& environment) {
  if (environment.step) return *environment.step;
  if (environment.counts && environment.counts->steps() == 1) return 0;
  fail(node, "this depends on the optimizer step, and there is none here");
}

Rational tokens(const Node& node, const Environment& environment) {
  if (!environment.counts) fail(node, "the token counts are not known here");
  const TokenCounts& counts = *environment.counts;
  using Range = TokenCounts::Range;
  Range over_micro_batches;
  if (node.all_micro_batches) {
    const int step = optimizer_step(node, environment);
    over_micro_batches = {counts.first_micro_batch(step), counts.micro_batches(step), 1};
  } else {
    const int current = micro_batch(node, environment);
    over_micro_batches.first = counts.first_micro_batch(optimizer_step(node, environment)) + current;
  }
  const Mesh& mesh = mesh_of(node, environment);
  const auto summed = [&node](Axis axis) {
    return std::find(node.axes.begin(), node.axes.end(), axis) != node.axes.end();
  };
  const auto range = [&](Axis axis) {
    return summed(axis) ? Range{0, mesh.size(axis), 1} : Range{coordinate(node, environment, axis), 1, 1};
  };
  // Replica r, shard s of dp is the coordinate r * dp_shard + s.
  Range dp;
  const bool shard = summed(Axis::dp_shard), replicate = summed(Axis::dp_replicate);
  if (summed(Axis::dp) || (shard && replicate)) {
    dp = {0, mesh.size(Axis::dp), 1};
  } else if (shard) {
    dp = {coordinate(node, environment, Axis::dp_replicate) * mesh.size(Axis::dp_shard), mesh.size(Axis::dp_shard), 1};
  } else if (replicate) {
    dp = {coordinate(node, environment, Axis::dp_shard), mesh.size(Axis::dp_replicate), mesh.size(Axis::dp_shard)};
  } else {
    dp = range(Axis::dp);
  }
  return counts.sum(node.text, over_micro_batches, dp, range(Axis::cp), range(Axis::sp));
}

/// `first` or `last` beside `other`.
Rational end(const Node& node, const Node& other, const Environment& environment) {
  if (node.text == "first") return 0;
  switch (other.kind) {
    case Node::Kind::rank_axis:
      return mesh_of(node, environment).size(other.axis) - 1;
    case Node::Kind::micro_batch:
    case Node::Kind::step:
      if (!environment.counts) fail(node, "the batch is not known here");
      if (other.kind == Node::Kind::step) return environment.counts->steps() - 1;
      return micro_batches(node, environment) - 1;
    default:
      fail(node, "\"" + node.text + "\" can only be compared with rank.AXIS, micro_batch or step");
  }
}

class Evaluation {
 public:
  explicit Evaluation(const Environment& environment) : environment_(environment) {}

  ExpressionValue operator()(const Node& node) {
    return once_(node, [&] { return anew(node); });
  }

 private:
  ExpressionValue anew(const Node& node) {
    const auto child = [&](std::size_t i) -> const Node& { return *node.children[i]; };
    switch (node.kind) {
      case Node::Kind::value:
        return node.value;
      case Node::Kind::name:
        return named(node, environment_);
      case Node::Kind::rank_axis:
        return Rational(coordinate(node, environment_, node.axis));
      case Node::Kind::micro_batch:
        return Rational(micro_batch(node, environment_));
      case Node::Kind::step:
        return Rational(optimizer_step(node, environment_));
      case Node::Kind::tokens:
      case Node::Kind::sum:
        return tokens(node, environment_);
      case Node::Kind::negate:
        return -number_of((*this)(child(0)), child(0));
      case Node::Kind::logical_not:
        return !truth_of((*this)(child(0)), child(0));
      case Node::Kind::binary:
        return binary(node);
      case Node::Kind::call: {
        std::vector<Rational> arguments;
        arguments.reserve(node.children.size());
        for (const NodePointer& argument : node.children) arguments.push_back(number_of((*this)(*argument), *argument));
        return call(node, arguments);
      }
      case Node::Kind::end:
        break;
    }
    throw InternalError("an end that is compared with nothing");
  }

  ExpressionValue binary(const Node& node) {
    const Node& left = *node.children[0];
    const Node& right = *node.children[1];
    if (is_logical(node)) {
      const bool decided = node.text == "or";
      if (truth_of((*this)(left), left) == decided) return decided;
      return truth_of((*this)(right), right);
    }
    const auto side = [&](const Node& one, const Node& other) -> ExpressionValue {
      return one.kind == Node::Kind::end ? end(one, other, environment_) : (*this)(one);
    };
    const ExpressionValue a = side(left, right);
    return combine(node, a, side(right, left));
  }

  const Environment& environment_;
  OncePerNode<ExpressionValue> once_;
};

}  // namespace

ExpressionValue evaluate(const Node& node, const Environment& environment) { return Evaluation(environment)(node); }

}  // namespace expression
}  // namespace lockstep
