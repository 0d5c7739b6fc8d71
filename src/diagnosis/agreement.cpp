// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <string_view>
#include <vector>

#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/diagnosis/engine_details.h"
#include "src/diagnosis/engines.h"

namespace lockstep::diagnosis {

namespace {

enum class Wrong { nothing, some, all };

/// What engines can see that compute with numbers.
Wrong wrong_in(const BufferResult& buffer) {
  bool some = false, all = true;
  for (const PieceResult& piece : buffer.pieces) {
    some = some || !piece.right_unclipped;
    all = all && !piece.right_unclipped;
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
std::string compare_bits(const Model& model, std::string_view name, const HostResult& first,
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

/// The first two engines that differ, the one above in the table first, and in what.
std::string first_difference(const CheckResult& result, const CheckOptions& options) {
  for (const EngineResult& own : result.engines) {
    if (!own.ran() || engine_row(own.name).compare == nullptr) continue;
    for (const EngineResult& above : result.engines) {
      if (&above == &own) break;
      if (!above.ran()) continue;
      std::string difference = engine_row(own.name).compare(result, above, own, options);
      if (!difference.empty()) return difference;
    }
  }
  return "";
}

/// " --engine symbolic,mpi --ranks 2": what runs the same engines again; "" where a plain check does.
std::string options_for_the_same(const CheckResult& result, const CheckOptions& options) {
  std::vector<std::string_view> names;
  std::string processes;
  bool plain = !options.host_forced;
  for (const EngineResult& engine : result.engines) {
    if (!engine.ran()) continue;
    const EngineRow& row = engine_row(engine.name);
    names.push_back(engine.name);
    plain = plain && row.by_default;
    if (engine.processes > 0 && processes.empty())
      processes = fmt::format(" {} {}", row.processes_option, engine.processes);
  }
  return plain ? "" : fmt::format(" --engine {}{}", fmt::join(names, ","), processes);
}

}  // namespace

std::string compare_numbers(const CheckResult& result, const EngineResult& above, const EngineResult& own,
                            const CheckOptions&) {
  const Model& model = result.scenario->schedule->model;
  if (const auto* symbolic = detail_of<SymbolicDetail>(above); symbolic != nullptr)
    return compare_with_symbolic(model, symbolic->found, *own.numbers, own.name);
  return above.numbers ? compare_bits(model, above.name, *above.numbers, own.name, *own.numbers) : "";
}

std::string compare_by_classes(const CheckResult&, const EngineResult& above, const EngineResult& own,
                               const CheckOptions&) {
  if (detail_of<SymbolicDetail>(above) == nullptr) return "";
  if (above.verdict != own.verdict)
    return fmt::format("{} finds {}, {} {}", above.name, name_of(above.verdict), own.name, name_of(own.verdict));
  if (above.verdict != Verdict::mismatch || above.step == own.step) return "";
  return fmt::format("{} finds the first wrong optimizer step to be {}, {} {}", above.name, above.step, own.name,
                     own.step);
}

std::string find_disagreement(const CheckResult& result, const CheckOptions& options) {
  if (result.scenario == nullptr || result.scenario->schedule == nullptr) return "";
  const std::string difference = first_difference(result, options);
  if (difference.empty()) return "";
  return fmt::format(
      "the engines disagree, which is a bug of lockstep: {}. Replay it with: lockstep check {}{} --seed {} -v",
      difference, result.file, options_for_the_same(result, options), options.seed);
}

}  // namespace lockstep::diagnosis
