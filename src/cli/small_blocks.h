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
/// A plain object, which no thread has to construct before it allocates for the first time. It keeps nothing until
/// open(), and nothing any more after close().
class SmallBlocks {
 public:
  static constexpr std::size_t largest = 1032;

  /// At least `size` bytes, at most `largest`; null where none is kept that is as large.
  void* take(std::size_t size) {
    List& list = lists_[class_of(size)];
    Block* block = list.first;
    if (block == nullptr) return nullptr;
    list.first = block->next;
    ++list.room;
    return block;
  }

  /// Keeps a block that take() gave for `size` bytes, at most `largest`, or malloc for rounded(size); false where there
  /// are enough: it is the caller's still.
  bool give(void* memory, std::size_t size) {
    List& list = lists_[class_of(size)];
    if (list.room == 0) return false;
    list.first = new (memory) Block{list.first};
    --list.room;
    return true;
  }

  /// What malloc is to be asked for, so that the block serves all sizes of its class.
  static std::size_t rounded(std::size_t size) { return bytes_of(class_of(size)); }

  void open() {
    constexpr std::size_t most_bytes = 64 << 10;
    for (std::size_t number = 0; number < lists_.size(); ++number)
      lists_[number].room = (most_bytes + bytes_of(number) - 1) / bytes_of(number);
  }

  /// Gives all of them back to malloc.
  void close() {
    for (List& list : lists_) {
      while (list.first != nullptr) {
        Block* block = list.first;
        list.first = block->next;
        std::free(block);
      }
      list.room = 0;
    }
  }

 private:
  struct Block {
    Block* next;
  };
  struct List {
    Block* first = nullptr;
    std::size_t room = 0;  // for so many more
  };

  // The sizes of malloc of glibc: 24, 40, 56, …
  static constexpr std::size_t step = 16, own = 8;
  static std::size_t class_of(std::size_t size) { return size <= step + own ? 0 : (size - own - 1) / step; }
  static std::size_t bytes_of(std::size_t number) { return (number + 1) * step + own; }

  std::array<List, (largest - own) / step> lists_{};
};

}  // namespace lockstep::cli
