// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/patterns.h"

// What an instruction does to the elements of one pack: the same whether the buffers lie in the memory of the GPU, and
// a kernel runs one instruction over all packs, or in that of a block, and a thread takes its packs through all of
// them.

namespace lockstep::kernels {

template <unsigned width_>
struct Width {
  static constexpr unsigned width = width_;
};

/// The slots of all buffers. GridPlace p of a slot stands at p - shift from its begin.
template <class Stored>
struct Buffers {
  using Value = typename Number<Stored>::Value;

  Stored* base = nullptr;
  std::uint64_t stride = 0;  ///< elements from one slot to the next; a multiple of a pack
  std::uint64_t shift = 0;
  std::uint32_t lost = 0;  ///< not 0: a value was stored that 16 bits cannot hold

  LOCKSTEP_HOST_DEVICE Stored* at(std::uint32_t slot, std::uint64_t place) const {
    return base + slot * stride + (place - shift);
  }
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE Together<Stored, width> read(std::uint32_t slot, std::uint64_t place) const {
    return *reinterpret_cast<const Together<Stored, width>*>(at(slot, place));
  }
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void write(std::uint32_t slot, std::uint64_t place,
                                  const Together<Stored, width>& stored) const {
    *reinterpret_cast<Together<Stored, width>*>(at(slot, place)) = stored;
  }
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void load(std::uint32_t slot, std::uint64_t place, Value (&values)[width]) const {
    load_values(read<width>(slot, place), values);
  }
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void store(std::uint32_t slot, std::uint64_t place, const Value (&values)[width]) {
    Together<Stored, width> stored;
    store_values(stored, values, lost);
    write<width>(slot, place, stored);
  }
};

/// The first of `count` spans that ends behind `place`; a guess is tried first, and set to the result.
LOCKSTEP_HOST_DEVICE inline std::uint64_t find_span(const Span* spans, std::uint64_t count, std::uint64_t place,
                                                    std::uint64_t& guess) {
  if (guess < count && spans[guess].end > place && (guess == 0 || spans[guess - 1].end <= place)) return guess;
  std::uint64_t low = 0, high = count;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (spans[middle].end > place) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  guess = low;
  return low;
}

/// Calls work(width, span, place) for what the spans have of the pack that begins at `first`: once where one span has
/// all of it, else for each element.
template <unsigned width, class Work>
LOCKSTEP_HOST_DEVICE void over_pack(const Span* spans, std::uint64_t count, std::uint64_t first, std::uint64_t& guess,
                                    const Work& work) {
  for (std::uint64_t i = find_span(spans, count, first, guess); i < count && spans[i].begin < first + width; ++i) {
    const Span& span = spans[i];
    if (span.begin <= first && span.end >= first + width) {
      work(Width<width>{}, span, first);
      return;
    }
    const std::uint64_t begin = span.begin > first ? span.begin : first;
    const std::uint64_t end = span.end < first + width ? span.end : first + width;
    LOCKSTEP_ROLLED
    for (std::uint64_t place = begin; place < end; ++place) work(Width<1>{}, span, place);
  }
}

/// The same for several packs, `step` places from one to the next. A span that has all of them is looked up once.
template <unsigned width, class Work>
LOCKSTEP_HOST_DEVICE void over_packs(const Span* spans, std::uint64_t count, std::uint64_t first, unsigned packs,
                                     unsigned step, std::uint64_t& guess, const Work& work) {
  const std::uint64_t found = find_span(spans, count, first, guess);
  if (found < count && spans[found].begin <= first && spans[found].end >= first + (packs - 1) * step + width) {
    const Span span = spans[found];
    LOCKSTEP_ROLLED
    for (unsigned i = 0; i < packs; ++i) work(Width<width>{}, span, first + i * step);
    return;
  }
  LOCKSTEP_ROLLED
  for (unsigned i = 0; i < packs; ++i) over_pack<width>(spans, count, first + i * step, guess, work);
}

template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE void generate(const Instruction& instruction, const Tables& tables, Buffers<Stored>& buffers,
                                   const Span& span, std::uint64_t place) {
  typename Number<Stored>::Value values[width];
  buffers.template load<width>(instruction.target, place, values);
  const std::uint64_t global = span.other + (place - span.begin);
  for (std::uint32_t t = 0; t < instruction.terms; ++t) {
    const Addend term = tables.terms[span.what + t];
    for (unsigned i = 0; i < width; ++i)
      values[i] = Number<Stored>::plus(values[i], Number<Stored>::contribution(term, instruction.bits, global + i));
  }
  buffers.template store<width>(instruction.target, place, values);
}

template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE void refer(const Instruction& instruction, const Tables& tables, Buffers<Stored>& buffers,
                                const Span& span, std::uint64_t place) {
  typename Number<Stored>::Whole sums[width] = {};
  const std::uint64_t global = span.other + (place - span.begin);
  for (std::uint32_t t = 0; t < instruction.terms; ++t) {
    const Addend term = tables.terms[span.what + t];
    for (unsigned i = 0; i < width; ++i) Number<Stored>::add_expected(sums[i], term, instruction.bits, global + i);
  }
  typename Number<Stored>::Value values[width];
  for (unsigned i = 0; i < width; ++i) values[i] = Number<Stored>::expected(sums[i], instruction.unit);
  buffers.template store<width>(instruction.target, place, values);
}

/// Calls work(slot) for each slot that a collective writes to.
template <class Work>
LOCKSTEP_HOST_DEVICE void for_each_receiver(const Instruction& instruction, const std::uint32_t* slots,
                                            const Span& span, const Work& work) {
  if (instruction.receiver != Receiver::everyone)
    return work(slots[instruction.receiver == Receiver::owner ? span.what : instruction.root]);
  for (std::uint32_t member = 0; member < instruction.members; ++member) work(slots[member]);
}

template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE void meet(const Instruction& instruction, const Tables& tables, Buffers<Stored>& buffers,
                               const Span& span, std::uint64_t place) {
  using Value = typename Number<Stored>::Value;
  const std::uint32_t* slots = tables.members + instruction.first_member;
  if (instruction.received != Received::sum) {
    const auto stored = buffers.template read<width>(
        slots[instruction.received == Received::owner ? span.what : instruction.root], place);
    return for_each_receiver(instruction, slots, span,
                             [&](std::uint32_t slot) { write_pack(buffers.at(slot, place), stored); });
  }
  Value values[width];
  buffers.template load<width>(slots[0], place, values);
  for (std::uint32_t member = 1; member < instruction.members; ++member) {
    Value others[width];
    buffers.template load<width>(slots[member], place, others);
    for (unsigned i = 0; i < width; ++i) values[i] = Number<Stored>::plus(values[i], others[i]);
  }
  Number<Stored>::multiply(values, instruction.factor);
  Together<Stored, width> sum;
  store_values(sum, values, buffers.lost);
  for_each_receiver(instruction, slots, span, [&](std::uint32_t slot) { write_pack(buffers.at(slot, place), sum); });
}

/// The instructions that add up nothing.
template <class Stored, Kind kind, unsigned width>
LOCKSTEP_HOST_DEVICE void change(const Instruction& instruction, const Tables& tables, Buffers<Stored>& buffers,
                                 const Span& span, std::uint64_t place) {
  using Value = typename Number<Stored>::Value;
  if constexpr (kind == Kind::generate) {
    generate<Stored, width>(instruction, tables, buffers, span, place);
  } else if constexpr (kind == Kind::reference) {
    refer<Stored, width>(instruction, tables, buffers, span, place);
  } else if constexpr (kind == Kind::collective) {
    meet<Stored, width>(instruction, tables, buffers, span, place);
  } else if constexpr (kind == Kind::move) {
    const std::uint64_t source = span.other + (place - span.begin);
    Together<Stored, width> stored;
    if (source % width == 0) {
      stored = buffers.template read<width>(instruction.from, source);
    } else {
      for (unsigned i = 0; i < width; ++i) stored.at[i] = *buffers.at(instruction.from, source + i);
    }
    buffers.template write<width>(instruction.target, place, stored);
  } else if constexpr (kind == Kind::copy) {
    buffers.template write<width>(instruction.target, place, buffers.template read<width>(instruction.from, place));
  } else {
    Value values[width] = {};
    if constexpr (kind == Kind::scale) {
      buffers.template load<width>(instruction.target, place, values);
      Number<Stored>::multiply(values, instruction.factor);
    } else if constexpr (kind == Kind::accumulate) {
      Value more[width];
      buffers.template load<width>(instruction.target, place, values);
      buffers.template load<width>(instruction.from, place, more);
      for (unsigned i = 0; i < width; ++i) values[i] = Number<Stored>::plus(values[i], more[i]);
    } else {
      static_assert(kind == Kind::zero);
    }
    buffers.template store<width>(instruction.target, place, values);
  }
}

}  // namespace lockstep::kernels
