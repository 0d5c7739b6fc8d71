// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "lockstep/schedule.h"
#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/base/counted.h"

namespace lockstep {
namespace {

constexpr std::int64_t limit = std::int64_t{1} << 62;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Lays out the buffers of one chunk and dtype after the other.
class Layouter {
 public:
  Layouter(const Geometry& geometry, const std::vector<GeometryItem>& items, int n, const Environment& environment)
      : geometry_(geometry), items_(items), n_(n), environment_(environment) {
    if (environment.names) names_ = *environment.names;
    names_.insert_or_assign("n", Rational(n));
    environment_.names = &names_;
    result_.cuts.resize(items.size());
  }

  GeometryLayout run() {
    switch (geometry_.kind) {
      case Geometry::Kind::parameter:
      case Geometry::Kind::rows:
        each_by_itself();
        break;
      case Geometry::Kind::counts:
        by_counts();
        break;
      case Geometry::Kind::flat:
      case Geometry::Kind::bucket:
        result_.bucket_of.resize(items_.size());
        result_.position.resize(items_.size());
        for (const auto& [key, members] : by_chunk_and_dtype()) {
          if (geometry_.kind == Geometry::Kind::flat) {
            flat(members);
          } else {
            buckets(members);
          }
        }
        break;
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw InputError({Diagnostic{geometry_.place, message}}); }

  std::int64_t positive(const char* key, const Expression& expression) const {
    const Rational value = expression.number(environment_);
    const std::optional<std::int64_t> whole = value.to_int64();
    if (!whole || *whole <= 0 || *whole > limit) {
      const std::string text = expression.to_string(), found = value.to_string();
      const bool is_too_large = value.is_integer() && value > Rational(limit);
      const std::string expected = is_too_large ? "at most " + std::to_string(limit) : "a positive whole number";
      fail("expected " + expected + " for \"" + std::string(key) + "\", but " +
           (text == found ? "found " + found : "\"" + text + "\" is " + found) + " in a group of " +
           std::to_string(n_));
    }
    return *whole;
  }

  void each_by_itself() {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const GeometryItem& item = items_[i];
      const bool by_rows = geometry_.kind == Geometry::Kind::rows && item.rows > 0;
      const std::int64_t row =
          item.row_length > 0 ? item.row_length : item.numel / std::max<std::int64_t>(item.rows, 1);
      const std::int64_t unit = by_rows ? row : 1;
      const std::int64_t units = by_rows ? item.rows : item.numel;
      result_.cuts[i] = {0, (units + n_ - 1) / n_ * unit, item.numel};
    }
  }

  void by_counts() {
    const std::vector<std::int64_t>& counts = geometry_.counts;
    if (counts.size() != static_cast<std::size_t>(n_)) {
      fail("expected a count for each member of the group, " + std::to_string(n_) + " in \"counts\", but found " +
           std::to_string(counts.size()));
    }
    std::vector<std::int64_t> before = {0};
    for (const std::int64_t count : counts) before.push_back(before.back() + count);
    const std::int64_t parts = before.back();
    const auto shared = std::make_shared<const std::vector<std::int64_t>>(std::move(before));
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const std::int64_t numel = items_[i].numel;
      if (numel % parts != 0) {
        fail("a buffer of " + counted(numel, "element") + " cannot be cut into " + counted(parts, "equal part") +
             ", as many as \"counts\" has together");
      }
      result_.cuts[i] = {0, numel / parts, numel, shared};
    }
  }

  std::map<std::pair<int, Dtype>, std::vector<std::size_t>> by_chunk_and_dtype() const {
    std::map<std::pair<int, Dtype>, std::vector<std::size_t>> lists;
    for (std::size_t i = 0; i < items_.size(); ++i) lists[{items_[i].chunk, items_[i].dtype}].push_back(i);
    return lists;
  }

