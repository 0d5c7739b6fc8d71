// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/diagnostic.h"

namespace lockstep::device {

/// Values one behind the other, as they lie in memory: for processes of the same program.
class MessageWriter {
 public:
  template <class Value>
  void add(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    const char* bytes = reinterpret_cast<const char*>(&value);
    text_.append(bytes, sizeof value);
  }
  void add_text(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    text_ += text;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// Reads them in the order in which they were written. The text must outlive it.
class MessageReader {
 public:
  explicit MessageReader(std::string_view text) : rest_(text) {}
  bool at_end() const { return rest_.empty(); }
  template <class Value>
  Value take() {
    Value value;
    const std::string_view bytes = take_bytes(sizeof value);
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view take_text() { return take_bytes(take<std::uint64_t>()); }

 private:
  std::string_view take_bytes(std::size_t count) {
    if (count > rest_.size()) throw InternalError("a message between processes is shorter than what it should hold");
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  std::string_view rest_;
};

}  // namespace lockstep::device
