// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;
using Kind = Outcome::Kind;

namespace {

std::vector<Op> ops(const Timeline& timeline) {
  std::vector<Op> result;
  for (const Event& event : timeline.events) result.push_back(event.op);
  return result;
}

std::string message_of(const Schedule& schedule) {
  try {
    walk(schedule);
  } catch (const InputError& error) {
    return error.diagnostics().front().message;
  }
  return "";
}

}  // namespace

TEST_CASE("a collective happens once for its group, when its last member arrives") {
  const Schedule s =
      schedule_of(dp(3), {parameter("w", {6})}, {backwards(), collective(Op::all_reduce, "sync", Axis::dp)});
  const Timeline timeline = walk(s);
  CHECK(timeline.outcome.kind == Kind::complete);
  CHECK(ops(timeline) == std::vector<Op>{Op::backward, Op::backward, Op::backward, Op::all_reduce});
  REQUIRE(timeline.events.back().calls.size() == 3);
  CHECK(timeline.events.back().calls[2].rank == 2);
  CHECK(timeline.step_ends == std::vector<std::size_t>{4});
}

TEST_CASE("every iteration of each runs, in every optimizer step") {
  const Schedule s = schedule_of(dp(1), {parameter("w", {6})}, {backwards()}, 3, 2);
  const Timeline timeline = walk(s);
  REQUIRE(timeline.events.size() == 6);
  CHECK(timeline.events[4].optimizer_step == 1);
  CHECK(timeline.events[4].micro_batch == 1);
  CHECK(timeline.step_ends == std::vector<std::size_t>{3, 6});
}

TEST_CASE("only what stands in each has a micro-batch") {
  const Schedule s =
      schedule_of(dp(2), {parameter("w", {6})},
                  {step(Op::zero, "zero"), backwards(), collective(Op::all_reduce, "mean", Axis::dp)}, 2);
  for (const Event& event : walk(s).events) CHECK((event.micro_batch >= 0) == (event.op == Op::backward));
}

TEST_CASE("a rank that waited goes on at the time at which the last member comes") {
  Step early = collective(Op::all_reduce, "early", Axis::dp), late = collective(Op::all_reduce, "late", Axis::dp);
  Step after = step(Op::scale, "after");
  after.by = Expression::parse("2");
  early.only = after.only = {{Axis::dp, {0}}};
  late.only = {{Axis::dp, {1}}};
  const Timeline timeline = walk(schedule_of(dp(2), {parameter("w", {6})}, {early, after, late}));
  CHECK(timeline.outcome.kind == Kind::complete);
  REQUIRE(ops(timeline) == std::vector<Op>{Op::all_reduce, Op::scale});
  CHECK(timeline.events[1].time == timeline.events[0].time);
}

TEST_CASE("a rank on which the selectors match nothing does not call") {
  Layout layout;
  layout.pp = 2;
  Parameter everywhere = parameter("a", {4});
  everywhere.stage = std::nullopt;
  const Schedule s =
      schedule_of(layout, {everywhere, parameter("b", {4})}, {collective(Op::all_reduce, "both", Axis::pp)});
  // Stage 0 brings a and b, stage 1 only a: they meet, and do not agree.
  CHECK(walk(s).outcome.kind == Kind::invalid_collective);
  Step only_b = collective(Op::all_reduce, "first stage", Axis::pp);
  only_b.params = Selectors({"b"});
  // Stage 1 has no b, so it does not call, and stage 0 waits for it.
  const Schedule other = schedule_of(layout, {everywhere, parameter("b", {4})}, {only_b});
  const Timeline timeline = walk(other);
  CHECK(timeline.outcome.kind == Kind::deadlock);
  CHECK(timeline.outcome.stuck[0].for_ranks == std::vector<int>{1});
}

