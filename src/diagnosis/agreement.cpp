// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <string_view>
#include <vector>

#include "src/base/at.h"
#include "src/base/counted.h"

namespace lockstep {

namespace {

enum class Wrong { nothing, some, all };

Wrong wrong_in(const BufferResult& buffer) {
  bool some = false, all = true;
  for (const PieceResult& piece : buffer.pieces) {
    some = some || !piece.right;
    all = all && !piece.right;
  }
  if (!some) return Wrong::nothing;
  return all ? Wrong::all : Wrong::some;
}

std::string name_buffer(const Model& model, int rank, int buffer) {
  const int parameter = model.local(rank).buffers[at(buffer)].parameters.front();
  return fmt::format("{} on rank {}", model.parameters()[at(parameter)].name, rank);
}

/// Whether anything is wrong that a whole replay of some buffers must see.
bool any_wrong_in_replayed(const SymbolicResult& symbolic, const HostResult& numbers) {
  for (std::size_t index = 0; index < numbers.buffers.size() && index < symbolic.buffers.size(); ++index) {
    if (numbers.buffers[index].replayed && wrong_in(symbolic.buffers[index]) != Wrong::nothing) return true;
  }
  return false;
}

/// The first difference and how many more there are.
class Differences {
 public:
  void add(const std::function<std::string()>& sentence) {
    if (count_++ == 0) first_ = sentence();
  }
  std::string text() const { return count_ > 1 ? first_ + fmt::format(" (and {} more)", count_ - 1) : first_; }

