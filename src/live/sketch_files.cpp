// SPDX-License-Identifier: Apache-2.0
#include "src/live/sketch_files.h"

#include <fmt/format.h>

#include <bit>
#include <filesystem>

#include "src/base/inputs.h"
#include "src/base/refuse.h"

namespace lockstep::live {

static_assert(std::endian::native == std::endian::little, "rows are read as they are stored");

namespace {

[[noreturn]] void refuse_file(const TensorFile& file, const std::string& sentence) {
  throw InputError({Diagnostic{{}, fmt::format("{}: {}", file.path(), sentence)}});
}

}  // namespace

std::shared_ptr<const TensorFile> SketchFiles::file(int rank, int step) {
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
  auto opened = std::make_shared<const TensorFile>(path);
  const auto& tensors = opened->tensors();
  const auto sums = static_cast<std::uint64_t>(run_.header.sums);
  if (tensors.size() != 1 || tensors[0].name != "sketches") refuse_file(*opened, "expected one tensor, \"sketches\"");
  const StoredTensor& tensor = tensors[0];
  if (tensor.hashed != Dtype::float64 || tensor.shape.size() != 2 || tensor.shape[1] != sums)
    refuse_file(*opened,
                fmt::format("expected \"sketches\" to be float64 with rows of {} sums, as the rank's first line says; "
                            "found {} in {} dimensions{}",
                            sums, tensor.dtype, tensor.shape.size(),
                            tensor.shape.size() == 2 ? fmt::format(", rows of {}", tensor.shape[1]) : ""));
  // A process may have about a thousand files open; those of more ranks are opened each time.
  constexpr std::size_t most_open = 512;
  if (files_.size() < most_open) files_.emplace(std::pair(step, rank), opened);
  return opened;
}

std::optional<std::vector<double>> SketchFiles::row(const SketchedTensor& tensor, int step) {
  const std::shared_ptr<const TensorFile> from = file(tensor.rank, step);
  if (from == nullptr) return std::nullopt;
  const StoredTensor& sketches = from->tensors()[0];
  if (static_cast<std::uint64_t>(tensor.row) >= sketches.shape[0])
    refuse_file(*from, fmt::format("rank {} names row {} in optimizer step {}, and the file has {}", tensor.rank,
                                   tensor.row, step, sketches.shape[0]));
  const auto sums = static_cast<std::size_t>(sketches.shape[1]);
  std::vector<double> values(sums);
  from->read(sketches.begin + static_cast<std::uint64_t>(tensor.row) * sums * sizeof(double), values.data(),
             sums * sizeof(double));
  if (tensor.loss_scale != 1) {
    for (double& value : values) value /= tensor.loss_scale;
  }
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
