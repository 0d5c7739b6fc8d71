// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace lockstep::cli {

/// Small blocks of malloc that a thread has given back, kept for its next ones of that size: a search over edits gives
/// back thousands at a time, of which glibc keeps seven of a size at hand and takes a quarter of the search's time to
/// merge and split the others. Any thread may free what another one took.
///
/// A plain object, which no thread has to construct before it allocates for the first time: close() is to be called at
/// its end.
class SmallBlocks {
 public:
  static constexpr std::size_t largest = 1032;

  /// At least `size` bytes, at most `largest`; null where malloc has none.
  void* take(std::size_t size) {
    const std::size_t number = class_of(size);
    List& list = lists_[number];
    if (list.first == nullptr) return std::malloc(bytes_of(number));
    Block* block = list.first;
    list.first = block->next;
    --list.count;
    return block;
  }

  /// Keeps a block that malloc or take() gave for `size` bytes, at most `largest`; false where there are enough: it is
  /// the caller's still.
  bool give(void* memory, std::size_t size) {
    constexpr std::size_t most_bytes = 64 << 10;
    const std::size_t number = class_of(size);
    List& list = lists_[number];
    if (list.count * bytes_of(number) >= most_bytes || is_closed_) return false;
    list.first = new (memory) Block{list.first};
    ++list.count;
    return true;
  }

  /// Gives all of them back to malloc, and keeps none from then on.
  void close() {
    is_closed_ = true;
    for (List& list : lists_) {
      while (list.first != nullptr) {
        Block* block = list.first;
        list.first = block->next;
        std::free(block);
      }
      list.count = 0;
    }
  }

 private:
  struct Block {
    Block* next;
  };
  struct List {
    Block* first = nullptr;
    std::size_t count = 0;
  };

  // The sizes of malloc of glibc: 24, 40, 56, …
  static constexpr std::size_t step = 16, own = 8;
  static std::size_t class_of(std::size_t size) { return size <= step + own ? 0 : (size - own - 1) / step; }
  static std::size_t bytes_of(std::size_t number) { return (number + 1) * step + own; }

  std::array<List, (largest - own) / step> lists_{};
  bool is_closed_ = false;
};

}  // namespace lockstep::cli