 private:
  std::size_t count_ = 0;
  std::string first_;
};

/// The first buffer about which the findings of the symbolic engine and of `name` differ, as a sentence.
std::string compare_buffers(const Model& model, const SymbolicResult& symbolic, const HostResult& numbers,
                            std::string_view name) {
  if (symbolic.buffers.size() != numbers.buffers.size()) {
    return fmt::format("symbolic compared {}, {} compared {}", counted(symbolic.buffers.size(), "buffer"), name,
                       numbers.buffers.size());
  }
  Differences differences;
  for (std::size_t index = 0; index < numbers.buffers.size(); ++index) {
    const BufferResult& exact = symbolic.buffers[index];
    const HostBuffer& found = numbers.buffers[index];
    if (!found.replayed) continue;
    const Wrong wrong = wrong_in(exact);
    // A sample need not meet the wrong elements, unless all of them are wrong.
    const bool must_see = numbers.sampled ? wrong == Wrong::all : wrong != Wrong::nothing;
    const bool may_see = wrong != Wrong::nothing;
    if (found.right ? !must_see : may_see) continue;
    differences.add([&] {
      return fmt::format("{} is {} for symbolic and {} for {}", name_buffer(model, exact.rank, exact.buffer),
                         wrong == Wrong::nothing ? "right" : "wrong", found.right ? "right" : "wrong", name);
    });
  }
  return differences.text();
}

std::string compare_with_symbolic(const Model& model, const SymbolicResult& symbolic, const HostResult& numbers,
                                  std::string_view name) {
  if (symbolic.step == numbers.step) return compare_buffers(model, symbolic, numbers, name);
  if (numbers.step < symbolic.step) {
    return fmt::format("{} finds wrong values after optimizer step {}, symbolic none before step {}", name,
                       numbers.step, symbolic.step);
  }
  if (numbers.sampled || !any_wrong_in_replayed(symbolic, numbers)) return "";
  return fmt::format("symbolic finds wrong values after optimizer step {}, {} none before step {}", symbolic.step, name,
                     numbers.step);
}

/// The numbers are the same ones, so that every hash must be equal, bit for bit, and so must what was looked at.
std::string compare_numbers(const Model& model, std::string_view name, const HostResult& first,
                            std::string_view other_name, const HostResult& other) {
  if (first.step != other.step)
    return fmt::format("{} ends with optimizer step {}, {} with step {}", name, first.step, other_name, other.step);
  if (first.elements != other.elements || first.sampled != other.sampled ||
      first.buffers.size() != other.buffers.size())
    return fmt::format("{} replayed {}, {} {}", name, counted(first.elements, "element"), other_name, other.elements);
  Differences differences;
  for (std::size_t index = 0; index < first.buffers.size(); ++index) {
    const HostBuffer &a = first.buffers[index], &b = other.buffers[index];
    if (a.right == b.right && a.replayed == b.replayed && a.arithmetic == b.arithmetic && a.hash == b.hash &&
        a.expected_hash == b.expected_hash)
      continue;
    differences.add([&] {
      return fmt::format("{} is {} with hash {} for {} and {} with hash {} for {}",
                         name_buffer(model, a.rank, a.buffer), a.right ? "right" : "wrong", a.hash.to_string(), name,
                         b.right ? "right" : "wrong", b.hash.to_string(), other_name);
    });
  }
  for (std::size_t index = 0; index < first.reference.size() && index < other.reference.size(); ++index) {
    if (first.reference[index] == other.reference[index]) continue;
    differences.add([&] {
      return fmt::format("the reference of {} has hash {} for {} and {} for {}", model.logicals()[index].name,
                         first.reference[index].to_string(), name, other.reference[index].to_string(), other_name);
    });
  }
  return differences.text();
}

}  // namespace

std::string find_disagreement(const CheckResult& result, const CheckOptions& options) {
  if (result.scenario == nullptr || result.scenario->schedule == nullptr) return "";
  const Model& model = result.scenario->schedule->model;
  std::string difference;
  if (result.symbolic && result.host) difference = compare_with_symbolic(model, *result.symbolic, *result.host, "host");
  const std::pair<std::string_view, const std::optional<HostResult>&> others[] = {
      {"mpi", result.mpi}, {"cuda", result.cuda}, {"nccl", result.nccl}};
  for (const auto& [name, numbers] : others) {
    if (difference.empty() && result.symbolic && numbers)
      difference = compare_with_symbolic(model, *result.symbolic, *numbers, name);
    if (difference.empty() && result.host && numbers)
      difference = compare_numbers(model, "host", *result.host, name, *numbers);
  }
  for (std::size_t i = 0; i < std::size(others); ++i) {
    for (std::size_t j = i + 1; j < std::size(others); ++j) {
      const auto& [name, numbers] = others[i];
      const auto& [other_name, other_numbers] = others[j];
      if (difference.empty() && numbers && other_numbers)
        difference = compare_numbers(model, name, *numbers, other_name, *other_numbers);
    }
  }
  if (difference.empty() && result.symbolic && result.parametric) {
    const Verdict exact = engine_verdict(result, result.symbolic->match), by_classes = verdict_of(*result.parametric);
    if (exact != by_classes)
      difference = fmt::format("symbolic finds {}, parametric {}", name_of(exact), name_of(by_classes));
    else if (exact == Verdict::mismatch && result.symbolic->step != result.parametric->step)
      difference = fmt::format("symbolic finds the first wrong optimizer step to be {}, parametric {}",
                               result.symbolic->step, result.parametric->step);
  }
  bool transformer = false;
  if (difference.empty()) {
    difference = compare_with_transformer(result);
    // Where the model is not as claimed, the symbolic engine was told something else, and is right about that.
    transformer = !difference.empty() && placements_hold(*result.scenario, options.seed);
    if (!transformer) difference.clear();
  }
  if (difference.empty()) return "";
  std::string engines = options.host_forced ? " --engine symbolic,host" : "";
  if (transformer) engines = " --engine symbolic,transformer";
  if (result.mpi || result.cuda || result.nccl || result.parametric) {
    std::vector<std::string_view> names;
    if (result.parametric) names.push_back("parametric");
    if (result.symbolic) names.push_back("symbolic");
    if (result.host) names.push_back("host");
    if (transformer) names.push_back("transformer");
    if (result.mpi) names.push_back("mpi");
    if (result.cuda) names.push_back("cuda");
    if (result.nccl) names.push_back("nccl");
    engines = fmt::format(" --engine {}", fmt::join(names, ","));
    if (result.mpi) engines += fmt::format(" --ranks {}", result.mpi_processes);
    if (result.nccl && !result.mpi) engines += fmt::format(" --gpus {}", result.nccl_processes);
  }
  return fmt::format(
      "the engines disagree, which is a bug of lockstep: {}. Replay it with: lockstep check {}{} --seed {} -v",
      difference, result.file, engines, options.seed);
}

}  // namespace lockstep
