// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/json.h"

namespace lockstep::live {

/// A text of JSON, whose programs are read one by one: together, as values with places, they would take many times the
/// memory of their text.
class ExtractionText {
 public:
  explicit ExtractionText(std::shared_ptr<const Source> source);

  /// The whole but for the items of "programs", in whose place null stands: its places are of a text of its own, which
  /// has every other character where the whole has it.
  Json head(Diagnostics& mistakes) const;
  std::size_t programs() const { return items_.size(); }
  /// One of the programs. Mistakes that are added for its values have places in the whole only by place().
  Json program(std::size_t index, Diagnostics& mistakes) const;
  Place place(std::size_t program, const Place& within) const;
  /// From 1.
  int line(std::size_t program, const Place& within) const;
  /// The same of a value of the head.
  int line(const Place& of_head) const { return line_at(of_head.begin); }

 private:
  struct Item {
    std::size_t begin = 0, end = 0;
  };
  int line_at(std::size_t begin) const;

  std::shared_ptr<const Source> source_;
  std::vector<Item> items_;
  std::vector<std::size_t> lines_;  // where they begin
};

/// Whether the text is an object with the key "lockstep_extract".
bool is_extraction_text(std::string_view text);

}  // namespace lockstep::live
