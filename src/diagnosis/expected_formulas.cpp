// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/expected_formulas.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lockstep/parametric.h"
#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/diagnosis/formulas.h"

namespace lockstep::diagnosis {

namespace {

bool same_term(const Term& a, const Term& b) {
  return a.rank == b.rank && a.micro_batch == b.micro_batch && a.site_use == b.site_use && a.leftover == b.leftover &&
         a.foreign == b.foreign && a.logical == b.logical &&
         (!a.foreign || (a.piece == b.piece && a.offset == b.offset)) && a.coefficient == b.coefficient &&
         a.clips == b.clips;
}

bool same_terms(const std::vector<Term>& a, const std::vector<Term>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_term);
}

/// The buffer of `rank` that goes by `parameter`, or -1.
int buffer_named(const Model& model, int rank, const std::string& parameter) {
  const LocalModel& local = model.local(rank);
  for (std::size_t buffer = 0; buffer < local.buffers.size(); ++buffer) {
    for (const int site : local.buffers[buffer].parameters) {
      if (model.parameters()[at(site)].name == parameter) return static_cast<int>(buffer);
    }
  }
  return -1;
}

class FormulaCheck {
 public:
  FormulaCheck(const CheckResult& result, std::vector<std::string>& unmet)
      : result_(result),
        symbolic_(symbolic_of(result)),
        schedule_(*result.scenario->schedule),
        formulas_(schedule_, forms(result)),
        unmet_(unmet) {}

  void check(const Expect::Formula& expected) {
    int rank = -1;
    const std::string& text = expected.rank;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || rank < 0 || rank >= schedule_.mesh.world()) {
      return fail(expected,
                  fmt::format("there is no rank {} among the {}", text, counted(schedule_.mesh.world(), "rank")));
    }
    const int buffer = buffer_named(schedule_.model, rank, expected.parameter);
    if (buffer < 0) return fail(expected, "the rank holds no such parameter");
    if (symbolic_ == nullptr) {
      try {
        return compare(expected, parametric_engine_of(result_)->buffer(rank, buffer, step()));
      } catch (const InputError& error) {
        return fail(expected, error.diagnostics().front().message);
      }
    }
    const BufferResult* found = result_of(rank, buffer);
    if (found == nullptr) return fail(expected, "no optimizer step was completed");
    compare(expected, *found);
  }

 private:
  int step() const { return symbolic_ != nullptr ? symbolic_->step : result_.step; }

  static const FormReader& forms(const CheckResult& result) {
    if (symbolic_of(result) != nullptr) return *forms_of(result);
    return *parametric_engine_of(result);
  }

  const BufferResult* result_of(int rank, int buffer) const {
    const std::vector<BufferResult>& buffers = symbolic_->buffers;
    const auto place = std::lower_bound(buffers.begin(), buffers.end(), std::make_pair(rank, buffer),
                                        [](const BufferResult& one, const std::pair<int, int>& key) {
                                          return std::make_pair(one.rank, one.buffer) < key;
                                        });
    return place != buffers.end() && place->rank == rank && place->buffer == buffer ? &*place : nullptr;
  }

  void compare(const Expect::Formula& expected, const BufferResult& found) {
    if (expected.elements && !subtract({*expected.elements}, found.owned).empty()) {
      return fail(expected, "the rank does not own all of these elements");
    }
    std::vector<Term> wanted;
    try {
      wanted = parse_formula(schedule_, found.rank, found.buffer, expected.formula,
                             formulas_.support(found.rank, found.buffer, step()));
    } catch (const ExpressionError& error) {
      return fail(expected, fmt::format("which is no formula here: {}", error.what()));
    }
    bool compared = false;
    for (const PieceResult& piece : found.pieces) {
      const bool asked = expected.elements ? !intersect(piece.elements, *expected.elements).empty() : !piece.right;
      if (!asked) continue;
      compared = true;
      if (same_terms(wanted, forms(result_).terms(piece.form, found.rank, found.buffer))) continue;
      return fail(expected, fmt::format("{} in elements [{}, {})",
                                        formulas_.formula(piece.form, found.rank, found.buffer, step()),
                                        piece.elements.begin, piece.elements.end));
    }
    if (!compared) fail(expected, "no wrong element there");
  }

  void fail(const Expect::Formula& expected, const std::string& found) {
    std::string where = fmt::format("{} on rank {}", expected.parameter, expected.rank);
    if (expected.elements)
      where += fmt::format(", elements [{}, {})", expected.elements->begin, expected.elements->end);
    unmet_.push_back(fmt::format("formula of {}: expected {}, found {}", where, expected.formula, found));
  }

  const CheckResult& result_;
  const SymbolicResult* symbolic_;
  const Schedule& schedule_;
  Formulas formulas_;
  std::vector<std::string>& unmet_;
};

}  // namespace

void check_formulas(const CheckResult& result, const Expect& expect, std::vector<std::string>& unmet) {
  FormulaCheck check(result, unmet);
  for (const Expect::Formula& formula : expect.formulas) check.check(formula);
}

}  // namespace lockstep::diagnosis
