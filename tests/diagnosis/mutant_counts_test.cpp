// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "src/diagnosis/mutation.h"
#include "src/diagnosis/mutation_flags.h"
#include "tests/catch.h"

using namespace lockstep;
using diagnosis::Mutant;
using diagnosis::MutantCounts;

namespace {

Mutant killed(Verdict verdict, bool symbolic, bool parametric, const std::string& sizes = "") {
  Mutant mutant;
  mutant.verdict = verdict;
  mutant.symbolic = symbolic;
  mutant.parametric = parametric;
  mutant.sizes = sizes;
  return mutant;
}

Mutant alive(Mutant::Fate fate) {
  Mutant mutant = killed(Verdict::match, false, false);
  mutant.fate = fate;
  return mutant;
}

}  // namespace

TEST_CASE("mutants are counted by what became of them, and what others would have seen") {
  Mutant seen = killed(Verdict::mismatch, true, true);
  seen.replicas_differ = seen.beyond_tolerance = true;
  Mutant near = killed(Verdict::mismatch, true, false);
  near.replicas_differ = true;
  const MutantCounts counts = diagnosis::counts_of(
      {seen, near, killed(Verdict::mismatch, false, true, "dp 3"), killed(Verdict::deadlock, true, false),
       alive(Mutant::Fate::equivalent), alive(Mutant::Fate::unproved), alive(Mutant::Fate::unproved)});
  CHECK(counts.mutants == 7);
  CHECK(counts.killed == 4);
  CHECK(counts.symbolic == 3);
  CHECK(counts.parametric == 2);
  CHECK(counts.elsewhere == 1);
  CHECK(counts.equivalent == 1);
  CHECK(counts.unproved == 2);
  CHECK(counts.values == 3);
  CHECK(counts.replicas == 2);
  CHECK(counts.tolerance == 1);

  MutantCounts twice = counts;
  twice.add(counts);
  CHECK(twice.mutants == 14);
  CHECK(twice.killed == 8);
  CHECK(twice.symbolic == 6);
  CHECK(twice.parametric == 4);
  CHECK(twice.elsewhere == 2);
  CHECK(twice.equivalent == 2);
  CHECK(twice.unproved == 4);
  CHECK(twice.values == 6);
  CHECK(twice.replicas == 4);
  CHECK(twice.tolerance == 2);
}

TEST_CASE("each kind of edit has a name of its own, that of parameters stands last") {
  const std::vector<std::string_view> kinds = diagnosis::mutant_kinds();
  CHECK(kinds.size() == diagnosis::candidate_kind_count + 1);
  CHECK(std::set<std::string_view>(kinds.begin(), kinds.end()).size() == kinds.size());
  CHECK(kinds.back() == diagnosis::flag_edits);
  CHECK(kinds.front() == diagnosis::name_of(diagnosis::Candidate::Kind::restore));
}
