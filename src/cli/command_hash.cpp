// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "src/base/counted.h"
#include "src/cli/files.h"
#include "src/cli/hash_report.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/shard_option.h"

namespace lockstep::cli {

namespace {

struct HashArguments {
  std::vector<std::string> files;
  std::vector<std::string> tensors;  // selectors
  std::vector<std::string> shards;
  std::string format = "text";
  std::string output;  // "": standard output
  std::uint64_t offset = 0;
  bool compare = false, quiet = false, verbose = false;
};

Selectors selectors_of(const HashArguments& arguments) {
  for (const std::string& item : arguments.tensors) {
    if (const auto mistake = Selectors::check(item)) usage_error(fmt::format("--tensor {}: {}", item, *mistake));
  }
  return arguments.tensors.empty() ? Selectors() : Selectors(arguments.tensors);
}

/// The tensors of `file` that are asked for; at least one, unless the file holds none.
std::vector<TensorPlace> chosen_tensors(const TensorFile& file, const HashArguments& arguments) {
  std::vector<TensorPlace> chosen;
  // It stores one tensor and no name; the other file's tensor is chosen by name.
  if (arguments.compare && file.format() == "npy") return {{&file, 0}};
  const Selectors selectors = selectors_of(arguments);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const StoredTensor& tensor = file.tensors()[i];
    Parameter parameter;
    parameter.name = tensor.name;
    const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (selectors.chooses(parameter, static_cast<std::int64_t>(std::min(tensor.count, most))))
      chosen.push_back({&file, i});
    names.push_back(tensor.name);
  }
  if (!chosen.empty() || names.empty()) return chosen;
  std::string near = arguments.tensors.size() == 1 ? did_you_mean(arguments.tensors.front(), names) : "";
  if (near.empty()) {
    constexpr std::size_t most = 5;
    const std::size_t shown = std::min(names.size(), most);
    near = "; there are";
    for (std::size_t i = 0; i < shown; ++i) near += fmt::format("{} {}", i > 0 ? "," : "", printable(names[i]));
    if (names.size() > shown) near += fmt::format(" and {} more", names.size() - shown);
  }
  usage_error(fmt::format("{}: no tensor fits --tensor {}{}", file.path(), fmt::join(arguments.tensors, " "), near));
}

void check_offset(const std::vector<TensorPlace>& tensors, std::uint64_t offset) {
  if (offset == 0) return;
  if (tensors.size() != 1)
    usage_error(
        fmt::format("--offset says where one tensor begins, and {} are chosen from {}; choose one with --tensor",
                    tensors.size(), tensors.front().file->path()));
  const std::uint64_t count = tensors.front().stored().count;
  if (count > 0 && offset > std::numeric_limits<std::uint64_t>::max() - (count - 1))
    usage_error(fmt::format("--offset {} and {} pass the last index, 2^64 - 1", offset, counted(count, "element")));
}

std::vector<GradientHash> hashes_of(const std::vector<TensorPlace>& tensors, std::uint64_t offset,
                                    const std::vector<ShardOption>& options) {
  if (options.empty()) return hash_tensors(tensors, offset);
  std::vector<TensorShard> shards;
  shards.reserve(tensors.size());
  for (const TensorPlace& place : tensors) shards.push_back(shard_of(place.stored(), options, place.file->path()));
  return hash_shards(tensors, shards);
}

std::vector<TensorPlace> with_hash(const std::vector<TensorPlace>& tensors) {
  std::vector<TensorPlace> result;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(result),
               [](const TensorPlace& place) { return place.stored().hashed.has_value(); });
  return result;
}

int run_hashes(const HashArguments& arguments) {
  const std::vector<ShardOption> shards = read_shard_options(arguments.shards);
  if (!shards.empty() && arguments.offset != 0)
    usage_error("--shard and --offset both say where a tensor begins; leave out one of them");
  HashReport report(arguments.output, arguments.format);
  bool any = false;
  std::vector<std::unique_ptr<TensorFile>> files;
  files.reserve(arguments.files.size());
  // All headers first, so that a mistake in the last file does not come after minutes of reading the others.
  for (const std::string& file : arguments.files) files.push_back(std::make_unique<TensorFile>(file));
  std::vector<std::vector<TensorPlace>> chosen;
  for (const auto& file : files) {
    chosen.push_back(chosen_tensors(*file, arguments));
    if (!chosen.back().empty()) check_offset(chosen.back(), arguments.offset);
    if (shards.empty()) continue;
    for (const TensorPlace& place : with_hash(chosen.back())) shard_of(place.stored(), shards, file->path());
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::vector<TensorPlace> hashed = with_hash(chosen[i]);
    any = any || !hashed.empty();
    report.file(*files[i], chosen[i], hashes_of(hashed, arguments.offset, shards), files.size() > 1);
  }
  report.finish();
  return any ? exit_right : exit_nothing;
}

