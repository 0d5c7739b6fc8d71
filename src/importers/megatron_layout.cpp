// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>

#include "src/importers/megatron_pipeline.h"

namespace lockstep::importers {

namespace {

constexpr std::size_t longest = 100'000;
constexpr int most_digits = 4;

/// Reads "*29" at `at`, and steps over it; 1 where there is none.
std::size_t repetitions(const std::string& text, std::size_t& at) {
  if (at >= text.size() || text[at] != '*') return 1;
  std::size_t count = 0;
  int digits = 0;
  std::size_t next = at + 1;
  for (; next < text.size() && std::isdigit(static_cast<unsigned char>(text[next])) != 0 && digits < most_digits;
       ++next)
    count = 10 * count + static_cast<std::size_t>(text[next] - '0'), ++digits;
  if (digits == 0) return 1;
  at = next;
  return count;
}

bool append(std::string& to, const std::string& part, std::size_t count) {
  if (to.size() + count * part.size() > longest) return false;
  for (std::size_t i = 0; i < count; ++i) to += part;
  return true;
}

/// Brackets with a number behind them written out, then single letters with one.
std::optional<std::string> unrolled(const std::string& text) {
  std::string flat, result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t close = text[i] == '(' ? text.find(')', i) : std::string::npos;
    const std::string part = close != std::string::npos ? text.substr(i + 1, close - i - 1) : text.substr(i, 1);
    i = close != std::string::npos ? close + 1 : i + 1;
    const std::size_t count = close != std::string::npos ? repetitions(text, i) : 1;
    if (!append(flat, part, count)) return std::nullopt;
  }
  for (std::size_t i = 0; i < flat.size();) {
    const std::string part = flat.substr(i++, 1);
    if (!append(result, part, repetitions(flat, i))) return std::nullopt;
  }
  return result;
}

}  // namespace

std::optional<std::vector<MegatronStage>> read_megatron_layout(const std::string& text) {
  std::string bare = text;
  bare.erase(std::remove(bare.begin(), bare.end(), ','), bare.end());
  const std::optional<std::string> flat = unrolled(bare);
  if (!flat) return std::nullopt;
  std::vector<MegatronStage> stages(1);
  for (const char c : *flat) {
    switch (c) {
      case '|':
        stages.emplace_back();
        break;
      case 'E':
        ++stages.back().embeddings;
        break;
      case 't':
        ++stages.back().layers;
        break;
      case 'm':
        ++stages.back().mtp;
        break;
      case 'L':
        ++stages.back().losses;
        break;
      default:
        return std::nullopt;
    }
  }
  return stages;
}

}  // namespace lockstep::importers
