// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/batch.h"
#include "lockstep/diagnostic.h"
#include "lockstep/expression.h"
#include "lockstep/mesh.h"
#include "lockstep/model.h"
#include "lockstep/shared.h"

namespace lockstep {

/// The steps of the language; operation(op) has the table row of each.
enum class Op {
  backward,
  scale,
  all_reduce,
  reduce_scatter,
  reduce_scatter_v,
  all_gather,
  broadcast,
  reduce,
  own,
  copy,
  accumulate,
  zero,
  leftover,
  norm,
  clip,
  all_to_all,
  wait,
  each
};
inline constexpr int op_count = 18;

/// A selector list: which buffers a step acts on.
class Selectors {
 public:
  Selectors() = default;  ///< all
  /// Nothing where every item could be read; else the mistake in words.
  static std::optional<std::string> check(std::string_view item);
  /// Items as written, each already checked.
  explicit Selectors(std::vector<std::string> items) : items_(std::move(items)) {}

  const std::vector<std::string>& items() const { return *items_; }
  /// Whether one of the buffer's names is chosen.
  bool chooses(const Model& model, const LocalBuffer& buffer) const;
  /// The same for a parameter by itself; `numel` is the local element count.
  bool chooses(const Parameter& parameter, std::int64_t numel) const;
  /// Of an item that can be read: whether it begins with `!`; whether it compares a buffer's number of elements.
  static bool excludes(std::string_view item);
  static bool compares_numel(std::string_view item);
  /// Whether the pattern of one item (without its `!`) fits.
  static bool fits(std::string_view item, const Parameter& parameter, std::int64_t numel);
  friend bool operator==(const Selectors&, const Selectors&) = default;

 private:
  bool chooses(const Parameter& parameter, std::int64_t numel, int chunk) const;

  Shared<std::vector<std::string>> items_;
};

/// How a reduction cuts (scenario-format.md, "geometry"). Expressions may use `n`, the group's size.
struct Geometry {
  enum class Kind { parameter, rows, flat, bucket, counts };
  Kind kind = Kind::parameter;
  std::optional<Expression> align;  ///< flat; default n
  std::optional<Expression> size;   ///< bucket; none: one bucket
  Expression align_parameter = default_align_parameter();
  std::optional<Expression> align_bucket;  ///< default lcm(n, 128)
  std::optional<Selectors> separate;       ///< none: no parameter is separate
  std::vector<std::int64_t> counts;        ///< counts: by member, of as many equal parts as they have together
  Place place;
  friend bool operator==(const Geometry& a, const Geometry& b);  ///< places aside

 private:
  /// The same for all: searches make thousands of steps.
  static const Expression& default_align_parameter();
};

/// Where one parameter lies in what a reduction cuts: it begins `offset` elements into a stretch
/// that is cut into slices of `length`, or of several of these lengths each.
struct Cut {
  std::int64_t offset = 0;
  std::int64_t length = 0;
  std::int64_t numel = 0;
  /// By member, and one more: the lengths in front of its slice. Shared, for all members hold it; null: one length
  /// each.
  std::shared_ptr<const std::vector<std::int64_t>> lengths_before = nullptr;
  /// The local elements of the parameter in slice `member`.
  Interval slice(int member) const;
  friend bool operator==(const Cut& a, const Cut& b);
};

/// How a geometry lays out a list of buffers for a group of n.
struct GeometryLayout {
  struct Bucket {
    std::int64_t begin = 0, end = 0;
    int chunk = 0;
    Dtype dtype = Dtype::float32;
  };
  std::vector<Cut> cuts;               ///< one per buffer of the list
  std::vector<int> bucket_of;          ///< by buffer; for flat and bucket
  std::vector<std::int64_t> position;  ///< by buffer: where it starts, through all buckets of its chunk and dtype
  std::vector<Bucket> buckets;
};
/// One buffer as a geometry sees it. `numel` and `rows` are those of the part that is cut.
struct GeometryItem {
  std::int64_t numel = 0;
  std::int64_t rows = 1;        ///< that it fills, the last perhaps in part
  std::int64_t row_length = 0;  ///< elements of a row; 0: numel / rows
  int chunk = 0;
  Dtype dtype = Dtype::float32;
  bool separate = false;
};
/// Throws ExpressionError (with the offset in the expression's text) or InputError at the
/// geometry's place where a number is not a positive whole one or n does not divide a bucket.
GeometryLayout lay_out(const Geometry& geometry, const std::vector<GeometryItem>& items, int n,
                       const Environment& environment);

enum class Reduction { sum, average };

/// The ranks with these coordinates on an axis.
struct Only {
  Axis axis;
  std::vector<int> coordinates;                           ///< at the sizes at hand
  std::vector<Coordinate> written = {};                   ///< the same as a file has them; empty where none has
  friend bool operator==(const Only& a, const Only& b) {  ///< at the sizes at hand
    return a.axis == b.axis && a.coordinates == b.coordinates;
  }
};

/// The root of a broadcast or reduce: a position in the group, or coordinates that one member has.
struct Root {
  std::optional<int> position;
  std::vector<std::pair<Axis, int>> coordinates;          ///< at the sizes at hand
  std::vector<std::pair<Axis, Coordinate>> written = {};  ///< the same as a file has them; empty where none has
  friend bool operator==(const Root& a, const Root& b) {  ///< at the sizes at hand
    return a.position == b.position && a.coordinates == b.coordinates;
  }
};

/// Where a file has keys of a step.
struct KeyPlaces {
  Place by, when, over, root, count, params;
};

/// One plain step. Fields that an op does not have keep their defaults.
struct Step {
  std::string name;
  Op op = Op::zero;
  Selectors params;
  std::optional<Over> over;
  Reduction reduction = Reduction::sum;
  std::optional<Expression> by;
  std::optional<Expression> when;
  std::vector<Only> only;
  std::optional<Root> root;
  Shared<Geometry> geometry;
  bool on_owned = false;
  bool async = false;
  std::string buffer = "grad";      ///< the buffer acted on; for copy and accumulate the target ("to")
  std::string from;                 ///< copy, accumulate
  std::vector<std::string> uses;    ///< backward: empty for all
  std::string what;                 ///< leftover
  bool per_rank = false;            ///< leftover
  std::optional<Expression> count;  ///< norm; none: true
  bool mean_of_norms = false;       ///< norm
  std::string wait_for;             ///< wait
  std::vector<Step> steps;          ///< each
  /// What its file says of it, in that order; empty for one that no file has. Names of the key table.
  std::vector<std::string_view> keys;
  Place place;  ///< the whole step
  Shared<KeyPlaces> places;
  friend bool operator==(const Step& a, const Step& b);  ///< places and keys aside
};

/// A schedule with everything that its steps act on: what every engine interprets.
struct Schedule {
  Mesh mesh;
  Model model;
  Batch batch;
  std::vector<Step> steps;
  std::string result = "grad";
  /// The number of elements that a rank holds of a parameter decided what is here: an edit chose parameters by it, or a
  /// step of the framework's was looked at that does. With other sizes other parameters or steps may be here.
  bool decided_by_numel = false;
  /// Whether every engine does the same with both: all but places, and by what the steps were decided.
  friend bool operator==(const Schedule& a, const Schedule& b);
};

}  // namespace lockstep
