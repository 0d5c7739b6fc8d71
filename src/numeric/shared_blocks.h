// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace lockstep::numeric {

/// Memory that begins with a cache line, so that no vector of elements lies in two of them.
template <class Value>
struct CacheAligned {
  using value_type = Value;
  static constexpr std::align_val_t line{64};

  CacheAligned() = default;
  template <class Other>
  CacheAligned(const CacheAligned<Other>&) {}  // NOLINT(google-explicit-constructor): what allocators have
  Value* allocate(std::size_t count) { return static_cast<Value*>(::operator new(count * sizeof(Value), line)); }
  void deallocate(Value* values, std::size_t) { ::operator delete(values, line); }
  bool operator==(const CacheAligned&) const { return true; }
};
template <class Value>
using AlignedVector = std::vector<Value, CacheAligned<Value>>;

/// Blocks of elements that buffers share until one of them is written to: what a collective leaves in many buffers is
/// there once. For one thread.
template <class Value>
class SharedBlocks {
 private:
  struct Block {
    AlignedVector<Value> values;
    int users = 0;
  };

 public:
  /// Blocks of `length` elements. It must outlive what it hands out.
  explicit SharedBlocks(std::size_t length) : length_(length) {}

  /// What a buffer holds. A copy holds the same block.
  class Elements {
   public:
    Elements() = default;
    Elements(const Elements& other) : owner_(other.owner_), block_(other.block_) {
      if (block_) ++block_->users;
    }
    Elements(Elements&& other) noexcept { swap(other); }
    Elements& operator=(Elements other) noexcept {
      swap(other);
      return *this;
    }
    ~Elements() {
      if (block_ && --block_->users == 0) owner_->free_.push_back(block_);
    }

    explicit operator bool() const { return block_ != nullptr; }
    bool operator==(const Elements& other) const { return block_ == other.block_; }
    const Value* read() const { return block_->values.data(); }
    bool is_shared() const { return block_->users > 1; }
    /// Only where it is not shared.
    Value* write() { return block_->values.data(); }

   private:
    friend class SharedBlocks;
    Elements(SharedBlocks* owner, Block* block) : owner_(owner), block_(block) { ++block->users; }
    void swap(Elements& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(block_, other.block_);
    }
    SharedBlocks* owner_ = nullptr;
    Block* block_ = nullptr;
  };

  /// A block of its own, of any elements; the one that was given back last, which is the likeliest to be in cache.
  Elements take() {
    if (free_.empty()) {
      blocks_.push_back(std::make_unique<Block>());
      blocks_.back()->values.resize(length_);
      free_.push_back(blocks_.back().get());
      free_.reserve(blocks_.size());  // giving back allocates nothing
    }
    Block* block = free_.back();
    free_.pop_back();
    return Elements(this, block);
  }

 private:
  std::size_t length_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_;
};

}  // namespace lockstep::numeric
