// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/symbolic.h"
#include "tests/catch.h"

/// Small schedules for the tests of formulas: a layout, a model, a batch.
namespace formula_test {

using namespace lockstep;

inline Layout layout(int tp, int dp, int pp) {
  Layout layout;
  layout.tp = tp, layout.dp = dp, layout.dp_shard = dp, layout.pp = pp;
  return layout;
}

inline Parameter parameter(std::string name, int stage = 0) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = {8};
  parameter.stage = stage;
  return parameter;
}

inline Schedule schedule_of(const Layout& layout, const std::vector<Parameter>& parameters,
                            std::vector<int> micro_batches = {1}) {
  Diagnostics diagnostics;
  const Mesh mesh(layout);
  Model model(mesh, parameters, diagnostics);
  REQUIRE(diagnostics.empty());
  Batch batch;
  batch.micro_batch_counts = std::move(micro_batches);
  return Schedule{mesh, std::move(model), std::move(batch), {}, "grad"};
}

/// One buffer of one rank of a schedule, with its reference.
struct Buffer {
  const Schedule& schedule;
  int rank = 0;
  int buffer = 0;
  std::vector<Term> support;

  Buffer(const Schedule& all, int of_rank, int index = 0, int step = 0) : schedule(all), rank(of_rank), buffer(index) {
    const LocalBuffer& local = all.model.local(rank).buffers.at(static_cast<std::size_t>(index));
    support = reference_terms(all, local.logical, local.piece, step);
  }

  std::vector<Term> parse(const std::string& text) const {
    return parse_formula(schedule, rank, buffer, text, support);
  }
  std::string print(const std::vector<Term>& terms) const {
    return print_formula(schedule, rank, buffer, terms, support);
  }
  /// What is printed for what `text` means.
  std::string again(const std::string& text) const { return print(parse(text)); }
  std::string error(const std::string& text) const {
    try {
      parse(text);
    } catch (const ExpressionError& mistake) {
      return std::to_string(mistake.offset) + ": " + mistake.what();
    }
    return "";
  }
};

inline bool operator_equal(const Term& a, const Term& b) {
  return a.rank == b.rank && a.micro_batch == b.micro_batch && a.site_use == b.site_use && a.leftover == b.leftover &&
         a.foreign == b.foreign && a.logical == b.logical && a.piece == b.piece && a.offset == b.offset &&
         a.coefficient == b.coefficient && a.clips == b.clips;
}

inline bool same_terms(const std::vector<Term>& a, const std::vector<Term>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), operator_equal);
}

}  // namespace formula_test
