// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/oracle.h"
#include "src/diagnosis/shrink.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

void check_same(const diagnosis::OracleAnswer& one, const diagnosis::OracleAnswer& other) {
  CHECK(one.state == other.state);
  CHECK(one.wrong_buffers == other.wrong_buffers);
  CHECK(one.count == other.count);
  CHECK(one.distance == other.distance);
  CHECK(one.sent_bytes == other.sent_bytes);
  CHECK(one.owners == other.owners);
}

}  // namespace

TEST_CASE("an oracle that has answered for other edits says of each what one says that has answered for none") {
  // `by` and the uses of the backward differ from edit to edit, and with tokens from rank to rank.
  const std::string uneven =
      scenario_text(R"({ "dp": 2, "tp": 2 })",
                    R"([ { "name": "w", "shape": [8], "shard": { "tp": 0 } }, { "name": "b", "shape": [4] } ])",
                    R"J([ { "name": "zero", "op": "zero" },
            { "name": "micro_batches", "op": "each", "steps": [
              { "name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)" } ] },
            { "name": "scatter", "op": "reduce_scatter", "over": "dp" },
            { "name": "gather", "op": "all_gather", "over": "dp" },
            { "name": "norm", "op": "norm", "over": "tp" } ])J");
  for (const std::string& text : {uneven, megatron_844()}) {
    const Scenario scenario = read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
    const Schedule& schedule = *scenario.schedule;
    const std::vector<Parameter> parameters = diagnosis::one_of_each_class(schedule);
    diagnosis::SymbolicOracle used(schedule, parameters);
    std::set<diagnosis::OracleAnswer::State> states;
    for (const diagnosis::Candidate& candidate :
         diagnosis::single_edits(schedule.steps, diagnosis::candidate_values(schedule, {}))) {
      INFO(write_json(to_json(candidate.edit)));
      const diagnosis::OracleAnswer answer = used.answer({candidate.edit});
      check_same(answer, diagnosis::SymbolicOracle(schedule, parameters).answer({candidate.edit}));
      states.insert(answer.state);
    }
    CHECK(states.size() >= 3);
    CHECK(used.steps().schedule_of().steps == schedule.steps);
  }
}
