// SPDX-License-Identifier: Apache-2.0
#include "src/report/rank_grid.h"

#include "tests/catch.h"

using namespace lockstep;

namespace {

Mesh mesh_of(int tp, int dp, int pp) {
  Layout layout;
  layout.tp = tp;
  layout.dp = layout.dp_shard = dp;
  layout.pp = pp;
  return Mesh(layout);
}

report::GridPlan plan_all(const Mesh& mesh, int must = 0, std::size_t most = 8) {
  return report::plan_grid(mesh, std::vector<bool>(static_cast<std::size_t>(mesh.world()), true), must, most);
}

report::GridCell held(const std::string& formula) {
  report::GridCell cell;
  cell.formula = formula;
  cell.held = true;
  return cell;
}

}  // namespace

TEST_CASE("a grid is drawn as in the issue, to the character") {
  const Mesh two_by_two = mesh_of(1, 2, 2);
  std::vector<std::vector<std::vector<report::GridCell>>> cells = {
      {{held("g0"), held("g3 + (g0+g1)/2")}, {held("(g2+g3)/2"), held("g3")}}};
  cells[0][0][1].owner = cells[0][0][1].wrong = true;
  cells[0][1][1].stale = true;
  CHECK(report::draw_grid("after embedding_all_reduce", plan_all(two_by_two), cells, report::Style(false), 120) ==
        "after embedding_all_reduce\n"
        "       dp 0        dp 1\n"
        "pp 0   g0          g3 + (g0+g1)/2 * ✗\n"
        "pp 1   (g2+g3)/2   g3 ~\n");
}

TEST_CASE("further axes stand one below the other with a title") {
  const Mesh cube = mesh_of(2, 2, 2);
  const report::GridPlan plan = plan_all(cube);
  REQUIRE(plan.blocks.size() == 2);
  std::vector<std::vector<std::vector<report::GridCell>>> cells(2, {{held("a"), held("b")}, {held("c"), held("d")}});
  CHECK(report::draw_grid("title", plan, cells, report::Style(false), 120) ==
        "title\n"
        "tp 0   dp 0   dp 1\n"
        "pp 0   a      b\n"
        "pp 1   c      d\n"
        "tp 1   dp 0   dp 1\n"
        "pp 0   a      b\n"
        "pp 1   c      d\n");
}

TEST_CASE("columns that are alike are one where the table is too wide") {
  const report::GridPlan plan = plan_all(mesh_of(1, 4, 2));
  const report::GridCell one = held("(g0+g1)/2"), other = held("g3");
  const std::vector<std::vector<std::vector<report::GridCell>>> cells = {
      {{one, one, other, one}, {one, one, one, one}}};
  CHECK(report::draw_grid("t", plan, cells, report::Style(false), 52) ==
        "t\n"
        "       dp 0        dp 1        dp 2        dp 3\n"
        "pp 0   (g0+g1)/2   (g0+g1)/2   g3          (g0+g1)/2\n"
        "pp 1   (g0+g1)/2   (g0+g1)/2   (g0+g1)/2   (g0+g1)/2\n");
  CHECK(report::draw_grid("t", plan, cells, report::Style(false), 51) ==
        "t\n"
        "       dp 0-1      dp 2        dp 3\n"
        "pp 0   (g0+g1)/2   g3          (g0+g1)/2\n"
        "pp 1   (g0+g1)/2   (g0+g1)/2   (g0+g1)/2\n");
}

TEST_CASE("columns between which some are not shown are not told as one") {
  const report::GridPlan plan = plan_all(mesh_of(1, 12, 1), 11, 3);
  const std::vector<std::vector<std::vector<report::GridCell>>> cells = {{{held("g0"), held("g0"), held("g0")}}};
  CHECK(report::draw_grid("t", plan, cells, report::Style(false), 22) ==
        "t\n"
        "       dp 0-1   dp 11\n"
        "pp 0   g0       g0\n");
}

TEST_CASE("a table that is too wide goes on below") {
  const report::GridPlan plan = plan_all(mesh_of(1, 3, 1));
  const std::vector<std::vector<std::vector<report::GridCell>>> cells = {
      {{held("g0.0 + g0.1"), held("g1"), held("g2")}}};
  CHECK(report::draw_grid("t", plan, cells, report::Style(false), 25) ==
        "t\n"
        "       dp 0          dp 1\n"
        "pp 0   g0.0 + g0.1   g1\n"
        "       dp 2\n"
        "pp 0   g2\n");
  // One column at least, however wide.
  CHECK(report::draw_grid("t", plan, cells, report::Style(false), 1) ==
        "t\n"
        "       dp 0\n"
        "pp 0   g0.0 + g0.1\n"
        "       dp 1\n"
        "pp 0   g1\n"
        "       dp 2\n"
        "pp 0   g2\n");
}

TEST_CASE("rows are pipeline stages and columns dp, whatever the ranks' order") {
  const report::GridPlan plan = plan_all(mesh_of(1, 2, 2));
  CHECK(plan.rows == std::vector<std::string>{"pp 0", "pp 1"});
  CHECK(plan.columns == std::vector<std::string>{"dp 0", "dp 1"});
  CHECK(plan.blocks[0].ranks == std::vector<std::vector<int>>{{0, 1}, {2, 3}});
}

TEST_CASE("without dp or pp another axis takes its place") {
  const report::GridPlan plan = plan_all(mesh_of(2, 2, 1));
  CHECK(plan.rows == std::vector<std::string>{"tp 0", "tp 1"});
  CHECK(plan.columns == std::vector<std::string>{"dp 0", "dp 1"});
  CHECK(plan.blocks.size() == 1);
  CHECK(plan_all(mesh_of(2, 1, 1)).columns == std::vector<std::string>{"tp 0", "tp 1"});
}

TEST_CASE("stages that do not hold the parameter are left out") {
  const Mesh four_stages = mesh_of(1, 2, 4);
  std::vector<bool> holds(8, false);
  holds[0] = holds[1] = holds[6] = holds[7] = true;
  const report::GridPlan plan = report::plan_grid(four_stages, holds, 0, 8);
  CHECK(plan.rows == std::vector<std::string>{"pp 0", "pp 3"});
}

TEST_CASE("of many ranks the first are shown, and the one that matters, and what is missing is said") {
  const report::GridPlan plan = plan_all(mesh_of(1, 128, 16), 128 * 15 + 100);
  CHECK(plan.rows.size() == 8);
  CHECK(plan.columns.size() == 8);
  CHECK(plan.columns.back() == "dp 100");
  CHECK(plan.rows.back() == "pp 15");
  CHECK(plan.omitted == "8 more pp rows, 120 more dp columns");
}

TEST_CASE("a rank that does not hold the parameter is a dot") {
  const Mesh two_by_two = mesh_of(1, 2, 2);
  std::vector<std::vector<std::vector<report::GridCell>>> cells = {
      {{held("g0"), report::GridCell{}}, {held("g2"), held("g3")}}};
  CHECK(report::draw_grid("t", plan_all(two_by_two), cells, report::Style(false), 120) ==
        "t\n       dp 0   dp 1\npp 0   g0     ·\npp 1   g2     g3\n");
}

TEST_CASE("the legend explains the marks that occur") {
  report::GridCell cell = held("g0");
  CHECK(report::grid_legend({cell}).empty());
  cell.stale = true;
  CHECK(report::grid_legend({cell}) == "~ stale: another rank owns it");
}
