// SPDX-License-Identifier: Apache-2.0
// operator new of this program counts, so that a benchmark can tell what something allocates: a number that is the same
// on every machine.
#include "benchmarks/allocations.h"

#include <cstdlib>
#include <new>

namespace {

thread_local std::int64_t total = 0;

void* counted(std::size_t size) {
  total += static_cast<std::int64_t>(size);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace lockstep::bench {

std::int64_t allocated_bytes() { return total; }

}  // namespace lockstep::bench
