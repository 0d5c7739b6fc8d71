// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/intervals.h"
#include "lockstep/mesh.h"
#include "lockstep/verdict.h"

namespace lockstep::report {

/// Colours of the text report; without colour every text comes back as it is.
class Style {
 public:
  explicit Style(bool color) : color_(color) {}
  std::string bad(std::string_view text) const { return paint("31;1", text); }
  std::string good(std::string_view text) const { return paint("32;1", text); }
  std::string bold(std::string_view text) const { return paint("1", text); }
  std::string faint(std::string_view text) const { return paint("2", text); }
  std::string verdict(Verdict verdict) const;

 private:
  std::string paint(std::string_view code, std::string_view text) const;
  bool color_;
};

/// Columns that a UTF-8 text takes up, one per character.
std::size_t text_width(std::string_view text);
/// `text` and spaces up to `width` columns.
std::string padded(std::string_view text, std::size_t width);

/// "3", "0-3, 8": ascending numbers, at most `most` stretches and how many more.
std::string number_list(const std::vector<int>& numbers, std::size_t most = 8);
/// "rank 3", "ranks 0-3, 8": the same of ranks.
std::string rank_list(const std::vector<int>& ranks, std::size_t most = 8);
/// "[0, 768)".
std::string interval_text(const Interval& interval);
/// "pp 0 dp 1"; "" for a world of one.
std::string coordinates_text(const Mesh& mesh, int rank);

}  // namespace lockstep::report
