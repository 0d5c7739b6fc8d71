// SPDX-License-Identifier: Apache-2.0
#include "src/model/placement.h"

#include <algorithm>
#include <set>

#include "src/base/at.h"
#include "src/base/counted.h"

namespace lockstep::model {
namespace {

constexpr std::int64_t numel_limit = std::int64_t{1} << 62;

std::string quoted(Axis axis) { return "\"" + std::string(name_of(axis)) + "\""; }

/// dp is the product of dp_shard and dp_replicate: using it together with one of them uses an axis twice. So with edp.
bool overlap(Axis a, Axis b) { return a == b || is_part_of(a, b) || is_part_of(b, a); }

/// Piece `index` of `count` of an interval.
Interval cut(const Interval& whole, int index, int count, bool uneven) {
  const std::int64_t length = uneven ? (whole.size() + count - 1) / count : whole.size() / count;
  return {std::min(whole.begin + index * length, whole.end), std::min(whole.begin + (index + 1) * length, whole.end)};
}

class PlacementCheck {
 public:
  PlacementCheck(const Mesh& mesh, const Parameter& parameter, Diagnostics& diagnostics)
      : mesh_(mesh), parameter_(parameter), diagnostics_(diagnostics) {}

  void run() {
    shape();
    stage();
    axes();
    only();
    for (std::size_t i = 0; i < parameter_.uses.size(); ++i) {
      if (std::find(parameter_.uses.begin(), parameter_.uses.begin() + static_cast<std::ptrdiff_t>(i),
                    parameter_.uses[i]) != parameter_.uses.begin() + static_cast<std::ptrdiff_t>(i)) {
        add("names the use \"" + parameter_.uses[i] + "\" twice; name each use once");
      }
    }
  }

 private:
  void add(const std::string& what) {
    diagnostics_.add(parameter_.place, "the parameter \"" + parameter_.name + "\" " + what);
  }

  void shape() {
    std::int64_t numel = 1;
    for (const std::int64_t extent : parameter_.shape) {
      if (extent < 0) return add("has the extent " + std::to_string(extent) + " in its shape; extents are at least 0");
    }
    for (const std::int64_t extent : parameter_.shape) {
      if (extent == 0) return;  // whatever the others are
    }
    for (const std::int64_t extent : parameter_.shape) {
      if (numel > numel_limit / extent) return add("has more than 2^62 elements");
      numel *= extent;
    }
  }

  void stage() {
    const int stages = mesh_.size(Axis::pp);
    if (parameter_.stage && (*parameter_.stage < 0 || *parameter_.stage >= stages)) {
      add("lives on stage " + std::to_string(*parameter_.stage) + ", but there " +
          (stages == 1
               ? "is only stage 0"
               : "are only stages 0 to " + std::to_string(stages - 1) + " (pp is " + std::to_string(stages) + ")"));
    }
    const int chunks = mesh_.layout().virtual_stages;
    if (parameter_.chunk < 0 || parameter_.chunk >= chunks) {
      add("lives in chunk " + std::to_string(parameter_.chunk) + ", but \"virtual_stages\" is " +
          std::to_string(chunks) + "; chunks count from 0");
    }
  }

  void axes() {
    bool expert = false, dense = false;
    std::vector<Axis> seen;
    for (const Shard& shard : parameter_.shard) {
      for (const Axis earlier : seen) {
        if (overlap(earlier, shard.axis))
          add("is sharded over " + quoted(earlier) + " and " + quoted(shard.axis) + ", which overlap");
      }
      seen.push_back(shard.axis);
      (is_expert_axis(shard.axis) ? expert : dense) |= shard.axis != Axis::pp;
      for (const Axis axis : parameter_.partial) {
        if (overlap(axis, shard.axis)) {
          add("is both sharded over " + quoted(shard.axis) + " and partial over " + quoted(axis) +
              "; an axis can be one of the two");
        }
      }
      if (shard.axis == Axis::pp && parameter_.stage) {
        add("is sharded over \"pp\", but lives on one stage; write \"stage\": \"all\"");
      }
    }
    if (expert && dense) add("is sharded over axes of both meshes; take either dense axes or etp, ep and edp");
    for (const Axis axis : parameter_.partial) expert |= is_expert_axis(axis);
    for (const Axis axis : parameter_.dispatch) {
      if (!is_expert_axis(axis)) {
        add("has \"dispatch\" over " + quoted(axis) +
            "; tokens are dispatched over axes of the expert mesh: etp, ep or edp");
      }
      expert |= is_expert_axis(axis);
    }
    if (expert && !mesh_.pipeline_groups_agree()) {
      add("uses the expert mesh, whose pipeline groups are not those of the dense mesh; put pp last in \"order\", or "
          "choose "
          "etp and ep so that etp*ep*edp ranks in a row are one stage in both");
    }
    dimensions();
  }

