// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/repair_order.h"

#include <algorithm>
#include <functional>

#include "lockstep/expression.h"
#include "tests/catch.h"

using namespace lockstep;
using diagnosis::Candidate;
using diagnosis::FoundRepair;
using diagnosis::is_restored;
using diagnosis::is_strange;
using diagnosis::ranks_before;

namespace {

Candidate candidate_of(Candidate::Kind kind, const Edit& edit) {
  Candidate candidate;
  candidate.kind = kind;
  candidate.step = edit.step.name;
  candidate.edit = edit;
  return candidate;
}

FoundRepair repair_of(const std::vector<Edit>& edits, Candidate::Kind kind = Candidate::Kind::drop) {
  FoundRepair repair;
  repair.sizes = repair.right_sizes = 3;
  for (const Edit& edit : edits) repair.edits.push_back(candidate_of(kind, edit));
  return repair;
}

/// An edit that inserts a step with these keys.
Edit inserted(const std::string& name, Op op, const std::string& by, const std::string& beside) {
  Step step;
  step.name = name;
  step.op = op;
  step.by = Expression::parse(by);
  step.keys = {"name", "op", "by"};
  return Edit::insert(step, beside, true);
}

Edit set_to(const std::string& step, std::string_view key, const std::string& value) {
  Step values;
  values.by = Expression::parse(value);
  values.buffer = value;
  values.keys = {key};
  return Edit::set(step, values);
}

/// Those that do what one before does stand behind.
std::size_t kinds_of(const std::vector<std::vector<Edit>>& edits) {
  std::vector<FoundRepair> repairs;
  repairs.reserve(edits.size());
  for (const std::vector<Edit>& one : edits) repairs.push_back(repair_of(one));
  const std::vector<FoundRepair> distinct = diagnosis::distinct_repairs(repairs);
  return static_cast<std::size_t>(
      std::count_if(distinct.begin(), distinct.end(), [](const FoundRepair& one) { return !one.is_alike; }));
}

}  // namespace

TEST_CASE("of two repairs the first thing in which one is worse counts, whatever comes behind it") {
  const FoundRepair best = repair_of({Edit::drop("a")});
  const std::vector<std::function<void(FoundRepair&)>> worse = {
      [](FoundRepair& repair) { repair.other_owners = true; },
      [](FoundRepair& repair) { repair.edits.push_back(candidate_of(Candidate::Kind::drop, Edit::drop("b"))); },
      [](FoundRepair& repair) { repair.right_sizes -= 1; },
      [](FoundRepair& repair) { repair.leaves_idle = true; },
      [](FoundRepair& repair) { repair.added_bytes = 8; },
      [](FoundRepair& repair) { repair.distance = 1; },
      [](FoundRepair& repair) {
        repair.edits.push_back(candidate_of(Candidate::Kind::insert, inserted("s", Op::scale, "2", "a")));
        repair.edits.back().is_with_previous = true;
      },
      [](FoundRepair& repair) { repair.acts_elsewhere = true; },
      [](FoundRepair& repair) { repair.touches_right = true; },
      [](FoundRepair& repair) { repair.factor_place = 1; },
      [](FoundRepair& repair) { repair.counts_otherwise = true; },
      [](FoundRepair& repair) { repair.leaves_loop = true; },
      [](FoundRepair& repair) { repair.place = 1; },
      [](FoundRepair& repair) { repair.edits.front().edit.step.name = "longer"; },
  };
  for (std::size_t at = 0; at < worse.size(); ++at) {
    INFO(at);
    FoundRepair first = best, others = best;
    worse[at](first);
    for (std::size_t behind = at + 1; behind < worse.size(); ++behind) worse[behind](others);
    CHECK(ranks_before(best, first));
    CHECK(ranks_before(others, first));
    CHECK_FALSE(ranks_before(first, others));
  }
  CHECK_FALSE(ranks_before(best, best));
  // What is restored comes before others that leave no step idle, whatever comes behind it.
  FoundRepair restored = best;
  restored.edits.front().kind = Candidate::Kind::restore;
  for (std::size_t behind = 4; behind < worse.size(); ++behind) {
    if (behind != 5 && behind != 6) worse[behind](restored);  // at another distance, or with a new step, it is none
  }
  CHECK(ranks_before(restored, best));
  restored.right_sizes -= 1;
  CHECK(ranks_before(restored, best));
  restored.leaves_idle = true;
  CHECK(ranks_before(best, restored));
}

TEST_CASE("what a repair saves counts among equals, and of one that ends the backward nobody counts what is sent") {
  FoundRepair plain = repair_of({Edit::drop("a")}), saves = plain, ends = plain, far = plain;
  saves.added_bytes = -8;
  CHECK(ranks_before(saves, plain));
  far.distance = saves.distance = 1;
  CHECK(ranks_before(plain, saves));
  ends.added_bytes = 8;
  CHECK(ranks_before(far, ends));
  ends.ends_backward = true;
  CHECK(ranks_before(ends, far));
  // The places of which more were tried are not more that are wrong.
  FoundRepair often = plain;
  often.sizes = often.right_sizes = 8;
  CHECK_FALSE(ranks_before(plain, often));
}

