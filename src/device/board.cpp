// SPDX-License-Identifier: Apache-2.0
#include "src/device/board.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "src/device/gpu.h"

namespace lockstep::device {

namespace {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free, "processes share the words");

/// A text in words, so that who reads while it is written reads a mixture and no more.
template <std::size_t words>
class SharedText {
 public:
  void write(const std::string& text) {
    const std::size_t length = std::min(text.size(), words * sizeof(std::uint64_t));
    length_.store(0, std::memory_order_release);
    for (std::size_t i = 0; i * sizeof(std::uint64_t) < length; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + i * sizeof word, std::min(sizeof word, length - i * sizeof word));
      words_[i].store(word, std::memory_order_relaxed);
    }
    length_.store(length, std::memory_order_release);
  }
  std::string read() const {
    const std::size_t length = std::min<std::size_t>(length_.load(std::memory_order_acquire), words * 8);
    std::string text(length, '\0');
    for (std::size_t i = 0; i * sizeof(std::uint64_t) < length; ++i) {
      const std::uint64_t word = words_[i].load(std::memory_order_relaxed);
      std::memcpy(text.data() + i * sizeof word, &word, std::min(sizeof word, length - i * sizeof word));
    }
    return text;
  }

 private:
  Word length_;
  std::array<Word, words> words_;
};

}  // namespace

struct alignas(64) Board::Page {
  Word version;  ///< odd while it is written
  Word moves, state, task, block, event;
  SharedText<24> what;
  Word cause, order;
  Word failures;  ///< of the first page: of all processes
  SharedText<192> sentence;
};

std::size_t Board::bytes_for(int processes) { return sizeof(Page) * static_cast<std::size_t>(processes); }

Board::Board(int processes) : processes_(processes) {
  const std::size_t bytes = bytes_for(processes);
  memory_ = ::operator new(bytes, std::align_val_t{alignof(Page)});
  std::memset(memory_, 0, bytes);
}

Board::Board(int file, int processes) : mapped_(bytes_for(processes)), processes_(processes) {
  memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory_ == MAP_FAILED)
    throw GpuFailure(std::string("the processes cannot share a page of memory: ") + std::strerror(errno));
}

Board::~Board() {
  if (mapped_ > 0) {
    munmap(memory_, mapped_);
  } else {
    ::operator delete(memory_, std::align_val_t{alignof(Page)});
  }
}

Board::Page& Board::page(int process) const { return static_cast<Page*>(memory_)[process]; }

void Board::write(int process, State state, const ReplayPlace& place) {
  Page& own = page(process);
  own.version.fetch_add(1);
  own.state.store(static_cast<std::uint64_t>(state));
  own.task.store(place.task);
  own.block.store(place.block);
  own.event.store(place.event);
  own.what.write(place.what);
  own.version.fetch_add(1);
  own.moves.fetch_add(1);
}

Board::Entry Board::read(int process) const {
  const Page& other = page(process);
  Entry entry;
  // Who was ended while it wrote leaves an odd number; what it wrote so far is better than nothing.
  constexpr int patience = 1000;
  for (int attempt = 0; attempt < patience; ++attempt) {
    const std::uint64_t before = other.version.load();
    entry.state = static_cast<State>(other.state.load());
    entry.place = {other.task.load(), other.block.load(), other.event.load(), other.what.read()};
    if (before % 2 == 0 && other.version.load() == before) break;
  }
  return entry;
}

std::uint64_t Board::moves() const {
  std::uint64_t sum = 0;
  for (int process = 0; process < processes_; ++process) sum += page(process).moves.load();
  return sum;
}

void Board::fail(int process, Cause cause, const std::string& sentence) {
  Page& own = page(process);
  if (own.cause.load() != 0) return;
  own.sentence.write(sentence);
  own.order.store(page(0).failures.fetch_add(1));
  own.cause.store(static_cast<std::uint64_t>(cause));
}

bool Board::failed_by_itself() const {
  for (int process = 0; process < processes_; ++process) {
    if (static_cast<Cause>(page(process).cause.load()) == Cause::own) return true;
  }
  return false;
}

std::optional<std::string> Board::failure() const {
  for (const Cause cause : {Cause::own, Cause::another}) {
    const Page* first = nullptr;
    for (int process = 0; process < processes_; ++process) {
      const Page& each = page(process);
      if (static_cast<Cause>(each.cause.load()) != cause) continue;
      if (first == nullptr || each.order.load() < first->order.load()) first = &each;
    }
    if (first != nullptr) return first->sentence.read();
  }
  return std::nullopt;
}

}  // namespace lockstep::device