  /// Follows the extents that each dimension's pieces can have from cut to cut.
  void dimensions() {
    std::vector<std::set<std::int64_t>> extents;
    extents.reserve(parameter_.shape.size());
    for (const std::int64_t extent : parameter_.shape) extents.push_back({std::max<std::int64_t>(extent, 0)});
    for (const Shard& shard : parameter_.shard) {
      if (shard.dim < 0 || shard.dim >= static_cast<int>(extents.size())) {
        add("is sharded along dimension " + std::to_string(shard.dim) + ", but its shape has " +
            counted(extents.size(), "dimension") + ", which count from 0");
        return;
      }
      std::set<std::int64_t>& own = extents[at(shard.dim)];
      const int count = mesh_.size(shard.axis);
      std::set<std::int64_t> pieces;
      for (const std::int64_t extent : own) {
        if (!shard.uneven && extent % count != 0) {
          add("has " + counted(extent, "element") + " to cut in dimension " + std::to_string(shard.dim) + ", which " +
              std::string(name_of(shard.axis)) + " = " + std::to_string(count) +
              " does not divide; pad the dimension, or write \"uneven\": true to cut it as torch.chunk does");
          return;
        }
        for (int i = 0; i < count; ++i) pieces.insert(cut({0, extent}, i, count, shard.uneven).size());
      }
      own = std::move(pieces);
    }
  }

  void only() {
    for (const Parameter::Only& only : parameter_.only) {
      for (const int coordinate : only.coordinates) {
        if (coordinate >= 0 && coordinate < mesh_.size(only.axis)) continue;
        add("takes part only on " + std::string(name_of(only.axis)) + " " + std::to_string(coordinate) + ", but " +
            std::string(name_of(only.axis)) + " is " + std::to_string(mesh_.size(only.axis)) +
            "; coordinates count from 0");
      }
    }
  }

  const Mesh& mesh_;
  const Parameter& parameter_;
  Diagnostics& diagnostics_;
};

}  // namespace

void check_placement(const Mesh& mesh, const Parameter& parameter, Diagnostics& diagnostics) {
  PlacementCheck(mesh, parameter, diagnostics).run();
}

void check_tie(const Parameter& first, const Parameter& later, Diagnostics& diagnostics) {
  const auto sorted = [](std::vector<Axis> axes) {
    std::sort(axes.begin(), axes.end());
    return axes;
  };
  const auto same_shard = [](const Shard& a, const Shard& b) {
    return a.axis == b.axis && a.dim == b.dim && a.uneven == b.uneven;
  };
  std::string differs;
  const auto note = [&differs](bool same, const char* what) {
    if (!same) differs += (differs.empty() ? "" : ", ") + std::string(what);
  };
  note(first.shape == later.shape, "shape");
  note(first.dtype == later.dtype, "dtype");
  note(std::equal(first.shard.begin(), first.shard.end(), later.shard.begin(), later.shard.end(), same_shard), "shard");
  note(sorted(first.partial) == sorted(later.partial), "partial");
  note(sorted(first.dispatch) == sorted(later.dispatch), "dispatch");
  if (differs.empty()) return;
  diagnostics.add(later.place, "the parameters \"" + first.name + "\" and \"" + later.name + "\" are tied as \"" +
                                   later.tied + "\" and must be one tensor, but they differ in: " + differs);
}

std::vector<Piece> cut_into_pieces(const Mesh& mesh, const Parameter& parameter) {
  Piece whole;
  for (const std::int64_t extent : parameter.shape) whole.dims.push_back({0, extent});
  std::vector<Piece> pieces = {whole};
  for (const Shard& shard : parameter.shard) {
    std::vector<Piece> finer;
    const int count = mesh.size(shard.axis);
    finer.reserve(pieces.size() * static_cast<std::size_t>(count));
    for (const Piece& piece : pieces) {
      for (int i = 0; i < count; ++i) {
        finer.push_back(piece);
        Interval& dim = finer.back().dims[at(shard.dim)];
        dim = cut(dim, i, count, shard.uneven);
      }
    }
    pieces = std::move(finer);
  }
  for (Piece& piece : pieces) {
    piece.numel = 1;
    for (const Interval& dim : piece.dims) piece.numel *= dim.size();
  }
  return pieces;
}

int piece_index(const Mesh& mesh, const Parameter& parameter, int rank) {
  int index = 0;
  for (const Shard& shard : parameter.shard) index = index * mesh.size(shard.axis) + mesh.coordinate(rank, shard.axis);
  return index;
}

}  // namespace lockstep::model