TEST_CASE("a member that never comes leaves the others stuck, by name") {
  const Schedule s =
      schedule_of(dp(2), {parameter("w", {6})}, {when(collective(Op::all_reduce, "sync", Axis::dp), "rank.dp == 0")});
  const Timeline timeline = walk(s);
  CHECK(timeline.outcome.kind == Kind::deadlock);
  REQUIRE(timeline.outcome.stuck.size() == 1);
  CHECK(timeline.outcome.stuck[0].rank == 0);
  CHECK(timeline.outcome.stuck[0].waits_in == "sync");
  CHECK(timeline.outcome.stuck[0].for_ranks == std::vector<int>{1});
  CHECK(timeline.owned.empty());
}

TEST_CASE("calls of one group meet in the order in which each member makes them, whatever their steps") {
  const Schedule s = schedule_of(dp(2), {parameter("w", {6})},
                                 {when(collective(Op::all_reduce, "first", Axis::dp), "rank.dp == 0"),
                                  when(collective(Op::all_reduce, "second", Axis::dp), "rank.dp == 1")});
  const Timeline timeline = walk(s);
  CHECK(timeline.outcome.kind == Kind::complete);
  REQUIRE(timeline.events.size() == 1);
  CHECK(timeline.events[0].calls[0].step->name == "first");
  CHECK(timeline.events[0].calls[1].step->name == "second");
}

TEST_CASE("what meets must agree in operation, reduction and sizes") {
  const auto why = [](const Step& a, const Step& b) {
    const Schedule s = schedule_of(dp(2), {parameter("w", {6}), parameter("v", {5})},
                                   {when(a, "rank.dp == 0"), when(b, "rank.dp == 1")});
    const Timeline timeline = walk(s);
    CHECK(timeline.outcome.kind == Kind::invalid_collective);
    REQUIRE(timeline.outcome.member_calls.size() == 2);
    CHECK(timeline.outcome.member_calls[1].with == std::vector<int>{0});
    return timeline.outcome.why;
  };
  const Step sum = collective(Op::all_reduce, "a", Axis::dp);
  Step average = collective(Op::all_reduce, "b", Axis::dp);
  average.reduction = Reduction::average;
  CHECK(why(sum, average) == "sum meets avg");
  CHECK(why(sum, collective(Op::all_gather, "b", Axis::dp)) == "different operations meet");
  Step only_w = collective(Op::all_reduce, "a", Axis::dp), only_v = collective(Op::all_reduce, "b", Axis::dp);
  only_w.params = Selectors({"w"});
  only_v.params = Selectors({"v"});
  CHECK(why(only_w, only_v) == "parameter 1 differs in size");
  CHECK(why(sum, only_v) == "the members bring different numbers of parameters");
  Step even = collective(Op::reduce_scatter, "a", Axis::dp), flat = collective(Op::reduce_scatter, "b", Axis::dp);
  flat.geometry.own().kind = Geometry::Kind::flat;
  CHECK(why(even, flat) == "the members cut the parameters differently");
  Step to_first = collective(Op::broadcast, "a", Axis::dp), to_last = collective(Op::broadcast, "b", Axis::dp);
  to_first.root = Root{0, {}};
  to_last.root = Root{1, {}};
  CHECK(why(to_first, to_last) == "the members name different roots");
}

TEST_CASE("of calls that cannot meet it is told what each member brings") {
  Step average = collective(Op::all_reduce, "a", Axis::dp), from_last = collective(Op::broadcast, "b", Axis::dp);
  average.reduction = Reduction::average;
  from_last.params = Selectors({"v"});
  from_last.root = Root{1, {}};
  const Timeline timeline = walk(schedule_of(dp(2), {parameter("w", {6}), parameter("v", {5})},
                                             {when(average, "rank.dp == 0"), when(from_last, "rank.dp == 1")}));
  REQUIRE(timeline.outcome.member_calls.size() == 2);
  CHECK(timeline.outcome.member_calls[0].brings == "all_reduce (avg) of 2 parameters, 11 elements, float32");
  CHECK(timeline.outcome.member_calls[1].brings == "broadcast of 1 parameter, 5 elements, float32, root 1");
}

