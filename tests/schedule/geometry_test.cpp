// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/json.h"
#include "lockstep/schedule.h"
#include "src/base/at.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Geometry geometry(Geometry::Kind kind) {
  Geometry geometry;
  geometry.kind = kind;
  return geometry;
}

GeometryItem item(std::int64_t numel, std::int64_t rows = 1) {
  GeometryItem item;
  item.numel = numel;
  item.rows = rows;
  return item;
}

std::int64_t whole(const Json& json) { return std::stoll(json.text()); }

std::vector<Interval> slices(const Cut& cut, int n) {
  std::vector<Interval> all;
  for (int member = 0; member < n; ++member) all.push_back(cut.slice(member));
  return all;
}

Json read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  Diagnostics diagnostics;
  Json json = parse_json(std::make_shared<Source>(Source{file.string(), text.str()}), diagnostics);
  REQUIRE(diagnostics.empty());
  return json;
}

void check_megatron_entry(const Json& entry) {
  const bool distributed = entry.find("distributed_optimizer")->as_boolean();
  // Without the distributed optimizer nothing is padded, cut or kept apart.
  const int n = distributed ? static_cast<int>(whole(*entry.find("dp"))) : 1;
  Geometry bucket = geometry(Geometry::Kind::bucket);
  if (!entry.find("bucket_size")->is_null()) bucket.size = Expression(Rational(whole(*entry.find("bucket_size"))));
  if (!distributed) {
    bucket.align_parameter = Expression(Rational(1));
    bucket.align_bucket = Expression(Rational(1));
  } else if (entry.find("pad_buckets_for_high_nccl_busbw")->as_boolean()) {
    bucket.align_bucket = Expression::parse("lcm(n, 128, 65536)");
  }
  std::vector<std::string> names;
  std::vector<GeometryItem> items;
  for (const Json& size : entry.find("sizes")->items()) {
    names.push_back(size.items()[0].text());
    items.push_back(item(whole(size.items()[1])));
    for (const Json& shared : entry.find("shared")->items()) {
      if (distributed && shared.text() == names.back()) items.back().separate = true;
    }
  }
  const GeometryLayout layout = lay_out(bucket, items, n, {});

  const std::vector<Json>& buckets = entry.find("buckets")->items();
  REQUIRE(layout.buckets.size() == buckets.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    CHECK(layout.buckets[b].begin == whole(buckets[b].items()[0]));
    CHECK(layout.buckets[b].end == whole(buckets[b].items()[1]));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::vector<Json>& place = entry.find("params")->find(names[i])->items();
    CHECK(layout.position[i] == whole(place[0]));
    CHECK(layout.position[i] + items[i].numel == whole(place[1]));
    CHECK(layout.bucket_of[i] == whole(place[2]));
  }
  const Json* ranks = entry.find("ranks");
  if (!ranks) return;
  for (int rank = 0; rank < n; ++rank) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Json* owned = ranks->items()[at(rank)].find(names[i]);
      const Interval expected = owned ? Interval{whole(owned->items()[0]), whole(owned->items()[1])} : Interval{};
      CHECK(layout.cuts[i].slice(rank) == expected);
    }
  }
}

}  // namespace

