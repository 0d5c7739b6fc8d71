// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/hash.h"
#include "lockstep/model.h"
#include "lockstep/sketch.h"
#include "src/numeric/mix.h"

namespace lockstep::test {

/// A folder that is gone at the end.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() / ("lockstep-live-" + std::to_string(std::random_device()()))) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}
inline void write_all(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

/// The nearest value of the type.
inline double rounded(double value, Dtype dtype) {
  if (dtype == Dtype::float64) return value;
  const auto single = static_cast<float>(value);
  if (dtype == Dtype::float32) return single;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof(bits));
  bits += 0x7FFF + (bits >> 16 & 1);  // to even
  bits &= 0xFFFF0000;
  float result = 0;
  std::memcpy(&result, &bits, sizeof(bits));
  return result;
}

/// Normally distributed numbers of one seed.
inline std::vector<double> drawn(std::size_t count, std::uint64_t seed, Dtype dtype = Dtype::float32) {
  std::mt19937_64 generator(numeric::splitmix(seed, 0));
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = rounded(normal(generator), dtype);
  return values;
}

/// The sums of a row as a capture keeps them: whole numbers of up to 30 bits and the exponent of two of what they
/// count.
inline std::pair<std::vector<std::int32_t>, std::int32_t> shortened(const std::vector<double>& sums) {
  double largest = 0;
  for (const double sum : sums) largest = std::max(largest, std::abs(sum));
  int exponent = 0;
  std::frexp(largest, &exponent);
  exponent -= 30;
  std::vector<std::int32_t> numbers;
  numbers.reserve(sums.size());
  for (const double sum : sums)
    numbers.push_back(static_cast<std::int32_t>(std::nearbyint(std::ldexp(sum, -exponent))));
  return {numbers, exponent};
}

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

/// Writes a captured run as a recorder does.
class RunWriter {
 public:
  struct Settings {
    std::vector<std::pair<std::string, int>> mesh = {{"dp", 2}};
    std::vector<std::string> data_axes = {"dp"};
    std::string loss = "\"local_mean\"";
    int sums = 128;
    Dtype dtype = Dtype::float32;  ///< of contributions
    Dtype result_dtype = Dtype::float32;
    bool collectives = false;  ///< they are recorded, with the gradients that they carry
    std::string adapter = "ddp";
    bool shortened = false;  ///< sketches are whole numbers times powers of two, as captures write them of float32
  };
  RunWriter(std::string folder, Settings settings) : folder_(std::move(folder)), settings_(std::move(settings)) {
    int world = 1;
    for (const auto& [axis, size] : settings_.mesh) world *= size;
    ranks_.resize(static_cast<std::size_t>(world));
    std::vector<std::string> data;
    std::vector<int> sizes, all;
    for (const auto& [axis, size] : settings_.mesh) {
      axes_.push_back("\"" + axis + "\"");
      sizes.push_back(size);
    }
    for (const std::string& axis : settings_.data_axes) data.push_back("\"" + axis + "\"");
    for (int rank = 0; rank < world; ++rank) all.push_back(rank);
    for (int rank = 0; rank < world; ++rank) {
      line(
          rank,
          R"({{"event":"run","lockstep_capture":1,"rank":{},"world":{},"adapter":"{}","versions":{{"lockstep":"0.1.0"}},)"
          R"("sums":{},"seed":0,"mesh":{{"axes":[{}],"sizes":[{}],"ranks":[{}]}},"data_axes":[{}],"loss":{},"collectives":{}}})",
          rank, world, settings_.adapter, settings_.sums, fmt::join(axes_, ","), fmt::join(sizes, ","),
          fmt::join(all, ","), fmt::join(data, ","), settings_.loss, settings_.collectives);
    }
  }

  int world() const { return static_cast<int>(ranks_.size()); }

  template <class... Arguments>
  void line(int rank, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    ranks_[static_cast<std::size_t>(rank)].text += fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  }

