// SPDX-License-Identifier: Apache-2.0
// operator new and delete of the program, and of its tests, which count for the budgets of the thread (base/budget.h).
// They never throw because of a budget: memory is asked for in places that no exception may leave.
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "src/base/allocations.h"
#include "src/cli/small_blocks.h"

namespace {

using lockstep::allocations_of_thread;

#ifndef LOCKSTEP_SANITIZED

using lockstep::cli::SmallBlocks;

constinit thread_local SmallBlocks blocks;
constinit thread_local bool is_open = false;

/// Made by the first block that a thread keeps.
struct AtEndOfThread {
  AtEndOfThread() = default;
  ~AtEndOfThread() { blocks.close(); }
};

/// Of what is not kept: the first block of a thread, and those of which it has enough.
[[gnu::noinline]] void free_or_begin(void* memory, std::size_t size) {
  if (!is_open) {
    is_open = true;
    // What the first thread keeps goes with the process.
    if (gettid() != getpid()) static const thread_local AtEndOfThread at_end;
    blocks.open();
    if (blocks.give(memory, size)) return;
  }
  std::free(memory);
}

inline void free_block(void* memory, std::size_t size) {
  if (size > SmallBlocks::largest) return std::free(memory);
  if (!blocks.give(memory, size)) free_or_begin(memory, size);
}

template <class Ask>
inline void* counted(std::size_t size, Ask ask) {
  void* memory = ask();
  while (memory == nullptr) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    memory = ask();
  }
  allocations_of_thread.add(size);
  return memory;
}

[[gnu::noinline]] void* new_block(std::size_t size) {
  const std::size_t bytes = size <= SmallBlocks::largest ? SmallBlocks::rounded(size) : size;
  return counted(size, [bytes] { return std::malloc(bytes); });
}

inline void* aligned(std::size_t size, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  return counted(size, [&] { return std::aligned_alloc(step, (size + step - 1) / step * step); });
}

inline void free_counted(void* memory, std::size_t size) {
  if (memory == nullptr) return;
  allocations_of_thread.remove(size);
  free_block(memory, size);
}

/// Where nobody knows how much it was: what malloc says, which may be a little more, and of a large one up to a page.
inline void free_counted(void* memory) { free_counted(memory, ::malloc_usable_size(memory)); }

/// What is aligned is no small block of malloc.
inline void free_aligned(void* memory, std::size_t size) {
  if (memory != nullptr) allocations_of_thread.remove(size);
  std::free(memory);
}

#endif

}  // namespace

#ifdef LOCKSTEP_SANITIZED

// The sanitizer's own operators stay, which find a delete that does not fit its new; it tells of each allocation.
extern "C" {
std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
void __sanitizer_malloc_hook(const volatile void* /*memory*/, std::size_t size) { allocations_of_thread.add(size); }
void __sanitizer_free_hook(const volatile void* memory) {
  if (memory != nullptr) allocations_of_thread.remove(__sanitizer_get_allocated_size(memory));
}
}

#else

void* operator new(std::size_t size) {
  void* kept = size <= SmallBlocks::largest ? blocks.take(size) : nullptr;
  if (kept == nullptr) return new_block(size);
  allocations_of_thread.add(size);
  return kept;
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, std::align_val_t alignment) { return aligned(size, alignment); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return aligned(size, alignment); }

void operator delete(void* memory) noexcept { free_counted(memory); }
void operator delete[](void* memory) noexcept { free_counted(memory); }
void operator delete(void* memory, std::size_t size) noexcept { free_counted(memory, size); }
void operator delete[](void* memory, std::size_t size) noexcept { free_counted(memory, size); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  free_aligned(memory, ::malloc_usable_size(memory));
}
void operator delete[](void* memory, std::align_val_t alignment) noexcept { operator delete(memory, alignment); }
void operator delete(void* memory, std::size_t size, std::align_val_t /*alignment*/) noexcept {
  free_aligned(memory, size);
}
void operator delete[](void* memory, std::size_t size, std::align_val_t /*alignment*/) noexcept {
  free_aligned(memory, size);
}

#endif
