// SPDX-License-Identifier: Apache-2.0
// Optimizer instances: the rule against the groups, rank for rank.
#include "src/mesh/instances.h"

#include <algorithm>
#include <vector>

#include "tests/catch.h"

using namespace lockstep;

namespace {

std::vector<std::vector<int>> groups_over(const Mesh& mesh, Axis axis) {
  return mesh.groups({{{axis, std::nullopt}}}).members;
}

/// Whether each instance is a row of neighbours among the ranks of dp and cp, in the order of Megatron's group.
bool are_rows(const Mesh& mesh, const Layout& layout) {
  for (const std::vector<int>& group : mesh.groups({{{Axis::dp, std::nullopt}, {Axis::cp, std::nullopt}}}).members) {
    // Ascending ranks are the order of the group: the faster axis counts first.
    const std::size_t row = group.size() / static_cast<std::size_t>(layout.dp_replicate);
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (mesh.coordinate(group[i], Axis::dp_replicate) != mesh.coordinate(group[i / row * row], Axis::dp_replicate))
        return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("the groups between optimizer instances agree where those of both meshes hold the same ranks") {
  int agreeing = 0, differing = 0;
  std::vector<Axis> order = {Axis::tp, Axis::cp, Axis::dp, Axis::pp, Axis::ep};
  std::sort(order.begin(), order.end());
  do {
    for (const int tp : {1, 2, 4})
      for (const int cp : {1, 2})
        for (const int ep : {1, 2, 4})
          for (const int etp : {1, 2, 4})
            for (const int pp : {1, 2}) {
              Layout layout;
              layout.tp = tp, layout.cp = cp, layout.ep = ep, layout.etp = etp, layout.pp = pp;
              layout.dp = 4, layout.dp_shard = 2, layout.dp_replicate = 2, layout.order = order;
              if (layout.world() % (etp * ep * pp) != 0 || !layout.splits_edp()) continue;
              const Mesh mesh(layout);
              if (!mesh.pipeline_groups_agree()) continue;
              const bool agree = groups_over(mesh, Axis::dp_replicate) == groups_over(mesh, Axis::edp_replicate) &&
                                 are_rows(mesh, layout);
              INFO("tp " << tp << " cp " << cp << " ep " << ep << " etp " << etp << " pp " << pp);
              CHECK(mesh::instance_groups_agree(layout) == agree);
              if (mesh::instance_groups_always_agree(layout)) CHECK(agree);
              ++(agree ? agreeing : differing);
            }
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(agreeing > 1000);
  CHECK(differing > 1000);
}
