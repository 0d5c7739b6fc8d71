// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

#include "src/base/budget.h"
#include "src/base/counted.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"
#include "src/diagnosis/mutation.h"
#include "src/report/clean_text.h"
#include "src/report/mutation_report.h"

namespace lockstep::cli {

namespace {

struct MutateArguments : CommonOptions {
  std::vector<std::string> paths;
  std::string mutants;
};

/// The files one after the other, several at once; what comes out is in their order.
class Mutations {
 public:
  Mutations(const MutateArguments& arguments, const std::vector<std::string>& files)
      : named_(arguments.paths),
        files_(files),
        found_(files.size()),
        failures_(files.size()),
        shows_progress_(!arguments.quiet && isatty(STDERR_FILENO) == 1) {}

  std::vector<diagnosis::Mutation> all(int jobs) {
    std::vector<std::thread> threads;
    try {
      for (int job = 1; job < std::min<int>(jobs, static_cast<int>(files_.size())); ++job)
        threads.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // The machine gives no more threads: this one does the work.
    }
    work();
    for (std::thread& thread : threads) thread.join();
    if (shows_progress_) show_progress("\r\x1b[K");
    for (std::size_t index = 0; index < files_.size(); ++index) {
      const std::exception_ptr& failure = failures_[index];
      const std::string& file = files_[index];
      if (!failure) continue;
      try {
        std::rethrow_exception(failure);
      } catch (const InputError& error) {
        ++refused_;
        for (const Diagnostic& diagnostic : error.diagnostics()) tell(render(diagnostic));
      } catch (const OverBudget& over) {
        ++refused_;
        tell(fmt::format("lockstep: {}: too large for mutants: {}\n", report::one_line_text(file),
                         report::one_line_text(over.what())));
      } catch (const std::bad_alloc&) {
        ++failed_;
        tell(fmt::format("lockstep: {}: out of memory\n", report::one_line_text(file)));
      } catch (const InternalError& error) {
        ++failed_;
        tell(fmt::format("lockstep: {}: a bug of lockstep: {}\n", report::one_line_text(file),
                         report::one_line_text(error.what())));
      } catch (const std::exception& error) {
        ++failed_;
        tell(fmt::format("lockstep: {}: {}\n", report::one_line_text(file), report::one_line_text(error.what())));
      }
    }
    std::vector<diagnosis::Mutation> mutations;
    for (std::optional<diagnosis::Mutation>& one : found_) {
      if (one) mutations.push_back(std::move(*one));
    }
    return mutations;
  }

  /// Files that are not valid, or named and wrong; all() said so.
  std::size_t refused() const { return refused_; }
  /// Files that the machine, or lockstep itself, failed at; all() said so.
  std::size_t failed() const { return failed_; }

 private:
  void work() {
    for (std::size_t index = next_++; index < files_.size(); index = next_++) {
      try {
        found_[index] = mutate_file(files_[index]);
      } catch (...) {
        failures_[index] = std::current_exception();
      }
      ++done_;
    }
  }

  /// Nothing for a file of a folder that is not right.
  std::optional<diagnosis::Mutation> mutate_file(const std::string& file) {
    const CheckResult result = check_file(file, CheckOptions::verdict_alone());
    if (result.machine_failed) throw std::runtime_error(result.errors.front().message);
    if (result.error_expected) return std::nullopt;
    if (result.verdict == Verdict::error) throw InputError(result.errors);
    if (result.verdict != Verdict::match) {
      if (std::find(named_.begin(), named_.end(), file == standard_input_name ? "-" : file) == named_.end())
        return std::nullopt;
      throw InputError({Diagnostic{
          {},
          fmt::format("{} is wrong before any edit: {}; only a right schedule has mutants (`lockstep check {}` "
                      "shows what is wrong, `lockstep repair {}` how to make it right)",
                      file, name_of(result.verdict), argument_for(file), argument_for(file))}});
    }
    diagnosis::MutationOptions options;
    if (shows_progress_)
      options.progress = [&](std::int64_t done, std::int64_t all) {
        show(file, 100 * done / std::max<std::int64_t>(all, 1));
      };
    diagnosis::Mutation mutation = diagnosis::mutate(result.scenario, options);
    mutation.as_in_file = mutation.as_in_file && result.written == nullptr;  // else the file says "any"
    return mutation;
  }

  void show(const std::string& file, std::int64_t percent) {
    const std::lock_guard lock(mutex_);
    const std::string line =
        fmt::format("file {} of {}, {} %: {}", done_ + 1, files_.size(), percent, report::one_line_text(file));
    if (line == shown_) return;
    shown_ = line;
    show_progress(fmt::format("\r\x1b[K{:.78}", line));
  }

  const std::vector<std::string>& named_;
  const std::vector<std::string>& files_;
  std::vector<std::optional<diagnosis::Mutation>> found_;
  std::vector<std::exception_ptr> failures_;
  bool shows_progress_;
  std::size_t refused_ = 0, failed_ = 0;
  std::atomic<std::size_t> next_ = 0, done_ = 0;
  std::mutex mutex_;  // for `shown_`
  std::string shown_;
};

void make_empty_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || !std::filesystem::is_empty(folder, error) || error) {
    usage_error(fmt::format("--write-mutants takes a folder that is empty or not there yet; {} is neither", folder));
  }
}

