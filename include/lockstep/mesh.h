// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// The axes of a layout, named as in Megatron-core; `sp` is the Ulysses degree.
/// Dense mesh: tp, cp, sp, dp, pp. Expert mesh: etp, ep, edp, pp. `dp_shard` (fast) and
/// `dp_replicate` split dp; `edp_shard` (fast) and `edp_replicate` split edp into as many replicas.
enum class Axis { tp, cp, sp, dp, pp, ep, etp, edp, dp_shard, dp_replicate, edp_shard, edp_replicate };
inline constexpr int axis_count = 12;

std::string_view name_of(Axis axis);
std::optional<Axis> axis_named(std::string_view name);
/// All names, for messages.
const std::vector<std::string>& axis_names();
/// etp, ep, edp and its parts: they exist in the expert mesh alone.
bool is_expert_axis(Axis axis);
/// Whether `part` is one of the two axes that `whole` (dp or edp) splits into.
bool is_part_of(Axis part, Axis whole);

/// What a user writes under "layout", checked: every size is at least 1, the world is a multiple
/// of etp·ep·pp, every axis larger than 1 stands in `order`.
struct Layout {
  int tp = 1, cp = 1, sp = 1, dp = 1, pp = 1, ep = 1, etp = 1;
  int dp_shard = 1, dp_replicate = 1;  ///< product is dp; dp_shard = dp where dp was given whole
  /// Axes from fastest to slowest out of tp, cp, sp, ep, dp, pp.
  std::vector<Axis> order = {Axis::tp, Axis::cp, Axis::sp, Axis::ep, Axis::dp, Axis::pp};
  bool sequence_parallel = false;  ///< Megatron's, a property of tp
  int virtual_stages = 1;
  std::vector<Axis> any;  ///< axes given as "any"; their size above is 1
  friend bool operator==(const Layout&, const Layout&) = default;

  int world() const { return tp * cp * sp * dp * pp; }
  /// At least 1: an axis that is "any" counts as 1, and may leave too few ranks for the expert mesh.
  int edp() const { return std::max(world() / (etp * ep * pp), 1); }
  /// Whether edp falls into dp_replicate equal parts; where it does not, edp_shard and edp_replicate mean nothing.
  bool splits_edp() const { return edp() % dp_replicate == 0; }
  int edp_replicate() const { return splits_edp() ? dp_replicate : 1; }
};

/// A coordinate on an axis as it is written: by its number, below 0 from the end, or as "first" or "last". The same one
/// may be another number on an axis of another size.
struct Coordinate {
  enum class Kind { number, first, last };
  Kind kind = Kind::number;
  int number = 0;  ///< Kind::number: -1 is the last

  /// Counted from 0 on an axis of `size`; outside of 0 to size - 1 where the axis has none of it.
  std::int64_t on(int size) const;
  friend bool operator==(const Coordinate&, const Coordinate&) = default;
};

/// The axes that a collective runs over, and on some of them only these coordinates.
struct Over {
  struct Pick {
    Axis axis;
    std::optional<std::vector<int>> coordinates;            ///< at the sizes at hand; none: all
    std::vector<Coordinate> written = {};                   ///< the same as a file has them; empty where none has
    friend bool operator==(const Pick& a, const Pick& b) {  ///< at the sizes at hand
      return a.axis == b.axis && a.coordinates == b.coordinates;
    }
  };
  std::vector<Pick> picks;  ///< empty: each rank alone
  friend bool operator==(const Over&, const Over&) = default;
};

/// The groups of an `Over`: the ranks that agree on every other axis of that mesh.
struct Groups {
  std::vector<std::vector<int>> members;  ///< ascending ranks, groups by their first rank
  std::vector<int> group_of;              ///< by rank; -1: in none
};

/// Ranks and their coordinates in both meshes. Immutable; concurrent reads are safe.
class Mesh {
 public:
  explicit Mesh(Layout layout);

  const Layout& layout() const { return layout_; }
  int world() const { return world_; }
  int size(Axis axis) const { return size_[static_cast<int>(axis)]; }
  int coordinate(int rank, Axis axis) const { return rank / stride(axis) % size(axis); }
  /// Ranks from one coordinate to the next, so that s * stride(axis) is the first rank with coordinate s.
  int stride(Axis axis) const { return stride_[static_cast<int>(axis)]; }
  /// Complexity: near linear in the world.
  Groups groups(const Over& over) const;
  /// Whether every pipeline group of the expert mesh is one of the dense mesh.
  bool pipeline_groups_agree() const { return pipeline_groups_agree_; }

 private:
  Layout layout_;
  int world_ = 1;
  bool pipeline_groups_agree_ = true;
  // coordinate = rank / stride % size. pp's are the dense mesh's.
  std::array<int, axis_count> size_{};
  std::array<int, axis_count> stride_{};
};

}  // namespace lockstep
