// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/coordinate_index.h"
#include "lockstep/diagnostic.h"
#include "lockstep/intervals.h"
#include "lockstep/mesh.h"

namespace lockstep {

enum class Dtype { float32, float64, bfloat16, float16 };
std::string_view name_of(Dtype dtype);

/// Shard: this axis cuts this dimension. `uneven` cuts as torch.chunk does.
struct Shard {
  Axis axis;
  int dim = 0;
  bool uneven = false;
  friend bool operator==(const Shard&, const Shard&) = default;
};

/// One parameter as written: a logical tensor, or one site of a tied one.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  Dtype dtype = Dtype::float32;
  std::optional<int> stage = 0;  ///< pipeline stage from 0; none: all stages
  int chunk = 0;
  std::vector<Shard> shard;
  std::vector<Axis> partial;
  std::vector<Axis> dispatch;
  std::string tied;  ///< empty: not tied
  std::string copy;  ///< which copy of what it is tied to: those with different ones share no buffer
  std::vector<std::string> uses = {"main"};
  std::optional<std::vector<int>> micro_batches;  ///< in which it takes part; none: all
  struct Only {
    Axis axis;
    std::vector<int> coordinates;
    friend bool operator==(const Only&, const Only&) = default;
  };
  std::vector<Only> only;  ///< coordinates of the holding ranks that take part
  bool frozen = false;
  std::vector<std::string> tags;
  Place place;

  std::int64_t numel() const;
  friend bool operator==(const Parameter& a, const Parameter& b);  ///< places aside
};

/// A source of contributions to a logical parameter: one use of one of its sites.
struct SiteUse {
  int parameter = 0;  ///< index into Model::parameters()
  std::string use;
};

/// One tensor as one device has it: a parameter, or all parameters tied together. Where the tie is lost, so that ranks
/// have several tensors, it is one of these copies.
struct Logical {
  std::string name;             ///< of its first parameter
  std::string tied;             ///< the tied group's name or empty
  int original = 0;             ///< the first copy, in whose name all of them get gradients; itself where there is one
  std::vector<int> parameters;  ///< sites in model order, of this copy
  std::vector<SiteUse> uses;    ///< site by site, of all copies; only the original has them
  std::vector<std::int64_t> shape;
  Dtype dtype = Dtype::float32;
  std::int64_t numel = 0;
  bool frozen = false;  ///< all sites of all copies are
};

/// A piece of a logical tensor: a box, one interval per dimension. Row-major inside.
struct Piece {
  std::vector<Interval> dims;
  std::int64_t numel = 1;
};

/// A gradient buffer of one rank: one parameter, or the tied ones that live together on it.
struct LocalBuffer {
  int logical = 0;
  int piece = 0;                ///< index into Model::pieces(logical)
  std::vector<int> parameters;  ///< the sites on this rank in model order; the first gives the name
  std::int64_t numel = 0;
  std::int64_t rows = 1;  ///< extent of dimension 0 of the local tensor; 1 for scalars
  int chunk = 0;
  Dtype dtype = Dtype::float32;
};

/// What a rank holds, in model order; frozen parameters are left out. Shared by all ranks that
/// hold the same.
struct LocalModel {
  int id = 0;
  std::vector<LocalBuffer> buffers;
};

/// Parameters, placed on the ranks of a mesh. Immutable after construction; copies share what they hold.
class Model {
 public:
  using Parameters = std::shared_ptr<const std::vector<Parameter>>;

  /// Checks shapes, placements and ties; each mistake is added to `diagnostics` at the
  /// parameter's place. With mistakes the model must not be used further.
  Model(const Mesh& mesh, std::vector<Parameter> parameters, Diagnostics& diagnostics);
  /// The same of a list that several models share. What comes out as in one of `others`, made of the same list for
  /// another mesh, is shared with it.
  Model(const Mesh& mesh, Parameters parameters, Diagnostics& diagnostics, const std::vector<Model>& others);

  const std::vector<Parameter>& parameters() const { return *parameters_; }
  const std::vector<Logical>& logicals() const { return content_->logicals; }
  /// The copies of one tensor of one device, in model order, of which `logical` is one; most have one.
  const std::vector<int>& copies(int logical) const {
    return content_->copies[static_cast<std::size_t>(original(logical))];
  }
  int original(int logical) const { return logicals()[static_cast<std::size_t>(logical)].original; }
  /// Whether one device has it as a tensor of its own, and trains it: of several copies the original is.
  bool is_trained_tensor(int logical) const {
    return original(logical) == logical && !logicals()[static_cast<std::size_t>(logical)].frozen;
  }
  /// The sites of all copies, in model order.
  std::vector<int> sites(int logical) const;
  /// Those of them that are not frozen.
  std::vector<int> trained(int logical) const;
  int logical_of(int parameter) const { return content_->logical_of[static_cast<std::size_t>(parameter)]; }
  const std::vector<Piece>& pieces(int logical) const { return content_->pieces[static_cast<std::size_t>(logical)]; }
  const LocalModel& local(int rank) const { return *content_->locals[static_cast<std::size_t>(local_id(rank))]; }
  /// All distinct local models, by id.
  const std::vector<std::unique_ptr<LocalModel>>& locals() const { return content_->locals; }
  /// Index of `logical`'s buffer on `rank`, or -1. A rank holds at most one buffer of a logical
  /// parameter.
  int buffer_of(int rank, int logical) const;
  /// Index of the first buffer on `rank` of a copy of `logical`, or -1.
  int buffer_of_copy(int rank, int logical) const;
  /// Whether the two hold one and the same placement in memory.
  bool shares_with(const Model& other) const { return content_ == other.content_; }
  /// Index into Logical::uses, of the original, of this parameter's use.
  int site_use(int parameter, std::string_view use) const;

  /// Row-major index in the logical tensor of element `local` of a piece.
  std::int64_t global_index(int logical, int piece, std::int64_t local) const;
  /// Whether `rank` computes a gradient for this site in this micro-batch (counted from 0 in its
  /// optimizer step), token counts aside.
  bool takes_part(const Mesh& mesh, int parameter, int rank, int micro_batch) const;

 private:
  /// The ranks of one local model: a stage, and coordinates on the axes that cut something on it as one number.
  using Place = std::pair<int, std::int64_t>;

  /// What hangs on the sizes of the axes that cut something, and on no other.
  struct Content {
    std::vector<Logical> logicals;
    std::vector<std::vector<int>> copies;  ///< by logical; of originals
    std::vector<int> logical_of;
    std::vector<std::vector<Piece>> pieces;
    std::vector<std::unique_ptr<LocalModel>> locals;
    // By local model: its lowest logical parameter, then the buffer of each from there on, -1 for none.
    std::vector<std::vector<int>> buffer_of;
    std::vector<std::pair<Axis, int>> sizes;  ///< of these axes and of pp
    std::vector<Place> places;                ///< of the local models
  };

  int local_id(int rank) const { return local_of_[static_cast<std::size_t>(index_.of(rank))]; }
  void check(const Mesh& mesh, Diagnostics& diagnostics) const;

  Parameters parameters_;
  std::shared_ptr<const Content> content_;
  CoordinateIndex index_;
  std::vector<int> local_of_;  // by the rank's number in index_
};

}  // namespace lockstep
