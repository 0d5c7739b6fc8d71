// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/sample.h"

#include <algorithm>

#include "lockstep/numeric.h"
#include "src/numeric/host_tasks.h"
#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

numeric::Component component(std::size_t members, std::int64_t numel) {
  numeric::Component result;
  result.nodes.resize(members);
  result.numel = numel;
  return result;
}

struct Case {
  numeric::Components components;
  std::vector<numeric::ComponentCost> costs;

  void add(int count, std::size_t members, std::int64_t numel, double entries) {
    for (int i = 0; i < count; ++i) {
      components.list.push_back(component(members, numel));
      costs.push_back({entries, entries});
    }
  }
  numeric::Sample choose(std::uint64_t seed = 0, bool force_all = false) const {
    return numeric::choose_sample(components, costs, force_all, seed);
  }
  double entries(const numeric::Sample& sample) const {
    double sum = 0;
    for (std::size_t i = 0; i < costs.size(); ++i) sum += sample.chosen[i] ? costs[i].entries : 0;
    return sum;
  }
};

}  // namespace

TEST_CASE("whatever stays within both limits is replayed whole") {
  Case small;
  small.add(100, 2, 1000, 50);
  const numeric::Sample sample = small.choose();
  CHECK_FALSE(sample.sampled);
  CHECK(sample.left_out == 0);
  CHECK(std::count(sample.chosen.begin(), sample.chosen.end(), 1) == 100);
  CHECK(sample.cost == 100. * 1000 * 50);
}

TEST_CASE("a sample plans a bounded number of entries, of each kind some, and others with another seed") {
  Case large;
  large.add(3000, 64, 64, 1e4);
  large.add(5, 8, 32, 1e4);
  large.add(2, 4, 32, 1e4);
  const numeric::Sample sample = large.choose();
  CHECK(sample.sampled);
  CHECK(large.entries(sample) <= numeric::entry_limit);
  CHECK(large.entries(sample) > 0.9 * numeric::entry_limit);
  CHECK(std::count(sample.chosen.begin() + 3000, sample.chosen.end(), 1) == 7);
  CHECK(sample.left_out == static_cast<std::size_t>(std::count(sample.chosen.begin(), sample.chosen.end(), 0)));
  CHECK(large.choose().chosen == sample.chosen);
  CHECK(large.choose(1).chosen != sample.chosen);
  CHECK_FALSE(large.choose(0, true).sampled);
  CHECK(large.choose(0, true).left_out == 0);
}

TEST_CASE("a sample's least elements cost a bounded amount") {
  Case large;
  large.add(10'000, 2, 1 << 20, 1e3);  // 640 elements of each would be 6.4e9 element-steps
  const numeric::Sample sample = large.choose();
  CHECK(sample.sampled);
  const auto chosen = static_cast<double>(std::count(sample.chosen.begin(), sample.chosen.end(), 1));
  CHECK(chosen * 1e3 * (4 * numeric::sample_reach + numeric::sample_block) <= numeric::cost_limit / 2);
  CHECK(chosen > 1000);
}

TEST_CASE("where nothing fits into a sample the component with the smallest plan is taken") {
  Case huge;
  huge.add(1, 64, 1000, 3 * numeric::entry_limit);
  huge.add(1, 64, 1000, 2 * numeric::entry_limit);
  CHECK(huge.choose().chosen == std::vector<char>{0, 1});
}

TEST_CASE("the tasks of a sample cost no more than the limit, whatever the components are") {
  Case large;
  large.add(400, 1024, 1 << 24, 1e4);
  const numeric::Sample sample = large.choose();
  std::vector<numeric::Prepared> prepared(large.costs.size());
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    prepared[i].skipped = !sample.chosen[i];
    prepared[i].choice.arithmetic = Arithmetic::float32;
    prepared[i].cost_per_element = large.costs[i].per_element;
    for (std::int64_t cut = 0; cut <= 1 << 24; cut += 1 << 12) prepared[i].cuts.push_back(cut);
  }
  double cost = 0;
  for (const numeric::Task& task : numeric::make_tasks(large.components, prepared, sample, 0)) cost += task.cost;
  CHECK(cost > numeric::cost_limit / 10);
  CHECK(cost <= 1.5 * numeric::cost_limit);
}

TEST_CASE("a component's cost is that of its plan, or a little more") {
  Layout layout = dp(4);
  layout.ep = 2;
  layout.etp = 1;
  Parameter expert = parameter("e", {8});
  expert.shard = {{Axis::ep, 0, false}};
  expert.dispatch = {Axis::ep};
  const Schedule built =
      schedule_of(layout, {expert, parameter("w", {8})}, {backwards(), collective(Op::all_reduce, "ar", Axis::edp)});
  const Timeline timeline = walk(built);
  const numeric::Components components = numeric::find_components(built, timeline);
  const numeric::Planner planner(built, timeline, components);
  REQUIRE(components.list.size() == 3);
  for (const numeric::Component& each : components.list) {
    const numeric::Plan plan = planner.plan(each);
    const numeric::ComponentCost cost = planner.cost(each);
    double entries = 0;
    for (const numeric::PlannedEvent& event : plan.events)
      entries += static_cast<double>(std::max(event.nodes.size(), event.terms.size()));
    for (const numeric::PieceUse& piece : plan.pieces) entries += static_cast<double>(piece.expected[0].terms.size());
    CHECK(plan.cost_per_element == entries);
    CHECK(cost.per_element >= plan.cost_per_element);
    CHECK(cost.per_element <= 1.5 * plan.cost_per_element);
  }
}
