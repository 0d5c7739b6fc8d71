// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/agreement.h"

#include <fmt/format.h>

#include <functional>
#include <string_view>
#include <vector>

#include "src/diagnosis/transformer_agreement.h"

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
  const int parameter = model.local(rank).buffers[static_cast<std::size_t>(buffer)].parameters.front();
  return fmt::format("{} on rank {}", model.parameters()[static_cast<std::size_t>(parameter)].name, rank);
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
    return fmt::format("symbolic compared {} buffers, {} compared {}", symbolic.buffers.size(), name,
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
std::string compare_numbers(const Model& model, const HostResult& host, const HostResult& mpi) {
  if (host.step != mpi.step)
    return fmt::format("host ends with optimizer step {}, mpi with step {}", host.step, mpi.step);
  if (host.elements != mpi.elements || host.sampled != mpi.sampled || host.buffers.size() != mpi.buffers.size())
    return fmt::format("host replayed {} elements, mpi {}", host.elements, mpi.elements);
  Differences differences;
  for (std::size_t index = 0; index < host.buffers.size(); ++index) {
    const HostBuffer &a = host.buffers[index], &b = mpi.buffers[index];
    if (a.right == b.right && a.replayed == b.replayed && a.arithmetic == b.arithmetic && a.hash == b.hash &&
        a.expected_hash == b.expected_hash)
      continue;
    differences.add([&] {
      return fmt::format("{} is {} with hash {} for host and {} with hash {} for mpi",
                         name_buffer(model, a.rank, a.buffer), a.right ? "right" : "wrong", a.hash.to_string(),
                         b.right ? "right" : "wrong", b.hash.to_string());
    });
  }
  for (std::size_t index = 0; index < host.reference.size() && index < mpi.reference.size(); ++index) {
    if (host.reference[index] == mpi.reference[index]) continue;
    differences.add([&] {
      return fmt::format("the reference of {} has hash {} for host and {} for mpi", model.logicals()[index].name,
                         host.reference[index].to_string(), mpi.reference[index].to_string());
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
  if (difference.empty() && result.symbolic && result.mpi)
    difference = compare_with_symbolic(model, *result.symbolic, *result.mpi, "mpi");
  if (difference.empty() && result.host && result.mpi) difference = compare_numbers(model, *result.host, *result.mpi);
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
  if (result.mpi) {
    engines = fmt::format(" --engine {}{}{}mpi --ranks {}", result.symbolic ? "symbolic," : "",
                          result.host ? "host," : "", transformer ? "transformer," : "", result.mpi_processes);
  }
  return fmt::format(
      "the engines disagree, which is a bug of lockstep: {}. Replay it with: lockstep check {}{} --seed {} -v",
      difference, result.file, engines, options.seed);
}

}  // namespace lockstep