TEST_CASE("a reduce-scatter narrows ownership and an all-gather undoes it") {
  const Schedule s = schedule_of(
      dp(2), {parameter("w", {5})},
      {collective(Op::reduce_scatter, "scatter", Axis::dp), collective(Op::all_gather, "gather", Axis::dp)});
  const Timeline timeline = walk(s);
  REQUIRE(timeline.ownership.size() == 4);
  CHECK(timeline.ownership[0].owned == Intervals{{0, 3}});
  CHECK(timeline.ownership[1].owned == Intervals{{3, 5}});
  CHECK(timeline.ownership[2].owned == Intervals{{0, 5}});
  CHECK(timeline.owned[0][1][0] == Intervals{{0, 5}});
  CHECK(timeline.events[1].cuts == timeline.events[0].cuts);
}

TEST_CASE("ownership is whole again at the start of each optimizer step") {
  const Schedule s = schedule_of(dp(2), {parameter("w", {4})},
                                 {when(collective(Op::reduce_scatter, "scatter", Axis::dp), "step == 0")}, 1, 2);
  const Timeline timeline = walk(s);
  CHECK(timeline.owned[0][0][0] == Intervals{{0, 2}});
  CHECK(timeline.owned[1][0][0] == Intervals{{0, 4}});
  CHECK(timeline.family[0][0] == timeline.family[0][1]);
  CHECK(timeline.family[1][0] != timeline.family[1][1]);
}

TEST_CASE("a reduce-scatter of what is owned cuts that, and its gather gives that back") {
  Layout layout = dp(4);
  layout.dp_shard = 2;
  layout.dp_replicate = 2;
  Step inner = collective(Op::reduce_scatter, "replicate", Axis::dp_replicate);
  inner.on_owned = true;
  const Schedule s = schedule_of(layout, {parameter("w", {8})},
                                 {collective(Op::reduce_scatter, "shard", Axis::dp_shard), inner,
                                  collective(Op::all_gather, "back", Axis::dp_replicate)});
  const Timeline timeline = walk(s);
  REQUIRE(timeline.outcome.kind == Kind::complete);
  CHECK(timeline.owned[0][0][0] == Intervals{{0, 4}});
  CHECK(timeline.owned[0][3][0] == Intervals{{4, 8}});
  REQUIRE(timeline.ownership.size() == 12);
  CHECK(timeline.ownership[6].rank == 1);  // after the inner scatter of ranks 1 and 3
  CHECK(timeline.ownership[6].owned == Intervals{{4, 6}});
  REQUIRE(timeline.events.back().calls[0].owned.size() == 1);
  CHECK(timeline.events.back().calls[0].owned[0] == Intervals{{4, 8}});
}

TEST_CASE("after a reduce only the root owns, and the group answers together") {
  Step reduce = collective(Op::reduce, "reduce", Axis::dp);
  reduce.root = Root{std::nullopt, {{Axis::dp, 1}}};
  const Schedule s = schedule_of(dp(2), {parameter("w", {4})}, {reduce});
  const Timeline timeline = walk(s);
  CHECK(timeline.events[0].root == 1);
  CHECK(timeline.owned[0][0][0].empty());
  CHECK(timeline.owned[0][1][0] == Intervals{{0, 4}});
  CHECK(timeline.family[0][0] == timeline.family[0][1]);
}

TEST_CASE("own moves no data, waits for nobody, and joins those that call it") {
  const Schedule s =
      schedule_of(dp(3), {parameter("w", {6})}, {when(collective(Op::own, "own", Axis::dp), "rank.dp < 2")});
  const Timeline timeline = walk(s);
  CHECK(timeline.outcome.kind == Kind::complete);
  CHECK(timeline.owned[0][0][0] == Intervals{{0, 2}});
  CHECK(timeline.owned[0][1][0] == Intervals{{2, 4}});
  CHECK(timeline.owned[0][2][0] == Intervals{{0, 6}});
  CHECK(timeline.family[0][0] == timeline.family[0][1]);
  CHECK(timeline.family[0][0] != timeline.family[0][2]);
}

