// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/comparison.h"
#include "lockstep/extraction_comparison.h"
#include "lockstep/flight_recorder.h"
#include "lockstep/live.h"
#include "lockstep/prove.h"

namespace lockstep {

struct PlacementReport;

/// Where a report goes, piece by piece. May throw; a writer passes that on.
using Write = std::function<void(std::string_view)>;

struct ReportOptions {
  bool all = false;      ///< every parameter, rank and owned element, not only the wrong ones
  bool quiet = false;    ///< text: the verdict line alone
  bool verbose = false;  ///< text: no limits on ranks, grids and lists
  bool color = false;    ///< text
  bool several = false;  ///< JSON: an array, whatever the number of results
  /// A file's `expect` is what is right: a mistake that it describes is no finding, and what does not hold of it is
  /// one.
  bool expectations = false;
  std::string docs_url;   ///< SARIF, markdown: where docs/ can be read, without a slash at the end; "": no links to it
  bool timeline = false;  ///< JSON: also what a page needs to show a scenario step by step
};

/// Writes what was found about any number of scenarios, or about a captured run, in one format.
class Reporter {
 public:
  virtual ~Reporter() = default;
  /// Results come one at a time and may be dropped afterwards.
  virtual void add(const CheckResult& result) = 0;
  virtual void add(const VerifyResult& result) = 0;
  /// After the last result.
  virtual void finish() = 0;
};

/// The names that make_reporter knows.
const std::vector<std::string>& report_kinds();
/// What each of them is for: "text, for people; json, for programs; …".
std::string report_kinds_help();
/// Null for an unknown kind.
std::unique_ptr<Reporter> make_reporter(std::string_view kind, const ReportOptions& options, Write write);

/// What `lockstep explain` prints: the grid of one parameter after every step.
struct ExplainOptions {
  /// A name or a selector, of which the first wrong one is taken; "": of all, else the first of the model.
  std::string parameter;
  std::string step;  ///< "": every step; "STEP[N]": in micro-batch N
  bool all = false;  ///< text: every range of elements and every micro-batch, not only the first few
  bool verbose = false;
  bool color = false;
};
/// Throws InputError for a parameter or step that does not exist. `result` must have a timeline.
void explain_text(const CheckResult& result, const ExplainOptions& options, const Write& write);
/// The same as JSON: for each step the formula and elements on each rank that holds the parameter.
void explain_json(const CheckResult& result, const ExplainOptions& options, const Write& write);

/// What `lockstep placements` prints: parameters by axes, folded over layers; and as JSON, each by itself.
void placements_text(const Scenario& scenario, const PlacementReport& report, bool color, const Write& write);
void placements_json(const Scenario& scenario, const PlacementReport& report, const Write& write);

/// What `lockstep diff` prints. `verbose` leaves nothing out.
void comparison_text(const ScheduleComparison& comparison, bool verbose, bool color, const Write& write);
void comparison_json(const ScheduleComparison& comparison, const Write& write);
/// The same of two extractions.
void comparison_text(const ExtractionComparison& comparison, bool verbose, bool color, const Write& write);
void comparison_json(const ExtractionComparison& comparison, const Write& write);

/// What `lockstep verify` prints: what is wrong, then formulas. `quiet`: the verdict line alone; `verbose`: everything
/// that was compared, with the coefficients and their errors.
void verify_text(const VerifyResult& result, bool quiet, bool verbose, bool color, const Write& write);
void verify_json(const VerifyResult& result, const Write& write);

/// What `lockstep import flight-recorder` prints: what does not meet, then who waits. `quiet`: the verdict line alone.
void flight_text(const FlightResult& result, bool quiet, bool color, const Write& write);
void flight_json(const FlightResult& result, const Write& write);

/// What `lockstep prove` prints (docs/proof.md). The proof itself follows where it was asked for (Proof::steps).
class ProofReporter {
 public:
  virtual ~ProofReporter() = default;
  virtual void add(const Scenario& scenario, const Proof& proof) = 0;
  /// After the last one.
  virtual void finish() = 0;
};
/// `kind`: "text" or "json".
std::unique_ptr<ProofReporter> make_proof_reporter(std::string_view kind, const ReportOptions& options, Write write);

/// What `lockstep show` prints of a scenario: layout, process groups, parameters, steps.
void show_text(const Scenario& scenario, bool verbose, const Write& write);
/// The same as one JSON object, with `groups` and `geometry` whole.
void show_json(const Scenario& scenario, const Write& write);

}  // namespace lockstep