  void flat(const std::vector<std::size_t>& members) {
    std::int64_t position = 0;
    for (const std::size_t member : members) position = place(member, position);
    const std::int64_t align = geometry_.align ? positive("align", *geometry_.align) : n_;
    close(members, 0, round_up(position, align), "align");
  }

  void buckets(const std::vector<std::size_t>& members) {
    const std::int64_t align_parameter = positive("align_parameter", geometry_.align_parameter);
    const std::int64_t align_bucket = geometry_.align_bucket ? positive("align_bucket", *geometry_.align_bucket)
                                                             : std::lcm(std::int64_t{n_}, std::int64_t{128});
    const std::int64_t size = geometry_.size ? positive("size", *geometry_.size) : limit;
    std::vector<std::size_t> open;
    std::int64_t begin = 0, end = 0;
    const auto finish = [&] {
      if (open.empty()) return;
      end = round_up(end, align_bucket);
      close(open, begin, end, "align_bucket");
      open.clear();
      begin = end;
    };
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      const bool separate = items_[*member].separate;
      if (separate) finish();
      end = place(*member, round_up(end, align_parameter));
      open.push_back(*member);
      if (separate || end - begin >= size) finish();
    }
    finish();
  }

  /// Puts a buffer at `position`; returns where it ends.
  std::int64_t place(std::size_t member, std::int64_t position) {
    const std::int64_t numel = items_[member].numel;
    if (numel > limit - position) fail("the selected parameters have more than 2^62 elements together");
    result_.position[member] = position;
    return position + numel;
  }

  void close(const std::vector<std::size_t>& members, std::int64_t begin, std::int64_t end, const char* key) {
    if (end > limit) fail("the selected parameters have more than 2^62 elements together");
    const GeometryItem& first = items_[members.front()];
    if ((end - begin) % n_ != 0) {
      fail("a " + std::string(geometry_.kind == Geometry::Kind::flat ? "buffer" : "bucket") + " of " +
           counted(end - begin, "element") + " cannot be cut into " + counted(n_, "equal slice") +
           ", one for each rank of the group; make \"" + key + "\" a multiple of n, as in \"" + key +
           "\": \"lcm(n, 128)\"");
    }
    const int bucket = static_cast<int>(result_.buckets.size());
    result_.buckets.push_back({begin, end, first.chunk, first.dtype});
    for (const std::size_t member : members) {
      result_.bucket_of[member] = bucket;
      result_.cuts[member] = {result_.position[member] - begin, (end - begin) / n_, items_[member].numel};
    }
  }

  const Geometry& geometry_;
  const std::vector<GeometryItem>& items_;
  int n_;
  Environment environment_;
  std::map<std::string, ExpressionValue, std::less<>> names_;
  GeometryLayout result_;
};

}  // namespace

const Expression& Geometry::default_align_parameter() {
  static const Expression alignment = made_once([] { return Expression(Rational(64)); });
  return alignment;
}

Interval Cut::slice(int member) const {
  if (lengths_before != nullptr) {
    const Interval part{(*lengths_before)[at(member)] * length, (*lengths_before)[at(member) + 1] * length};
    return part.empty() ? Interval{} : part;
  }
  // Far members of a long cut have nothing, and no place that 64 bits can count.
  if (length > 0 && member > (numel + offset) / length) return {};
  const std::int64_t begin = member * length - offset;
  const Interval part{std::clamp<std::int64_t>(begin, 0, numel), std::clamp<std::int64_t>(begin + length, 0, numel)};
  return part.empty() ? Interval{} : part;
}

bool operator==(const Cut& a, const Cut& b) {
  if (a.offset != b.offset || a.length != b.length || a.numel != b.numel) return false;
  if (a.lengths_before == b.lengths_before) return true;
  return a.lengths_before != nullptr && b.lengths_before != nullptr && *a.lengths_before == *b.lengths_before;
}

GeometryLayout lay_out(const Geometry& geometry, const std::vector<GeometryItem>& items, int n,
                       const Environment& environment) {
  return Layouter(geometry, items, n, environment).run();
}

}  // namespace lockstep
