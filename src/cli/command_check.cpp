// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>

#include "lockstep/live.h"
#include "lockstep/scenario.h"
#include "src/base/budget.h"
#include "src/cli/engine_jobs.h"
#include "src/cli/extraction_file.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"

namespace lockstep::cli {

namespace {

struct CheckArguments : CommonOptions {
  std::vector<std::string> paths;
  bool no_blame = false;
};

/// Says what an extraction does to its gradients. Returns the exit status.
int check_extraction(const std::shared_ptr<const Source>& source, bool verbose, ReportSet& reports) {
  VerifyOptions options;
  options.coefficients = verbose;
  CheckResult failed;
  failed.file = source->name;
  try {
    const Budget budget(Budget::file);
    const VerifyResult result = verify_extraction(source, options);
    reports.add(result);
    return result.verdict() == VerifiedPiece::Verdict::right ? exit_right : exit_wrong;
  } catch (const InputError& error) {
    failed.errors = error.diagnostics();
  } catch (const OverBudget& over) {
    failed.errors = {Diagnostic{Place{source, 0, 0, ""}, over.what()}};
  } catch (const std::bad_alloc&) {
    failed.machine_failed = true;
    failed.errors = {Diagnostic{Place{source, 0, 0, ""}, "out of memory"}};
  }
  reports.add(failed);
  return status_of(failed);
}

int run(CheckArguments& arguments) {
  return with_engines(arguments, arguments.paths, [&](CheckOptions check, const std::vector<std::string>& files) {
    const bool one_line = arguments.quiet && arguments.format == "text";
    check.blame = !arguments.no_blame && !(one_line && !arguments.has_reports());
    ReportSet reports(arguments, files.size() > 1, {});
    int status = exit_right;
    std::vector<std::string> scenarios;  // up to the next extraction
    const auto check_scenarios = [&] {
      check_files(scenarios, check, [&](const CheckResult& result) {
        reports.add(result);
        status = std::max(status, status_of(result));
      });
      scenarios.clear();
    };
    for (const std::string& file : files) {
      const std::shared_ptr<const Source> extraction = extraction_at(file);
      if (!extraction) {
        scenarios.push_back(file);
        continue;
      }
      check_scenarios();
      status = std::max(status, check_extraction(extraction, arguments.verbose, reports));
    }
    check_scenarios();
    reports.finish();
    return gate_status(arguments, status);
  });
}

}  // namespace

Command check_command() {
  const auto arguments = std::make_shared<CheckArguments>();
  Command command;
  command.name = "check";
  command.summary = "Check that every rank gets the gradient that one device would compute.";
  command.text =
      "Replays each scenario with the symbolic and the host engine, and with the transformer engine if it edits its "
      "model. Compares what every rank hands to its optimizer with what one device would have computed. Reports which "
      "parameters are wrong on which ranks, by formula and by hash, the rank grid around the steps that matter, and "
      "the step at which a gradient becomes wrong. A file from `lockstep extract` has no schedule: it says what the "
      "code of a training step does to its gradients (docs/extract.md). All ranks' programs are composed, and compared "
      "with one device in the same way. Exit status 0 if everything matches, 1 if something is wrong or "
      "undecided, whatever the file's `expect` says, 2 for a mistake in what was given, 3 for a failure of the machine "
      "or of lockstep, 4 where there is nothing to check.";
  command.examples = {
      {"lockstep check scenario.json", "check one scenario"},
      {"lockstep check -q scenarios/", "every scenario of a folder, one line each"},
      {"lockstep check scenario.json --set dp=8 --set micro_batches=4", "the same scenario with other sizes"},
      {"lockstep check -f github --report sarif=out.sarif --report junit=out.xml scenarios/",
       "annotations in the log of a GitHub job, and two files for others to read"},
  };
  command.options = join({{{"FILES", "", std::string(files_help), {}, &arguments->paths}},
                          arguments->output_rows(report_kinds()),
                          arguments->report_rows(),
                          arguments->gate_rows(),
                          arguments->engine_rows(),
                          arguments->job_rows(),
                          {{"--no-blame",
                            "",
                            "Do not search for the step at fault, which replays hundreds of edits for each file that "
                            "is wrong. The step at "
                            "which a gradient becomes wrong is still named.",
                            {},
                            &arguments->no_blame}}});
  command.options.push_back(set_row());
  command.options.push_back(include_row());
  command.uses_loops = true;
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
