// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>
#include <vector>

namespace lockstep::live {

/// By which collectives the values of parameters may go from rank to rank.
class ValuePaths {
 public:
  explicit ValuePaths(int world) : from_(static_cast<std::size_t>(world)), to_(from_.size()), world_(world) {}

  /// A rank calls a collective of a process group which brings what the rank `root` has, or where that is -1, what any
  /// member has. Groups have any numbers.
  void add(int rank, int group, int root);

  /// Ranks to which the same values may come.
  struct Receivers {
    std::vector<int> ranks;  ///< ascending; what one of them has may come to all
    std::vector<int> from;   ///< ascending, all ranks whose values may come to them, in any number of calls: they, too
  };
  /// Every rank is in one of these.
  std::vector<Receivers> receivers() const;

 private:
  // Places are the ranks, and then one for each group and root.
  using Edges = std::vector<std::vector<int>>;
  void add_edge(int from, int to);
  static std::vector<int> reached(int begin, const Edges& edges, std::vector<int>& seen);

  Edges from_, to_;                            // by place: from where and to where values go
  std::map<std::pair<int, int>, int> places_;  // by group and root
  int world_;
};

}  // namespace lockstep::live
