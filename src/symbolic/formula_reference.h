// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/symbolic/formula_names.h"
#include "src/symbolic/formula_scanner.h"

namespace lockstep::formula {

/// A gradient's name, taken apart.
struct Reference {
  std::size_t offset = 0;
  std::optional<int> rank;
  std::optional<int> micro_batch;
  std::string use;
  struct Bracket {
    int parameter = 0;
    std::optional<int> holder;
    std::int64_t shift = 0;
  };
  std::optional<Bracket> bracket;
};

/// Reads the names in a formula and knows which terms they stand for.
class References {
 public:
  References(Names& names, Scanner& scanner);

  /// Whether a word is `g` or `g3`.
  static bool is_gradient(const std::string& word);
  /// `first` (`g` or `g3`, which begins at `offset`) with all that follows it: .1 .aux [NAME], in any order.
  Reference gradient(std::size_t offset, const std::string& first);
  /// The element that the reference is about, where `source` contributes.
  Frame frame_of(const Reference& reference, int source) const;
  /// All contributions of `rank` that the reference names. Where it names one in full, that one, even if no device
  /// would have it; else none is an error if `needed`.
  std::vector<Term> expand(const Reference& reference, int rank, const Frame& frame, bool needed);
  /// Whether a word that was just read, with what follows it, is `clip(`, `clip.1(`, `clip3(` or `clip3.1(`.
  bool is_clip(const std::string& word) const;
  /// That factor, whose name begins at `offset`; its parenthesis is next.
  ClipFactor clip(std::size_t offset, const std::string& word);
  /// The leftover `what`, whose name begins at `offset`, with its rank and element.
  Term leftover(std::size_t offset, const std::string& what);

 private:
  int checked_rank(std::size_t offset, int rank, const std::string& as_written) const;
  Reference::Bracket bracket();
  Reference::Bracket quoted_bracket();
  std::optional<Reference::Bracket> bracket_content(std::string_view content) const;
  /// The index of the parameter, or -1.
  int parameter_named(std::string_view name) const;
  /// Throws: there is none of the name, which begins at `begin` and has been read.
  [[noreturn]] void no_parameter(std::size_t begin, std::string_view name) const;

  Names& names_;
  Scanner& scanner_;
  std::map<std::string, std::set<bool>> leftovers_;  // by name: whether it differs by rank
};

}  // namespace lockstep::formula