TEST_CASE("a group of one is the identity") {
  const Schedule s = schedule_of(dp(1), {parameter("w", {4})}, {collective(Op::reduce_scatter, "scatter", Axis::dp)});
  const Timeline timeline = walk(s);
  CHECK(timeline.events.empty());
  CHECK(timeline.owned[0][0][0] == Intervals{{0, 4}});
}

TEST_CASE("a step that touches a buffer in flight is a race") {
  Step sync = collective(Op::all_reduce, "sync", Axis::dp);
  sync.async = true;
  Step wait = step(Op::wait, "");
  wait.wait_for = "sync";
  const Step clear = step(Op::zero, "zero");
  const auto walked = [&](std::vector<Step> steps) {
    static std::vector<Schedule> kept;  // timelines point into their schedules
    kept.reserve(16);
    kept.push_back(schedule_of(dp(2), {parameter("w", {4})}, std::move(steps)));
    return walk(kept.back());
  };
  CHECK(walked({sync, wait, clear}).outcome.kind == Kind::complete);
  const Outcome touched = walked({sync, clear, wait}).outcome;
  CHECK(touched.kind == Kind::race);
  REQUIRE(touched.races.size() == 2);
  CHECK(touched.races[1].rank == 1);
  CHECK(touched.races[0].step == "zero");
  CHECK(touched.races[0].touches == "grad of w");
  CHECK(touched.races[0].in_flight == "sync");
  const Outcome unfinished = walked({sync}).outcome;
  CHECK(unfinished.kind == Kind::race);
  CHECK(unfinished.races[0].step.empty());
  Step elsewhere = clear;
  elsewhere.buffer = "other";
  CHECK(walked({sync, elsewhere, wait}).outcome.kind == Kind::complete);
  Step only_first = sync;
  only_first.when = Expression::parse("rank.dp == 0");
  const Outcome stuck = walked({only_first, wait}).outcome;
  CHECK(stuck.kind == Kind::deadlock);
  REQUIRE(stuck.stuck.size() == 1);
  CHECK(stuck.stuck[0].waits_in == "sync");
}

TEST_CASE("clipping by a norm that is in flight is a race, whatever it clips") {
  Step norm = collective(Op::norm, "norm", Axis::dp);
  norm.async = true;
  Step wait = step(Op::wait, "");
  wait.wait_for = "norm";
  Step clip = step(Op::clip, "clip");
  clip.buffer = "copies";
  Step scale = step(Op::scale, "scale");
  scale.buffer = "copies";
  scale.by = Expression::parse("2");
  const auto outcome = [](std::vector<Step> steps) {
    const Schedule schedule = schedule_of(dp(2), {parameter("w", {4})}, std::move(steps));
    return walk(schedule).outcome;
  };
  CHECK(outcome({norm, wait, clip}).kind == Kind::complete);
  CHECK(outcome({norm, scale, wait}).kind == Kind::complete);
  const Outcome raced = outcome({norm, clip, wait});
  CHECK(raced.kind == Kind::race);
  REQUIRE(raced.races.size() == 2);
  CHECK(raced.races[0].step == "clip");
  CHECK(raced.races[0].in_flight == "norm");
  CHECK(raced.races[0].touches == "grad of w");
}

