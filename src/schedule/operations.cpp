// SPDX-License-Identifier: Apache-2.0
#include "lockstep/operation.h"
#include "src/base/budget.h"
#include "src/schedule/decompositions.h"

namespace lockstep {

namespace {

using Writes = Operation::Writes;
using Value = Operation::Value;
using Effect = Operation::Ownership;
using Keeps = Operation::Keeps;
using Adds = Operation::Adds;
using Cuts = Operation::Cuts;

std::vector<Operation> make_operations() {
  std::vector<Operation> rows(op_count);
  const auto put = [&](Operation row) { rows[static_cast<std::size_t>(row.op)] = row; };
  put({.op = Op::backward,
       .name = "backward",
       .help = "Adds the local gradient of the current micro-batch, times `by`, to the buffer; only inside `each`.",
       .keys = "by uses",
       .adds = Adds::gradient,
       .deed = "adds the gradients{of_uses}"});
  put({.op = Op::scale,
       .name = "scale",
       .help = "Multiplies the whole local buffer, stale elements too, by `by`; 0 clears it.",
       .keys = "by",
       .keeps = Keeps::multiple,
       .deed = "multiplies the gradients{of} by {by}",
       .instead = {{Op::all_reduce, {"by"}}}});
  put({.op = Op::all_reduce,
       .name = "all_reduce",
       .help = "Every member gets the sum (or average) of all members' buffers, stale elements too.",
       .keys = "over reduce",
       .collective = true,
       .writes = Writes::everywhere,
       .value = Value::reduction,
       .deed = "{sums} the gradients{of} over {group}",
       .instead = {{Op::reduce_scatter}, {Op::all_gather, {"reduce"}}},
       .ring_sends = 2,
       .decompose = schedule::ring_all_reduce});
  put({.op = Op::reduce_scatter,
       .name = "reduce_scatter",
       .help =
           "Member i gets the sum (or average) on slice i and owns, of what it owned, only that; its other elements "
           "keep what they held and are stale.",
       .keys = "over reduce geometry",
       .collective = true,
       .cuts = Cuts::its_own,
       .writes = Writes::own_slice,
       .value = Value::reduction,
       .ownership = Effect::intersects_own_slice,
       .equal_slices = true,
       .joins_family = true,
       .deed = "{sums} the gradients{of} over {group}",
       .instead = {{Op::all_reduce, {"geometry", "on"}}},
       .ring_sends = 1,
       .decompose = schedule::ring_reduce_scatter});
  put({.op = Op::reduce_scatter_v,
       .name = "reduce_scatter_v",
       .help =
           "A reduce_scatter whose slices may have any lengths, as a `geometry` of `counts` gives them; it cannot meet "
           "a reduce_scatter.",
       .keys = "over reduce geometry",
       .collective = true,
       .cuts = Cuts::its_own,
       .writes = Writes::own_slice,
       .value = Value::reduction,
       .ownership = Effect::intersects_own_slice,
       .joins_family = true,
       .deed = "{sums} the gradients{of} over {group}",
       .instead = {{Op::all_reduce, {"geometry", "on"}}},
       .ring_sends = 1,
       .decompose = schedule::reduce_each_slice});
  put({.op = Op::all_gather,
       .name = "all_gather",
       .help =
           "Every member gets each slice from its member, as the last reduce-scatter of the parameter cut it, and owns "
           "all; without one, as its own `geometry` cuts.",
       .keys = "over geometry",
       .collective = true,
       .cuts = Cuts::those_of_the_scatter,
       .writes = Writes::every_slice,
       .value = Value::slice_of_its_member,
       .ownership = Effect::all_slices,
       .deed = "hands on the gradients{of} over {group}",
       .instead = {{Op::all_reduce, {"geometry"}}},
       .ring_sends = 1,
       .decompose = schedule::ring_all_gather});
  put({.op = Op::broadcast,
       .name = "broadcast",
       .help = "Every member gets the root's buffer; ownership stays.",
       .keys = "over root",
       .collective = true,
       .writes = Writes::everywhere,
       .value = Value::of_the_root,
       .deed = "hands on the gradients{of} over {group}",
       .instead = {{Op::all_reduce, {"root"}}},
       .ring_sends = 1,
       .decompose = schedule::chain_broadcast});
  put({.op = Op::reduce,
       .name = "reduce",
       .help = "The root gets the sum (or average) and keeps what it owned; the others own nothing of it and keep what "
               "they "
               "held.",
       .keys = "over reduce root",
       .collective = true,
       .writes = Writes::root_everywhere,
       .value = Value::reduction,
       .ownership = Effect::root_keeps_others_lose,
       .joins_family = true,
       .deed = "{sums} the gradients{of} over {group}",
       .instead = {{Op::all_reduce, {"root"}}},
       .ring_sends = 1,
       .decompose = schedule::chain_reduce});
  put({.op = Op::own,
       .name = "own",
       .help = "Moves no data: member i owns slice i of this `geometry`, joined with the members that call it; "
               "`\"over\": []` owns all.",
       .keys = "over geometry",
       .cuts = Cuts::its_own,
       .ownership = Effect::sets_own_slice,
       .joins_family = true,
       .deed = "says which rank owns which slice",
       .instead = {{Op::reduce_scatter}}});
  put({.op = Op::copy,
       .name = "copy",
       .help = "Copies buffer `from` to buffer `to`, stale elements too; a buffer never written is 0.",
       .keys = "from to",
       .keeps = Keeps::nothing,
       .adds = Adds::buffer,
       .deed = "copies {from} to {to}",
       .instead = {{Op::accumulate}}});
  put({.op = Op::accumulate,
       .name = "accumulate",
       .help = "Adds buffer `from` to buffer `to`, stale elements too; onto itself it doubles.",
       .keys = "from to",
       .adds = Adds::buffer,
       .deed = "adds {from} to {to}",
       .instead = {{Op::copy}}});
  put({.op = Op::zero,
       .name = "zero",
       .help = "Clears the buffer.",
       .keys = "",
       .keeps = Keeps::nothing,
       .deed = "clears the buffer"});
  put({.op = Op::leftover,
       .name = "leftover",
       .help = "Adds something that is no gradient: one unknown per element and `what`, equal on all ranks, or with "
               "`\"per\": \"rank\"` different on each; times `by`.",
       .keys = "what per by",
       .adds = Adds::leftover,
       .deed = "puts values that are no gradients into the buffer"});
  put({.op = Op::norm,
       .name = "norm",
       .help = "Part of the gradient norm: every member counts the elements that it owns where `count` holds; the "
               "counts are "
               "summed over `over`.",
       .keys = "over count combine",
       .collective = true,
       .counts = true,
       .deed = "counts the gradients{of} in the norm"});
  put({.op = Op::clip,
       .name = "clip",
       .help =
           "Multiplies the whole local buffer, stale elements too, by the clipping factor of the norm that the rank "
           "has counted so far in this optimizer step.",
       .keys = "",
       .keeps = Keeps::clipped,
       .deed = "clips the gradients{of} by the norm"});
  put({.op = Op::all_to_all,
       .name = "all_to_all",
       .help = "Moves no gradient and touches no buffer; it only has to be met.",
       .keys = "over",
       .collective = true,
       .deed = "runs all_to_all"});
  put({.op = Op::wait,
       .name = "wait",
       .help = "Ends the asynchronous step named by `for`.",
       .keys = "for",
       .deed = "waits for {for}"});
  put({.op = Op::each,
       .name = "each",
       .help = "Runs its `steps` once per micro-batch.",
       .keys = "steps",
       .deed = "runs each"});
  return rows;
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> rows = made_once(make_operations);
  return rows;
}

const Operation& operation(Op op) { return operations()[static_cast<std::size_t>(op)]; }

std::optional<Op> op_named(std::string_view name) {
  for (const Operation& row : operations()) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

}  // namespace lockstep