/// Each mutant as a scenario whose `expect` says what became of it: NAME-KIND-NUMBER.json.
void write_mutants(const std::vector<diagnosis::Mutation>& all, const std::string& folder) {
  int written = 0;
  for (const diagnosis::Mutation& one : all) {
    int number = 0;
    const std::string& from = one.scenario->file;
    const std::string stem = from == standard_input_name ? "stdin" : std::filesystem::path(from).stem().string();
    for (const diagnosis::Mutant& mutant : one.mutants) {
      Json document = mutant.document;
      document.set("expect", Json::object({{"verdict", {}, Json::string(std::string(name_of(mutant.verdict)))}}));
      std::string path = fmt::format("{}/{}-{:04}.json", folder, stem, ++number);
      for (int copy = 2; std::filesystem::exists(path); ++copy)
        path = fmt::format("{}/{}-{}-{:04}.json", folder, stem, copy, number);
      Output file(path, report::ReadableText::Kind::json);
      file.write(write_json(document));
      file.commit();
      ++written;
    }
  }
  tell(fmt::format("wrote {} to {}; `lockstep test {}` runs {} again\n", counted(written, "mutant"),
                   report::one_line_text(folder), argument_for(folder), written == 1 ? "it" : "them"));
}

void write_text(const std::vector<diagnosis::Mutation>& all, const MutateArguments& arguments, Output& output) {
  ReportOptions report;
  report.quiet = arguments.quiet || (all.size() > 1 && !arguments.verbose);
  report.verbose = arguments.verbose;
  report.color = use_color(arguments, output.terminal());
  for (const diagnosis::Mutation& one : all) {
    if (!report.quiet && &one != &all.front()) output.write("\n");
    report::mutation_text(one, report, output.writer());
  }
  if (all.size() < 2 || arguments.quiet) return;
  output.write("\n");
  report::mutation_summary_text(all, output.writer());
}

int run(const MutateArguments& arguments) {
  const int jobs = arguments.jobs.empty() ? static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))
                                          : static_cast<int>(number_of("--jobs", arguments.jobs, 1024));
  const std::vector<std::string> files = scenario_files(arguments.paths);
  if (files.empty()) return nothing_found(arguments.paths);
  // What cannot be written is said before the work.
  Output output(arguments.output, report::kind_of_format(arguments.format));
  if (!arguments.mutants.empty()) make_empty_folder(arguments.mutants);
  Mutations mutations(arguments, files);
  const std::vector<diagnosis::Mutation> all = mutations.all(jobs);
  const std::size_t passed_over = files.size() - all.size() - mutations.refused() - mutations.failed();
  if (passed_over > 0 && !arguments.quiet)
    tell(fmt::format("lockstep mutate: passed over {} of {}, which {} wrong before any edit\n", passed_over,
                     counted(files.size(), "file"), passed_over == 1 ? "is" : "are"));
  if (all.empty()) return mutations.failed() > 0 ? exit_failure : mutations.refused() > 0 ? exit_usage : exit_nothing;
  if (arguments.format == "json") {
    report::mutation_json(all, output.writer());
  } else if (arguments.format == "markdown") {
    report::mutation_markdown(all, output.writer());
  } else {
    write_text(all, arguments, output);
  }
  output.commit();
  if (!arguments.mutants.empty()) write_mutants(all, arguments.mutants);
  const bool explained = std::all_of(all.begin(), all.end(), [](const diagnosis::Mutation& one) {
    return diagnosis::counts_of(one.mutants).unproved == 0 && one.cut_off.empty();
  });
  if (mutations.failed() > 0) return exit_failure;
  if (mutations.refused() > 0) return exit_usage;
  return explained ? exit_right : exit_wrong;
}

}  // namespace

Command mutate_command() {
  const auto arguments = std::make_shared<MutateArguments>();
  Command command;
  command.name = "mutate";
  command.summary = "Break a right schedule in every way that one edit can, and prove what is noticed.";
  command.text =
      "Applies every single edit to a schedule that is right: steps dropped, doubled and moved, other groups, factors, "
      "reductions and geometries, parameters in and out of a step, early and late, ranks left out. Each mutant is "
      "killed, which means that an engine finds it wrong, or proved to be right for every size. Both engines look at "
      "each at the file's own sizes, or, where these are more than 16 ranks or 4 micro-batches, at a small layout; "
      "what is right there the parametric engine decides for every size, and names the smallest at which it is wrong. "
      "What it cannot follow is tried at the sizes around, and counted as not proved if it is right there. Beside it "
      "stands what a comparison of replicas and one with one device that accepts 8 % would have seen. Exit status 0 if "
      "every mutant is killed or proved equivalent, 1 if one is not, 2 if a file is wrong before any edit.";
  command.examples = {
      {"lockstep mutate scenario.json", "what becomes of each kind of mutant"},
      {"lockstep mutate -v scenario.json", "every mutant, as an edit to try"},
      {"lockstep mutate scenario.json --write-mutants mutants/", "each as a scenario of its own, for `lockstep test`"},
      {"lockstep mutate -f markdown scenarios/ddp/", "the tables for a document"},
  };
  std::vector<OptionRow> output = arguments->output_rows();
  output.front() = {"-f,--format",
                    "KIND",
                    "What to write: text for people, json for programs, markdown for documents.",
                    {"text", "json", "markdown"},
                    &arguments->format};
  command.options =
      join({{{"FILES", "", std::string(files_help), {}, &arguments->paths},
             {"--write-mutants",
              "FOLDER",
              "Write each mutant to FOLDER as a scenario that expects what became of it.",
              {},
              &arguments->mutants},
             {"-j,--jobs", "N", "Files to go through at once; default one per core.", {}, &arguments->jobs}},
            std::move(output)});
  command.options.push_back(include_row());
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