int run_comparison(const HashArguments& arguments) {
  if (arguments.files.size() != 2)
    usage_error(fmt::format("--compare takes two files, found {}", arguments.files.size()));
  if (!arguments.shards.empty())
    usage_error("--compare compares what stands at the same places of two files, shards or not; leave out --shard");
  const TensorFile a(arguments.files[0]), b(arguments.files[1]);
  Comparison comparison{a, b, pair_tensors(chosen_tensors(a, arguments), chosen_tensors(b, arguments)), {}};
  for (const TensorPair& pair : comparison.pairs) {
    if (pair.a && pair.b) check_offset({*pair.a}, arguments.offset);
  }
  if (arguments.offset != 0 && comparison.pairs.size() != 1)
    usage_error(fmt::format("--offset says where one tensor begins, and {} are compared; choose one with --tensor",
                            comparison.pairs.size()));
  const std::size_t most_ranges = arguments.verbose ? std::numeric_limits<std::size_t>::max() : 8;
  for (const TensorPair& pair : comparison.pairs) {
    comparison.differences.push_back(
        pair.comparable() ? compare_tensors(*pair.a, *pair.b, arguments.offset, most_ranges) : TensorDifference{});
  }
  return write_comparison(comparison, arguments.output, arguments.format, arguments.quiet, arguments.verbose);
}

}  // namespace

Command hash_command() {
  const auto arguments = std::make_shared<HashArguments>();
  Command command;
  command.name = "hash";
  command.summary = "Hash the tensors of safetensors and .npy files, or compare two files.";
  command.text =
      "Prints each tensor's dtype, shape and gradient hash (docs/hash.md). Whole files are read at the speed of the "
      "disk and need little memory. float32, float64, bfloat16 and float16 have a hash; tensors of other dtypes are "
      "listed as skipped. Because hashes of shards add up to the hash of the whole, shards are compared without "
      "gathering "
      "them: --shard says which part of which dimension a file holds, and --offset where a range of a flattened tensor "
      "begins.\n\n"
      "With --compare it names the tensors that differ and the ranges of elements in which they do, with the first "
      "values of each; -0 equals 0 and every NaN every other. Tensors meet by name; where one file holds a single "
      "tensor and one of the two is an .npy file, they meet whatever their names. Exit status 0 if all are equal, 1 if "
      "something differs or is in one file alone, 2 if a file is not valid, 4 if nothing could be hashed.";
  command.examples = {
      {"lockstep hash gradients.safetensors", "every tensor with its hash"},
      {"lockstep hash gradients.safetensors --tensor '*.weight' -f json", "some of them, for programs"},
      {"lockstep hash rank2.safetensors --shard 1:2/8", "the third of eight column shards"},
      {"lockstep hash --compare ours.safetensors theirs.safetensors", "what differs, and where"},
  };
  command.options = {
      {"FILES",
       "",
       "Files of tensors, .safetensors or .npy, folders of them, or globs in quotes; two files with --compare.",
       {},
       &arguments->files,
       {"*.safetensors", "*.npy"}},
      {"--compare", "", "Compare two files, tensor by tensor.", {}, &arguments->compare},
      {"--tensor",
       "GLOB",
       "Take the tensors whose names fit, or do not with ! before it; numel>N works too. May be given several times.",
       {},
       &arguments->tensors},
      {"--offset",
       "N",
       "The global index of the tensor's first element: the file holds a shard.",
       {},
       &arguments->offset},
      {"--shard",
       "DIM:INDEX/COUNT",
       "The file holds part INDEX, from 0, of COUNT equal parts of dimension DIM (-1: the last). An uneven part is "
       "DIM:FIRST@SIZE, from FIRST of SIZE on. May be given several times, for several dimensions.",
       {},
       &arguments->shards},
      {"-f,--format", "KIND", "What to write.", {"text", "json"}, &arguments->format},
      output_row(&arguments->output),
      {"-q,--quiet", "", "With --compare: the last line alone.", {}, &arguments->quiet},
      {"-v,--verbose", "", "With --compare: every tensor and every range that differs.", {}, &arguments->verbose},
  };
  command.uses_loops = true;
  command.run = [arguments] {
    const std::vector<std::string> files = tensor_files(arguments->files);
    if (files.empty())
      usage_error(fmt::format("there is no *.safetensors or *.npy file in {}", fmt::join(arguments->files, ", ")));
    arguments->files = files;
    return arguments->compare ? run_comparison(*arguments) : run_hashes(*arguments);
  };
  return command;
}

}  // namespace lockstep::cli
