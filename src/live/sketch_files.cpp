// SPDX-License-Identifier: Apache-2.0
#include "src/live/sketch_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>

#include "src/base/inputs.h"
#include "src/base/refuse.h"

namespace lockstep::live {

static_assert(std::endian::native == std::endian::little, "rows are read as they are stored");

namespace {

constexpr const char* shortened = "I32";  // the file's own name of a dtype that has no hash
constexpr const char* expected_tensors = "expected a tensor \"sketches\", alone or with \"exponents\"";

[[noreturn]] void refuse_file(const TensorFile& file, const std::string& sentence) {
  throw InputError({Diagnostic{{}, fmt::format("{}: {}", file.path(), sentence)}});
}

/// The sketch with `sums` sums of the same gradient. An element's sum is 64 b + r, with r whatever the number of sums
/// is, and b a number below one in so many parts (docs/sketch.md): in q times fewer parts it is b / q.
std::vector<double> folded(const std::vector<double>& values, std::size_t sums) {
  constexpr std::size_t block = 64;
  const std::size_t into_one = values.size() / sums;
  std::vector<double> result(sums);
  for (std::size_t i = 0; i < values.size(); ++i) result[i / block / into_one * block + i % block] += values[i];
  return result;
}

}  // namespace

std::shared_ptr<const SketchFiles::Open> SketchFiles::open(int rank, int step) {
  const std::lock_guard lock(mutex_);
  if (const auto found = files_.find({step, rank}); found != files_.end()) return found->second;
  const std::string path =
      (std::filesystem::path(run_.folder) / fmt::format("rank-{:05}.step-{:05}.safetensors", rank, step)).string();
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    missing_.insert({step, rank});
    return nullptr;
  }
  if (leads_out_of(path, run_.folder))
    refuse(fmt::format("{}: it is a link that leads out of the folder of the run; expected a file", path));
  auto opened = std::make_shared<Open>();
  opened->file = std::make_unique<const TensorFile>(path);
  for (const StoredTensor& tensor : opened->file->tensors()) {
    const StoredTensor*& place = tensor.name == "sketches" ? opened->sketches : opened->exponents;
    if ((tensor.name != "sketches" && tensor.name != "exponents") || place != nullptr)
      refuse_file(*opened->file, fmt::format("{}; found \"{}\"", expected_tensors, tensor.name));
    place = &tensor;
  }
  if (opened->sketches == nullptr) refuse_file(*opened->file, fmt::format("{}; found none", expected_tensors));
  const auto sums = static_cast<std::uint64_t>(run_.header.sums);
  const StoredTensor& tensor = *opened->sketches;
  const StoredTensor* exponents = opened->exponents;
  const bool is_shortened = exponents != nullptr;
  if ((is_shortened ? tensor.dtype != shortened : tensor.hashed != Dtype::float64) || tensor.shape.size() != 2 ||
      tensor.shape[1] != sums)
    refuse_file(
        *opened->file,
        fmt::format("expected \"sketches\" to be {} with rows of {} sums, as the rank's first line says; "
                    "found {} in {} dimensions{}",
                    is_shortened ? "I32 beside \"exponents\"," : "float64", sums, tensor.dtype, tensor.shape.size(),
                    tensor.shape.size() == 2 ? fmt::format(", rows of {}", tensor.shape[1]) : ""));
  if (is_shortened &&
      (exponents->dtype != shortened || exponents->shape.size() != 1 || exponents->shape[0] != tensor.shape[0]))
    refuse_file(
        *opened->file,
        fmt::format("expected \"exponents\" to be I32, one for each of the {} rows of \"sketches\"; found {} of "
                    "{} elements in {} dimensions",
                    tensor.shape[0], exponents->dtype, exponents->count, exponents->shape.size()));
  // A process may have about a thousand files open; those of more ranks are opened each time.
  constexpr std::size_t most_open = 512;
  if (files_.size() < most_open) files_.emplace(std::pair(step, rank), opened);
  return opened;
}

std::optional<std::vector<double>> SketchFiles::row(const SketchedTensor& tensor, int step) {
  const std::shared_ptr<const Open> from = open(tensor.rank, step);
  if (from == nullptr) return std::nullopt;
  const StoredTensor& sketches = *from->sketches;
  const auto row = static_cast<std::uint64_t>(tensor.row);
  if (row >= sketches.shape[0])
    refuse_file(*from->file, fmt::format("rank {} names row {} in optimizer step {}, and the file has {}", tensor.rank,
                                         tensor.row, step, sketches.shape[0]));
  const auto sums = static_cast<std::size_t>(sketches.shape[1]);
  std::vector<double> values(sums);
  if (from->exponents == nullptr) {
    from->file->read(sketches.begin + row * sums * sizeof(double), values.data(), sums * sizeof(double));
  } else {
    std::vector<std::int32_t> numbers(sums);
    std::int32_t exponent = 0;
    from->file->read(sketches.begin + row * sums * sizeof(std::int32_t), numbers.data(), sums * sizeof(std::int32_t));
    from->file->read(from->exponents->begin + row * sizeof exponent, &exponent, sizeof exponent);
    std::transform(numbers.begin(), numbers.end(), values.begin(),
                   [exponent](std::int32_t number) { return std::ldexp(number, exponent); });
  }
  if (tensor.loss_scale != 1) {
    for (double& value : values) value /= tensor.loss_scale;
  }
  if (sums_ < sums) values = folded(values, sums_);
  return values;
}

void SketchFiles::close_before(int step) {
  const std::lock_guard lock(mutex_);
  files_.erase(files_.begin(), files_.lower_bound({step, 0}));
}

std::set<std::pair<int, int>> SketchFiles::missing() const {
  const std::lock_guard lock(mutex_);
  return missing_;
}

}  // namespace lockstep::live