TEST_CASE("a wait is listed with what it waited for, and where a race would end the run one can stand in its place") {
  Step sync = collective(Op::all_reduce, "sync", Axis::dp);
  sync.async = true;
  Step wait = step(Op::wait, "");
  wait.wait_for = "sync";
  const Step clear = step(Op::zero, "zero");
  // Rank 1 comes late, so that rank 0 stands in its wait until the ranks have met.
  Step late = step(Op::zero, "late");
  late.buffer = "other";
  const Schedule right = schedule_of(dp(2), {parameter("w", {4})}, {late, sync, wait, clear}, 1, 2);
  const Timeline timeline = walk(right);
  REQUIRE(timeline.events.size() == 10);
  REQUIRE(timeline.waits.size() == 4);
  CHECK(timeline.waits[0].event == 2);
  CHECK(timeline.waits[0].before == 3);
  CHECK(timeline.waits[0].rank == 0);
  CHECK(timeline.waits[3].event == 7);
  CHECK(timeline.waits[3].rank == 1);
  CHECK(walk(right, AtRace::waits).events.size() == 10);

  const Schedule wrong = schedule_of(dp(2), {parameter("w", {4})},
                                     {when(sync, "rank.dp == 0"), when(clear, "rank.dp == 0"), late,
                                      when(collective(Op::all_reduce, "late_sync", Axis::dp), "rank.dp == 1"), wait},
                                     1, 2);
  CHECK(walk(wrong).outcome.kind == Kind::race);
  const Timeline mended = walk(wrong, AtRace::waits);
  CHECK(mended.outcome.kind == Kind::complete);
  CHECK(mended.step_ends.size() == 2);
  REQUIRE(mended.events.size() == 8);
  CHECK(mended.events[1].op == Op::all_reduce);  // behind rank 1's own step, and in front of what touches it on rank 0
  CHECK(mended.events[2].op == Op::zero);
  CHECK(mended.events[2].calls.front().rank == 0);
  REQUIRE(mended.waits.size() == 2);  // rank 0's own ones, which come too late
  CHECK(mended.waits[0].event == 1);

  const Schedule unfinished = schedule_of(dp(2), {parameter("w", {4})}, {sync}, 1, 2);
  CHECK(walk(unfinished).outcome.kind == Kind::race);
  const Timeline ended = walk(unfinished, AtRace::waits);
  CHECK(ended.step_ends == std::vector<std::size_t>{1, 2});
  CHECK(ended.waits.empty());
  const Schedule never = schedule_of(dp(2), {parameter("w", {4})}, {when(sync, "rank.dp == 0"), clear});
  CHECK(walk(never, AtRace::waits).outcome.kind == Kind::deadlock);
}

TEST_CASE("the first verdict in time ends the run") {
  Step sync = collective(Op::all_reduce, "sync", Axis::dp);
  Step average = collective(Op::all_reduce, "average", Axis::dp);
  average.reduction = Reduction::average;
  Step flying = step(Op::scale, "flying");
  flying.async = true;
  // Rank 2 would race at the end, ranks 0 and 1 meet wrongly before that.
  Layout layout;
  layout.dp = layout.dp_shard = 2;
  layout.pp = 2;
  Parameter w = parameter("w", {4});
  w.stage = std::nullopt;
  const Schedule s = schedule_of(layout, {w},
                                 {when(flying, "rank.pp == 1"), when(sync, "rank.pp == 0 and rank.dp == 0"),
                                  when(average, "rank.pp == 0 and rank.dp == 1")});
  CHECK(walk(s).outcome.kind == Kind::invalid_collective);
}

TEST_CASE("mistakes that show only on some rank name it") {
  Step scale = step(Op::scale, "scale");
  scale.by = Expression::parse("1/rank.dp");
  CHECK(message_of(schedule_of(dp(2), {parameter("w", {4})}, {scale})).find("on rank 0") != std::string::npos);
  Step gather = collective(Op::all_gather, "gather", Axis::dp_shard);
  Layout layout = dp(4);
  layout.dp_shard = 2;
  layout.dp_replicate = 2;
  CHECK(message_of(schedule_of(layout, {parameter("w", {4})},
                               {collective(Op::reduce_scatter, "scatter", Axis::dp), gather})) ==
        "all_gather \"gather\" runs over ranks 0, 1, but w was last scattered by \"scatter\" over ranks 0, 1, 2, 3; a "
        "gather "
        "undoes the last reduce-scatter and needs the same group");
}
