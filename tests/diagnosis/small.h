// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/check.h"
#include "lockstep/numeric.h"
#include "lockstep/scenario.h"
#include "lockstep/timeline.h"
#include "src/diagnosis/engine_details.h"
#include "src/diagnosis/engines.h"

namespace lockstep::test {

/// Checks a scenario given as text.
inline CheckResult check_text(const std::string& text, const CheckOptions& options = {}) {
  auto source = std::make_shared<const Source>(Source{"test.json", text});
  return check_scenario(std::make_shared<const Scenario>(read_scenario(source)), options);
}

/// What an engine found, to be changed; it must have run.
inline EngineResult& engine_in(CheckResult& result, std::string_view name) {
  return const_cast<EngineResult&>(*engine_of(result, name));
}

/// The numbers of an engine, to be changed: a copy of what other results have.
inline HostResult& numbers_in(CheckResult& result, std::string_view name = "host") {
  const auto copy = std::make_shared<HostResult>(*numbers_of(result, name));
  engine_in(result, name).numbers = copy;
  return *copy;
}

/// `name` found the very numbers that `other` found.
inline void find_the_same(CheckResult& result, std::string_view name, std::string_view other = "host") {
  EngineResult same = engine_in(result, other);
  same.name = name;
  diagnosis::keep(result, same);
}

/// As if an engine had not been asked for.
inline void forget(CheckResult& result, std::string_view name) {
  std::erase_if(result.engines, [&](const EngineResult& engine) { return engine.name == name; });
}

inline SymbolicResult& symbolic_in(CheckResult& result) {
  return diagnosis::detail_of<diagnosis::SymbolicDetail>(result)->found;
}
inline TransformerResult& transformer_in(CheckResult& result) {
  return diagnosis::detail_of<diagnosis::TransformerDetail>(result)->found;
}

/// As an edit stands in a file.
inline std::string one_line(const Json& value) {
  std::string line;
  for (const char c : write_json(value)) {
    if (c != '\n' && (c != ' ' || line.back() != ' ')) line += c;
    if (c == '\n' && line.back() != ' ') line += ' ';
  }
  line.pop_back();
  return line;
}

/// A scenario of one optimizer step with these members ("layout", "parameters", "steps" are JSON).
inline std::string scenario_text(const std::string& layout, const std::string& parameters, const std::string& steps,
                                 const std::string& more = "") {
  return R"({ "lockstep": 1, "name": "small", "layout": )" + layout + R"(, "model": { "parameters": )" + parameters +
         R"( }, "batch": { "micro_batches": 1, "tokens": "even" }, "schedule": { "steps": )" + steps + " }" + more +
         " }";
}

/// NVIDIA/Megatron-LM#844 at the size that was measured: 150 elements tied over two stages whose
/// buffers cut them at 40 and at 115.
inline std::string megatron_844(const std::string& expect = "") {
  return scenario_text(R"({ "pp": 2, "dp": 2 })",
                       R"([ { "name": "word", "shape": [150], "stage": 0, "tied": "embedding" },
                       { "name": "layers.0.weight", "shape": [70], "stage": 0 },
                       { "name": "layers.1.weight", "shape": [70], "stage": 1 },
                       { "name": "norm", "shape": [10], "stage": 1 },
                       { "name": "output", "shape": [150], "stage": 1, "tied": "embedding" } ])",
                       R"([ { "name": "zero", "op": "zero" },
                       { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                       { "name": "dp_reduce_scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg",
                         "geometry": { "kind": "bucket", "align_parameter": 1, "align_bucket": "n" } },
                       { "name": "embedding_all_reduce", "op": "all_reduce", "over": { "pp": ["first", "last"] },
                         "params": ["tied:embedding"] } ])",
                       expect.empty() ? "" : R"(, "expect": )" + expect);
}

/// The mean over all data-parallel ranks.
inline const std::string mean_step = R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })";

/// Two data-parallel ranks with one parameter and these steps after the backward.
inline std::string two_ranks(const std::string& steps, const std::string& more = "") {
  return scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "weight", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
          steps + " ]",
      more);
}

}  // namespace lockstep::test