TEST_CASE("buckets are those of Megatron-core") {
  const Json cases = read(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/schedule/megatron_geometry.json");
  CHECK(cases.items().size() == 17);
  for (const Json& entry : cases.items()) {
    INFO(write_json(entry));
    check_megatron_entry(entry);
  }
}

TEST_CASE("a parameter is cut into equal slices, the last members may get less or nothing") {
  const GeometryLayout layout = lay_out(geometry(Geometry::Kind::parameter), {item(10), item(2), item(0)}, 4, {});
  CHECK(slices(layout.cuts[0], 4) == std::vector<Interval>{{0, 3}, {3, 6}, {6, 9}, {9, 10}});
  CHECK(slices(layout.cuts[1], 4) == std::vector<Interval>{{0, 1}, {1, 2}, {}, {}});
  CHECK(slices(layout.cuts[2], 4) == std::vector<Interval>{{}, {}, {}, {}});
}

TEST_CASE("rows are cut whole") {
  const GeometryLayout layout = lay_out(geometry(Geometry::Kind::rows), {item(15, 5), item(1, 1)}, 2, {});
  CHECK(slices(layout.cuts[0], 2) == std::vector<Interval>{{0, 9}, {9, 15}});
  CHECK(slices(layout.cuts[1], 2) == std::vector<Interval>{{0, 1}, {}});
}

TEST_CASE("cuts are equal only where each member gets the same") {
  const GeometryItem whole = item(15, 5);
  const Cut equal = lay_out(geometry(Geometry::Kind::parameter), {whole}, 2, {}).cuts[0];
  const Cut rows = lay_out(geometry(Geometry::Kind::rows), {whole}, 2, {}).cuts[0];
  CHECK(equal == lay_out(geometry(Geometry::Kind::parameter), {whole}, 2, {}).cuts[0]);
  CHECK_FALSE(equal == rows);  // 8 and 7 elements, 9 and 6
  const GeometryLayout flat = lay_out(geometry(Geometry::Kind::flat), {item(4), item(4)}, 2, {});
  CHECK_FALSE(flat.cuts[0] == flat.cuts[1]);  // the first is one member's, the second the other's
}

TEST_CASE("counts give each member its parts of a parameter") {
  Geometry counts = geometry(Geometry::Kind::counts);
  counts.counts = {2, 0, 1};
  const GeometryLayout layout = lay_out(counts, {item(6), item(0), item(3)}, 3, {});
  CHECK(slices(layout.cuts[0], 3) == std::vector<Interval>{{0, 4}, {}, {4, 6}});
  CHECK(slices(layout.cuts[1], 3) == std::vector<Interval>{{}, {}, {}});
  CHECK(slices(layout.cuts[2], 3) == std::vector<Interval>{{0, 2}, {}, {2, 3}});
  CHECK(layout.cuts == lay_out(counts, {item(6), item(0), item(3)}, 3, {}).cuts);
  Geometry others = counts;
  others.counts = {2, 1, 0};
  CHECK_FALSE(layout.cuts[0] == lay_out(others, {item(6)}, 3, {}).cuts[0]);
  CHECK_FALSE(layout.cuts[0] == lay_out(geometry(Geometry::Kind::parameter), {item(6)}, 3, {}).cuts[0]);
}

TEST_CASE("counts that do not fit the group or the parameter are mistakes of the user") {
  Geometry counts = geometry(Geometry::Kind::counts);
  counts.counts = {2, 0, 1};
  const auto message = [&](std::int64_t numel, int n) {
    try {
      lay_out(counts, {item(numel)}, n, {});
    } catch (const InputError& error) {
      return error.diagnostics().front().message;
    }
    return std::string();
  };
  CHECK(message(3, 2) == "expected a count for each member of the group, 2 in \"counts\", but found 3");
  CHECK(message(1, 3) == "a buffer of 1 element cannot be cut into 3 equal parts, as many as \"counts\" has together");
  CHECK(message(4, 3) == "a buffer of 4 elements cannot be cut into 3 equal parts, as many as \"counts\" has together");
  CHECK(message(6, 3).empty());
}

TEST_CASE("flat lays parameters out in model order without gaps") {
  Geometry flat = geometry(Geometry::Kind::flat);
  const GeometryLayout layout = lay_out(flat, {item(5), item(2), item(4)}, 4, {});
  CHECK(layout.position == std::vector<std::int64_t>{0, 5, 7});
  CHECK(layout.buckets.at(0).end == 12);
  CHECK(slices(layout.cuts[0], 4) == std::vector<Interval>{{0, 3}, {3, 5}, {}, {}});
  CHECK(slices(layout.cuts[1], 4) == std::vector<Interval>{{}, {0, 1}, {1, 2}, {}});
  CHECK(slices(layout.cuts[2], 4) == std::vector<Interval>{{}, {}, {0, 2}, {2, 4}});
  flat.align = Expression::parse("2*n");
  CHECK(lay_out(flat, {item(5)}, 4, {}).buckets.at(0).end == 8);
}

TEST_CASE("chunks and dtypes are laid out apart") {
  GeometryItem later = item(3), wide = item(4);
  later.chunk = 1;
  wide.dtype = Dtype::float64;
  const GeometryLayout layout = lay_out(geometry(Geometry::Kind::bucket), {item(5), later, wide, item(7)}, 2, {});
  CHECK(layout.buckets.size() == 3);
  CHECK(layout.position == std::vector<std::int64_t>{64, 0, 0, 0});
  CHECK(layout.bucket_of[0] == layout.bucket_of[3]);
  CHECK(layout.buckets.at(static_cast<std::size_t>(layout.bucket_of[1])).chunk == 1);
  CHECK(layout.buckets.at(static_cast<std::size_t>(layout.bucket_of[2])).dtype == Dtype::float64);
}

TEST_CASE("a bucket closes after the parameter that brings its length to the size") {
  Geometry bucket = geometry(Geometry::Kind::bucket);
  bucket.size = Expression(Rational(192));
  CHECK(lay_out(bucket, {item(64), item(64), item(128)}, 2, {}).bucket_of == std::vector<int>{1, 0, 0});
  bucket.size = Expression(Rational(193));
  CHECK(lay_out(bucket, {item(64), item(64), item(128)}, 2, {}).bucket_of == std::vector<int>{0, 0, 0});
}

TEST_CASE("numbers that make no geometry are mistakes of the user") {
  Geometry bucket = geometry(Geometry::Kind::bucket);
  const auto message = [&]() -> std::string {
    try {
      lay_out(bucket, {item(5)}, 3, {});
    } catch (const InputError& error) {
      return error.diagnostics().at(0).message;
    }
    return "";
  };
  bucket.align_bucket = Expression::parse("128");
  CHECK(message() ==
        "a bucket of 128 elements cannot be cut into 3 equal slices, one for each rank of the group; make "
        "\"align_bucket\" a multiple of n, as in \"align_bucket\": \"lcm(n, 128)\"");
  bucket.align_bucket = Expression::parse("n - 3");
  CHECK(message() == "expected a positive whole number for \"align_bucket\", but \"n - 3\" is 0 in a group of 3");
  bucket.align_bucket = Expression(Rational(1, 2));
  CHECK(message() == "expected a positive whole number for \"align_bucket\", but found 1/2 in a group of 3");
  bucket.align_bucket.reset();
  bucket.size = Expression::parse("nosuch");
  CHECK_THROWS_AS(lay_out(bucket, {item(5)}, 3, {}), ExpressionError);
}
