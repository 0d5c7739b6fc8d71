// SPDX-License-Identifier: Apache-2.0
// Numbers of ranks against the coordinates that they stand for, rank for rank.
#include "lockstep/coordinate_index.h"

#include <algorithm>
#include <map>
#include <vector>

#include "tests/cases.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

std::vector<int> coordinates(const Mesh& mesh, const std::vector<Axis>& axes, int rank) {
  std::vector<int> result;
  for (const Axis axis : axes) result.push_back(mesh.coordinate(rank, axis));
  return result;
}

/// Whether ranks of one number agree on the axes, and the first one of each is the lowest.
bool holds(const Mesh& mesh, const std::vector<Axis>& axes) {
  const CoordinateIndex index(mesh, axes);
  std::map<int, int> first;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const int number = index.of(rank);
    const int lowest = first.emplace(number, rank).first->second;
    if (number < 0 || number >= index.size() || coordinates(mesh, axes, rank) != coordinates(mesh, axes, lowest))
      return false;
  }
  int before = -1;
  for (const auto& [number, rank] : first) {
    if (index.first_rank(number) != rank || rank <= before) return false;
    before = rank;
  }
  // An expert mesh larger than the world has numbers without a rank.
  const Layout& layout = mesh.layout();
  const bool too_few_ranks = layout.etp * layout.ep * layout.pp > layout.world();
  return too_few_ranks ? index.size() < 2 * mesh.world() : static_cast<int>(first.size()) == index.size();
}

}  // namespace

TEST_CASE("without axes every rank has one number") {
  Layout layout;
  layout.tp = 3, layout.dp = layout.dp_shard = 5;
  const Mesh mesh(layout);
  CHECK(CoordinateIndex().size() == 1);
  CHECK(CoordinateIndex(mesh, {Axis::cp, Axis::pp}).size() == 1);  // of one rank each
  CHECK(CoordinateIndex(mesh, {}).of(14) == 0);
}

TEST_CASE("there are as many numbers as the axes of a mesh have coordinates, however large the others are") {
  Layout layout;
  layout.tp = 2, layout.cp = 1000, layout.dp = 900, layout.dp_shard = 300, layout.dp_replicate = 3, layout.pp = 4;
  const Mesh mesh(layout);
  CHECK(CoordinateIndex(mesh, {Axis::pp}).size() == 4);
  CHECK(CoordinateIndex(mesh, {Axis::pp, Axis::tp}).size() == 8);
  CHECK(CoordinateIndex(mesh, {Axis::tp, Axis::dp_replicate, Axis::tp}).size() == 6);
  CHECK(CoordinateIndex(mesh, {Axis::dp, Axis::dp_shard}).size() == 900);
}

TEST_CASE("ranks of one number agree on axes of both meshes, in every order") {
  std::size_t looked_at = 0;
  std::vector<Axis> order = {Axis::tp, Axis::cp, Axis::dp, Axis::pp, Axis::ep};
  std::sort(order.begin(), order.end());
  const std::vector<std::vector<Axis>> several = {
      {Axis::pp},
      {Axis::pp, Axis::tp},
      {Axis::dp_replicate, Axis::cp},
      {Axis::tp, Axis::etp},
      {Axis::edp, Axis::pp, Axis::tp},
      {Axis::ep, Axis::cp},
      {Axis::pp, Axis::edp_shard, Axis::dp_shard},
      {Axis::tp, Axis::edp_replicate},
  };
  do {
    for (const int tp : {1, 2, 3})
      for (const int cp : {1, 5})
        for (const int ep : {1, 2, 3})
          for (const int etp : {1, 2, 5})
            for (const int pp : {1, 2}) {
              Layout layout;
              layout.tp = tp, layout.cp = cp, layout.ep = ep, layout.etp = etp, layout.pp = pp;
              layout.dp = 6, layout.dp_shard = 3, layout.dp_replicate = 2, layout.order = order;
              if (layout.world() % (etp * ep * pp) != 0 || !layout.splits_edp()) continue;
              if (!lockstep::test::is_tried(looked_at++)) continue;
              const Mesh mesh(layout);
              INFO("tp " << tp << " cp " << cp << " ep " << ep << " etp " << etp << " pp " << pp);
              CHECK(std::all_of(several.begin(), several.end(), [&](const auto& axes) { return holds(mesh, axes); }));
            }
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(looked_at > 1000);
}

TEST_CASE("an expert mesh that is larger than the world needs no larger table than the ranks do") {
  int looked_at = 0;
  for (const int ep : {2, 3, 1000, 1 << 20})
    for (const int etp : {1, 2, 7, 1 << 10})
      for (const int pp : {1, 3}) {
        for (const int dp : {1, 4}) {
          Layout layout;
          layout.tp = 2, layout.pp = pp, layout.dp = layout.dp_shard = dp;
          layout.ep = etp == 1 << 10 ? ep % (1 << 10) + 1 : ep, layout.etp = etp;
          if (layout.etp * layout.ep * layout.pp <= layout.world()) continue;
          const Mesh mesh(layout);
          INFO("ep " << layout.ep << " etp " << etp << " pp " << pp << " dp " << dp);
          ++looked_at;
          CHECK(holds(mesh, {Axis::ep, Axis::pp}));
          CHECK(holds(mesh, {Axis::etp, Axis::tp, Axis::edp}));
          CHECK(holds(mesh, {Axis::pp, Axis::ep, Axis::etp, Axis::dp}));
        }
      }
  CHECK(looked_at > 20);
}