  /// On every rank; `cuts`: where pieces begin and end; `group`: of the optimizer's; `shape`: where it has rows.
  void parameter(int id, const std::string& name, std::int64_t numel, std::vector<std::int64_t> cuts = {},
                 int group = 0, const std::string& shape = "") {
    if (cuts.empty()) cuts = {0, numel};
    std::string pieces;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      pieces += fmt::format(R"({}{{"range":[{},{}]}})", i > 0 ? "," : "", cuts[i], cuts[i + 1]);
    for (int rank = 0; rank < world(); ++rank)
      line(rank,
           R"({{"event":"parameter","id":{},"name":"{}","shape":[{}],"dtype":"float32","frozen":false,"aliases":[],)"
           R"({}"placed":[{}],"pieces":[{}]}})",
           id, name, shape.empty() ? fmt::format("{}", numel) : shape,
           group == 0 ? "" : fmt::format(R"("group":{},)", group), fmt::join(axes_, ","), pieces);
  }

  void contribution(int rank, int step, int micro_batch, int id, int piece, const std::vector<double>& values,
                    std::int64_t first = 0) {
    tensor(rank, step, fmt::format(R"("event":"contribution","micro_batch":{},)", micro_batch), id, piece, values,
           first, settings_.dtype);
  }
  void result(int rank, int step, int id, int piece, const std::vector<double>& values, std::int64_t first = 0) {
    tensor(rank, step, R"("event":"result",)", id, piece, values, first, settings_.result_dtype);
  }
  void step(int rank, int step, int micro_batches, const std::string& tokens = "null") {
    line(rank, R"({{"event":"step","step":{},"micro_batches":{},"tokens":{}}})", step, micro_batches, tokens);
  }

  /// Writes all files; every rank ends.
  void finish(const std::vector<int>& without = {}) {
    for (int rank = 0; rank < world(); ++rank) {
      if (std::find(without.begin(), without.end(), rank) != without.end()) continue;
      One& one = ranks_[static_cast<std::size_t>(rank)];
      line(rank, R"({{"event":"end","steps":{},"seconds":1.5,"overhead":0.1}})", one.rows.size());
      write_all(std::filesystem::path(folder_) / fmt::format("rank-{:05}.jsonl", rank), one.text);
      for (const auto& [step, rows] : one.rows) {
        const auto sums = static_cast<std::size_t>(settings_.sums);
        std::string header = fmt::format(R"({{"sketches":{{"dtype":"F64","shape":[{},{}],"data_offsets":[0,{}]}}}})",
                                         rows.size() / sums, sums, rows.size() * 8);
        std::string data = bytes_of(rows);
        if (settings_.shortened) {
          std::vector<std::int32_t> exponents;
          data.clear();
          for (auto row = rows.begin(); row != rows.end(); row += settings_.sums) {
            const auto [numbers, exponent] = shortened({row, row + settings_.sums});
            data += bytes_of(numbers);
            exponents.push_back(exponent);
          }
          header = fmt::format(R"({{"sketches":{{"dtype":"I32","shape":[{},{}],"data_offsets":[0,{}]}},)"
                               R"("exponents":{{"dtype":"I32","shape":[{}],"data_offsets":[{},{}]}}}})",
                               exponents.size(), sums, data.size(), exponents.size(), data.size(),
                               data.size() + exponents.size() * sizeof exponents[0]);
          data += bytes_of(exponents);
        }
        header.resize((header.size() + 7) / 8 * 8, ' ');
        std::string bytes;
        for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xFF);
        bytes += header + data;
        write_all(std::filesystem::path(folder_) / fmt::format("rank-{:05}.step-{:05}.safetensors", rank, step), bytes);
      }
    }
  }

 private:
  struct One {
    std::string text;
    std::map<int, std::vector<double>> rows;  // by step
  };

