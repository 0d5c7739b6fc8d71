// SPDX-License-Identifier: Apache-2.0
#include "src/cli/shard_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>
#include <set>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/cli/hash_report.h"
#include "src/cli/options.h"

namespace lockstep::cli {

namespace {

template <class Number>
std::optional<Number> read_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

ShardOption read_shard_option(const std::string& text) {
  const std::size_t colon = text.find(':'), middle = text.find_first_of("/@");
  if (colon != std::string::npos && middle != std::string::npos && colon < middle) {
    const std::string_view view = text;
    const auto dim = read_number<std::int64_t>(view.substr(0, colon));
    const auto place = read_number<std::uint64_t>(view.substr(colon + 1, middle - colon - 1));
    const auto of = read_number<std::uint64_t>(view.substr(middle + 1));
    if (dim && place && of) return {text, *dim, text[middle] == '/', *place, *of};
  }
  usage_error(fmt::format(
      "--shard takes DIM:INDEX/COUNT, as 1:0/8 for the first of 8 equal parts of dimension 1, or DIM:FIRST@SIZE, as "
      "1:700@1000 for a part that begins at 700 of 1000; found \"{}\"",
      printable(text)));
}

}  // namespace

std::vector<ShardOption> read_shard_options(const std::vector<std::string>& texts) {
  std::vector<ShardOption> options;
  for (const std::string& text : texts) {
    const ShardOption option = read_shard_option(text);
    if (option.of == 0 && option.equal_parts)
      usage_error(fmt::format("--shard {}: COUNT is 0, but a dimension has at least 1 part, as 0:0/1", text));
    if (option.place >= option.of && option.equal_parts)
      usage_error(fmt::format("--shard {}: parts are counted from 0, so that the last of {} is {}", text, option.of,
                              option.of - 1));
    options.push_back(option);
  }
  return options;
}

TensorShard shard_of(const StoredTensor& tensor, const std::vector<ShardOption>& options, const std::string& file) {
  const auto dims = static_cast<std::int64_t>(tensor.shape.size());
  TensorShard shard{std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape};
  std::set<std::int64_t> seen;
  for (const ShardOption& option : options) {
    const auto refuse = [&](const std::string& sentence) {
      usage_error(fmt::format("{}: --shard {}: tensor {} has shape [{}]{}", file, option.text, printable(tensor.name),
                              fmt::join(tensor.shape, ", "), sentence));
    };
    if (option.dim >= dims || option.dim < -dims)
      refuse(dims == 0 ? ", no dimension" : fmt::format(", dimensions 0 to {}", dims - 1));
    const std::int64_t dim = option.dim < 0 ? option.dim + dims : option.dim;
    if (!seen.insert(dim).second) refuse(fmt::format(", and dimension {} was given twice", dim));
    const std::size_t d = at(dim);
    const std::uint64_t size = tensor.shape[d];
    if (option.equal_parts) {
      if (__builtin_mul_overflow(size, option.of, &shard.whole[d])) refuse(", and the whole passes 2^64 elements");
      shard.begin[d] = size * option.place;
    } else {
      if (size > option.of || option.place > option.of - size)
        refuse(fmt::format(", and {} from {} on {} the end of {}", counted(size, "element"), option.place,
                           size == 1 ? "passes" : "pass", option.of));
      shard.whole[d] = option.of;
      shard.begin[d] = option.place;
    }
  }
  std::uint64_t count = 1;
  for (const std::uint64_t size : shard.whole) {
    if (__builtin_mul_overflow(count, size, &count))
      usage_error(fmt::format("{}: tensor {} as a shard of shape [{}] passes 2^64 elements", file,
                              printable(tensor.name), fmt::join(shard.whole, ", ")));
  }
  return shard;
}

}  // namespace lockstep::cli