TEST_CASE("what hands elements to others or takes a norm away is strange, unless the framework has it so") {
  FoundRepair repair = repair_of({Edit::drop("a")});
  CHECK_FALSE(is_strange(repair));
  repair.loses_norm = true;
  CHECK(is_strange(repair));
  repair.loses_norm = false;
  repair.other_owners = true;
  CHECK(is_strange(repair));
  CHECK_FALSE(is_restored(repair));
  repair.edits.front().kind = Candidate::Kind::restore;
  CHECK(is_strange(repair));  // what a file has added may be what it asks for
  repair.edits.front().edit = set_to("a", "over", "dp");
  CHECK_FALSE(is_strange(repair));
  CHECK(is_restored(repair));
  repair.edits.push_back(candidate_of(Candidate::Kind::drop, Edit::drop("b")));
  CHECK_FALSE(is_restored(repair));
  repair.said_again = 1;  // what goes with it
  CHECK(is_restored(repair));
}

TEST_CASE("edits that go together count as one") {
  FoundRepair repair = repair_of({Edit::drop("a"), Edit::drop("b"), Edit::drop("c")});
  CHECK(repair.count() == 3);
  repair.edits[2].is_with_previous = true;
  CHECK(repair.count() == 2);
}

TEST_CASE("how far an edit is from what a framework has") {
  const auto distance = [](Candidate::Kind kind, const Edit& edit) {
    return diagnosis::distance_of(candidate_of(kind, edit));
  };
  const Edit drop = Edit::drop("a");
  CHECK(distance(Candidate::Kind::restore, drop) == 0);
  const int elsewhere = distance(Candidate::Kind::drop, drop), changed = distance(Candidate::Kind::factor, drop),
            added = distance(Candidate::Kind::duplicate, drop);
  CHECK((0 < elsewhere && elsewhere < changed && changed < added));
  CHECK(distance(Candidate::Kind::move, Edit::move("a", "b", true)) == elsewhere);
  CHECK(distance(Candidate::Kind::insert, inserted("s", Op::scale, "2", "a")) == added);
  CHECK(distance(Candidate::Kind::insert, inserted("w", Op::wait, "2", "a")) == elsewhere);
  for (const Candidate::Kind kind : {Candidate::Kind::group, Candidate::Kind::reduction, Candidate::Kind::timing})
    CHECK(distance(kind, set_to("a", "buffer", "b")) == changed);
  Step timing;
  timing.keys = {"async"};
  CHECK(distance(Candidate::Kind::timing, Edit::set("a", timing)) == added);
  CHECK(distance(Candidate::Kind::parameters, Edit::set("a", {}, {"params"})) == changed);
  CHECK(distance(Candidate::Kind::parameters, Edit::set("a", {}, {"params", "count"})) == added);
  CHECK(distance(Candidate::Kind::operation, Edit::set("a", {}, {"over", "geometry"})) == changed);
  timing.async = true;
  CHECK(distance(Candidate::Kind::timing, Edit::set("a", timing)) == changed);
}

TEST_CASE("repairs that do the same to the same step are one kind, and so are steps that are inserted elsewhere") {
  CHECK(kinds_of({{inserted("s", Op::scale, "2", "a")}, {inserted("t", Op::scale, "1/2", "b")}}) == 1);
  CHECK(kinds_of({{inserted("s", Op::scale, "2", "a")}, {inserted("s", Op::zero, "2", "a")}}) == 2);
  CHECK(kinds_of({{set_to("a", "by", "2")}, {set_to("a", "by", "3")}}) == 1);
  CHECK(kinds_of({{set_to("a", "by", "2")}, {set_to("b", "by", "2")}}) == 2);
  CHECK(kinds_of({{set_to("a", "by", "2")}, {set_to("a", "buffer", "2")}}) == 2);
  CHECK(kinds_of({{set_to("a", "geometry.align", "2")}, {set_to("a", "geometry.kind", "2")}}) == 1);
  CHECK(kinds_of({{Edit::set("a", {}, {"by"})}, {Edit::set("a", {}, {"when"})}}) == 2);
  CHECK(kinds_of({{Edit::move("a", "b", true)}, {Edit::move("a", "c", false)}}) == 1);
  CHECK(kinds_of({{Edit::drop("a")}, {Edit::duplicate("a")}, {Edit::drop("b")}, {Edit::drop("a", "0")}}) == 4);
  CHECK(kinds_of({{Edit::drop("a")}, {Edit::drop("a"), Edit::drop("b")}}) == 2);
  // The best stays, and those that do stay in their order.
  const std::vector<FoundRepair> kept = diagnosis::distinct_repairs(
      {repair_of({set_to("b", "by", "2")}), repair_of({Edit::drop("a")}), repair_of({set_to("b", "by", "3")})});
  REQUIRE(kept.size() == 3);
  CHECK(kept[2].is_alike);
  CHECK(kept[2].edits.front().edit.values.by->text() == "3");
  CHECK(kept[0].edits.front().edit.values.by->text() == "2");
  CHECK(kept[1].edits.front().edit.action == Edit::Action::drop);
}