  void tensor(int rank, int step, const std::string& head, int id, int piece, const std::vector<double>& values,
              std::int64_t first, Dtype dtype) {
    Sketch sketch(settings_.sums);
    sketch.add(values.data(), values.size(), static_cast<std::uint64_t>(first));
    const std::vector<double> sums = sketch.values();
    std::vector<double>& rows = ranks_[static_cast<std::size_t>(rank)].rows[step];
    const std::size_t row = rows.size() / static_cast<std::size_t>(settings_.sums);
    rows.insert(rows.end(), sums.begin(), sums.end());
    line(rank, R"({{{}"step":{},"parameter":{},"piece":{},"row":{},"hash":"{}","dtype":"{}","nonfinite":{}}})", head,
         step, id, piece, row,
         hash_elements(values.data(), values.size(), static_cast<std::uint64_t>(first)).to_string(), name_of(dtype),
         sketch.non_finite());
  }

  std::string folder_;
  Settings settings_;
  std::vector<std::string> axes_;  // with quotes; all parameters say how ranks hold them along each
  std::vector<One> ranks_;
};

/// With what coefficient a contribution enters the result of an optimizer.
using Coefficient = std::function<double(int owner, int rank, int step, int micro_batch)>;

/// A run of `steps` optimizer steps and `micro_batches` of one model on ranks that see different tokens and all own
/// everything; each addition is rounded as the result's type is.
struct SimpleRun {
  RunWriter::Settings settings;
  int steps = 1, micro_batches = 2;
  std::vector<std::pair<std::string, std::size_t>> parameters = {
      {"embedding.weight", 4000}, {"layers.0.weight", 2000}, {"layers.1.weight", 2000}};
  /// By parameter, or the same for all.
  std::function<double(const std::string& name, int owner, int rank, int step, int micro_batch)> coefficient;
  /// Whose data a rank reads.
  std::function<int(int rank)> data = [](int rank) { return rank; };
  std::function<std::string(int rank, int step)> tokens = [](int, int) { return std::string("null"); };

  void write(const std::string& folder, const std::vector<int>& without = {}) const {
    RunWriter writer(folder, settings);
    for (std::size_t p = 0; p < parameters.size(); ++p)
      writer.parameter(static_cast<int>(p), parameters[p].first, static_cast<std::int64_t>(parameters[p].second));
    std::map<std::tuple<std::size_t, int, int, int>, std::vector<double>> drawn;  // parameter, rank, step, micro-batch
    const auto known = [&](std::size_t p, int rank, int step, int m) -> const std::vector<double>& {
      const auto [found, is_new] = drawn.try_emplace({p, rank, step, m});
      if (is_new) found->second = gradient(p, rank, step, m);
      return found->second;
    };
    for (int step = 0; step < steps; ++step) {
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const int id = static_cast<int>(p);
        for (int rank = 0; rank < writer.world(); ++rank) {
          for (int m = 0; m < micro_batches; ++m) writer.contribution(rank, step, m, id, 0, known(p, rank, step, m));
        }
        for (int owner = 0; owner < writer.world(); ++owner) {
          std::vector<double> sum(parameters[p].second);
          for (int before = 0; before <= step; ++before) {
            for (int rank = 0; rank < writer.world(); ++rank) {
              for (int m = 0; m < micro_batches; ++m) {
                const double c = coefficient(parameters[p].first, owner, rank, before - step, m);
                if (c == 0) continue;
                const std::vector<double>& one = known(p, rank, before, m);
                for (std::size_t i = 0; i < sum.size(); ++i)
                  sum[i] = rounded(sum[i] + rounded(c * one[i], settings.result_dtype), settings.result_dtype);
              }
            }
          }
          writer.result(owner, step, id, 0, sum);
        }
      }
      for (int rank = 0; rank < writer.world(); ++rank) writer.step(rank, step, micro_batches, tokens(rank, step));
    }
    writer.finish(without);
  }

  std::vector<double> gradient(std::size_t parameter, int rank, int step, int micro_batch) const {
    // Contributions have a part in common, as gradients of one model do.
    std::vector<double> values = drawn(parameters[parameter].second, 1000 * parameter + 7, settings.dtype);
    const std::vector<double> own =
        drawn(parameters[parameter].second,
              1'000'000 * (parameter + 1) + 10'000 * static_cast<std::uint64_t>(data(rank)) +
                  100 * static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(micro_batch),
              settings.dtype);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = rounded(0.3 * values[i] + own[i], settings.dtype);
    return values;
  }
};

}  // namespace lockstep::test
