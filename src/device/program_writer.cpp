// SPDX-License-Identifier: Apache-2.0
#include "src/device/program_writer.h"

#include <algorithm>

namespace lockstep::device {

kernels::Instruction& ProgramWriter::begin(kernels::Kind kind, std::uint32_t target) {
  instruction_ = {};
  instruction_.kind = kind;
  instruction_.target = target;
  instruction_.event = event_;
  instruction_.bits = bits_;
  instruction_.first_span = program.spans.size();
  return instruction_;
}

void ProgramWriter::sort_spans() {
  std::sort(program.spans.begin() + static_cast<std::ptrdiff_t>(instruction_.first_span), program.spans.end(),
            [](const kernels::Span& a, const kernels::Span& b) { return a.begin < b.begin; });
}

kernels::Instruction ProgramWriter::end_outside() {
  instruction_.spans = program.spans.size() - instruction_.first_span;
  if (instruction_.spans == 0) return instruction_;
  instruction_.begin = program.spans[instruction_.first_span].begin;
  instruction_.end = program.spans.back().end;
  return instruction_;
}

void ProgramWriter::end() {
  const kernels::Instruction ended = end_outside();
  if (ended.spans > 0) program.instructions.push_back(ended);
}

void ProgramWriter::move(std::uint32_t target, std::uint32_t from,
                         const std::vector<std::pair<Interval, std::int64_t>>& places) {
  begin(kernels::Kind::move, target).from = from;
  for (const auto& [place, other] : places) add_span(place, static_cast<std::uint64_t>(other));
  sort_spans();
  end();
}

}  // namespace lockstep::device
