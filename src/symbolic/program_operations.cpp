// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/program_operations.h"

#include <array>
#include <cstddef>

namespace lockstep::symbolic {

namespace {

using Sender = ProgramOperation::Sender;
using Parts = ProgramOperation::Parts;
using Brings = ProgramOperation::Brings;

/// In the order of ProgramOp.
constexpr std::array rows = {
    ProgramOperation{.op = ProgramOp::all_reduce,
                     .name = "all_reduce",
                     .even = true,
                     .reduces = true,
                     .for_all = true,
                     .waits_for_all = true},
    ProgramOperation{.op = ProgramOp::reduce_scatter,
                     .name = "reduce_scatter",
                     .even = true,
                     .reduces = true,
                     .waits_for_all = true,
                     .parts = Parts::of_each,
                     .brings = Brings::own_part},
    ProgramOperation{.op = ProgramOp::all_gather,
                     .name = "all_gather",
                     .for_all = true,
                     .waits_for_all = true,
                     .brings = Brings::all_inputs},
    ProgramOperation{.op = ProgramOp::broadcast,
                     .name = "broadcast",
                     .rooted = true,
                     .even = true,
                     .for_all = true,
                     .sender = Sender::root},
    ProgramOperation{.op = ProgramOp::reduce, .name = "reduce", .rooted = true, .even = true, .reduces = true},
    ProgramOperation{.op = ProgramOp::gather, .name = "gather", .rooted = true, .brings = Brings::all_inputs},
    ProgramOperation{.op = ProgramOp::scatter,
                     .name = "scatter",
                     .rooted = true,
                     .own_splits = true,
                     .sender = Sender::root,
                     .parts = Parts::of_the_root,
                     .brings = Brings::part_of_the_root},
    ProgramOperation{.op = ProgramOp::all_to_all,
                     .name = "all_to_all",
                     .waits_for_all = true,
                     .own_splits = true,
                     .parts = Parts::of_each,
                     .brings = Brings::part_of_each},
    ProgramOperation{.op = ProgramOp::send, .name = "send", .in_pairs = true, .sender = Sender::first},
    ProgramOperation{.op = ProgramOp::recv, .name = "recv", .in_pairs = true},
    ProgramOperation{.op = ProgramOp::barrier, .name = "barrier", .waits_for_all = true}};

}  // namespace

const ProgramOperation& program_operation(ProgramOp op) { return rows[static_cast<std::size_t>(op)]; }

const ProgramOperation* program_operation_named(std::string_view name) {
  for (const ProgramOperation& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::vector<std::string> program_operation_names() {
  std::vector<std::string> names;
  for (const ProgramOperation& row : rows) names.emplace_back(row.name);
  return names;
}

}  // namespace lockstep::symbolic
