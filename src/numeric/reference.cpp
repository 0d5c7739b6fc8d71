// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/reference.h"

#include <algorithm>
#include <array>
#include <set>

#include "src/base/at.h"
#include "src/numeric/generator.h"
#include "src/numeric/mix.h"
#include "src/numeric/prime61.h"

// Written from scenario-format.md alone ("model", "batch"), and plainly: the engines are measured
// against this, so it shares no code with the walk or with Contributions.

namespace lockstep::numeric {

Reference::Reference(const Schedule& schedule) : mesh_(schedule.mesh), model_(schedule.model), batch_(schedule.batch) {
  for (std::size_t i = 0; i < model_.logicals().size(); ++i)
    holders_.emplace_back(model_.pieces(static_cast<int>(i)).size());
  for (int rank = 0; rank < mesh_.world(); ++rank) {
    const auto& buffers = model_.local(rank).buffers;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      auto& of_logical = holders_[at(buffers[b].logical)];
      of_logical[at(buffers[b].piece)].push_back({rank, static_cast<int>(b)});
    }
  }
  std::map<std::vector<int>, Groups> computed;
  for (const Parameter& parameter : model_.parameters()) {
    Groups& groups = dispatch_groups_.emplace_back();
    if (parameter.dispatch.empty()) continue;
    Over over;
    std::vector<int> axes;
    for (const Axis axis : parameter.dispatch) {
      over.picks.push_back({axis, std::nullopt});
      axes.push_back(static_cast<int>(axis));
    }
    const auto [found, is_new] = computed.try_emplace(axes);
    if (is_new) found->second = mesh_.groups(over);
    groups = found->second;
  }
}

std::int64_t Reference::tokens(const std::string& use, int micro_batch, int rank) const {
  return batch_.tokens(use, micro_batch, mesh_.coordinate(rank, Axis::dp), mesh_.coordinate(rank, Axis::cp),
                       mesh_.coordinate(rank, Axis::sp));
}

// The weight of a piece's summed loss. `micro_batch` is counted through the optimizer steps.
Rational Reference::loss_weight(const std::string& use, int optimizer_step, int micro_batch, int rank) const {
  const int dp_size = mesh_.size(Axis::dp), cp_size = mesh_.size(Axis::cp), sp_size = mesh_.size(Axis::sp);
  const int first = batch_.first_micro_batch(optimizer_step), count = batch_.micro_batches(optimizer_step);
  const Loss& loss = batch_.loss(use);
  switch (loss.kind) {
    case Loss::Kind::sum:
      return Rational(1);
    case Loss::Kind::token_mean: {
      std::int64_t all = 0;
      for (int m = first; m < first + count; ++m) {
        for (int dp = 0; dp < dp_size; ++dp) {
          for (int cp = 0; cp < cp_size; ++cp) {
            for (int sp = 0; sp < sp_size; ++sp) all += batch_.tokens(use, m, dp, cp, sp);
          }
        }
      }
      return Rational(1, all);
    }
    case Loss::Kind::micro_batch_mean: {
      std::int64_t together = 0;
      for (int cp = 0; cp < cp_size; ++cp) {
        for (int sp = 0; sp < sp_size; ++sp)
          together += batch_.tokens(use, micro_batch, mesh_.coordinate(rank, Axis::dp), cp, sp);
      }
      return Rational(1, count) * Rational(1, dp_size) * Rational(1, together);
    }
    case Loss::Kind::local_mean:
      return Rational(1, count) * Rational(1, std::int64_t{dp_size} * cp_size * sp_size) *
             Rational(1, tokens(use, micro_batch, rank));
    case Loss::Kind::weight: {
      Environment environment;
      environment.mesh = &mesh_;
      environment.counts = &batch_;
      environment.rank = rank;
      environment.step = optimizer_step;
      environment.micro_batch = micro_batch - first;
      return loss.weight_of(environment);
    }
  }
  throw InternalError("a loss of unknown kind");
}

Rational Reference::weight(const std::string& use, int optimizer_step, int micro_batch, int rank) const {
  int place = rank, number = micro_batch;
  switch (batch_.loss(use).kind) {
    case Loss::Kind::sum:
    case Loss::Kind::token_mean:
      place = 0;
      number = batch_.first_micro_batch(optimizer_step);
      break;
    case Loss::Kind::micro_batch_mean:
      place = mesh_.coordinate(rank, Axis::dp);
      break;
    default:
      break;
  }
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = weights_.try_emplace({use, number, place});
  if (is_new) found->second = batch_.weight(use) * loss_weight(use, optimizer_step, micro_batch, rank);
  return found->second;
}

// The ranks that name the contributions to a piece through one site in one micro-batch (counted
// from 0 in its optimizer step), token counts aside.
std::vector<int> Reference::sources(int parameter, const std::vector<Holder>& holders, int micro_batch) const {
  const Parameter& site = model_.parameters()[at(parameter)];
  std::vector<int> result;
  std::set<int> dispatched;
  std::set<std::vector<int>> shares;
  for (const Holder& holder : holders) {
    const std::vector<int>& sites = model_.local(holder.rank).buffers[at(holder.buffer)].parameters;
    if (std::find(sites.begin(), sites.end(), parameter) == sites.end()) continue;
    if (!model_.takes_part(mesh_, parameter, holder.rank, micro_batch)) continue;
    if (!site.dispatch.empty()) {
      const Groups& groups = dispatch_groups_[at(parameter)];
      const int group = groups.group_of[at(holder.rank)];
      for (const int source : groups.members[at(group)]) {
        if (dispatched.insert(source).second) result.push_back(source);
      }
      continue;
    }
    // Replicate on the axes that are not listed here: the first such rank stands for all.
    std::vector<int> share;
    for (const Axis axis : {Axis::dp, Axis::cp, Axis::sp, Axis::pp})
      share.push_back(mesh_.coordinate(holder.rank, axis));
    for (const Axis axis : site.partial) share.push_back(mesh_.coordinate(holder.rank, axis));
    if (shares.insert(share).second) result.push_back(holder.rank);
  }
  return result;
}

std::vector<ReferenceTerm> Reference::terms(int logical, int piece, int optimizer_step) const {
  std::vector<ReferenceTerm> result;
  const int first = batch_.first_micro_batch(optimizer_step);
  for (const int parameter : model_.trained(logical)) {
    const Parameter& site = model_.parameters()[at(parameter)];
    const auto& holders = holders_[at(model_.logical_of(parameter))][at(piece)];
    for (int m = 0; m < batch_.micro_batches(optimizer_step); ++m) {
      for (const int source : sources(parameter, holders, m)) {
        for (const std::string& use : site.uses) {
          if (tokens(use, first + m, source) == 0) continue;
          result.push_back({gradient_key(model_.original(logical), source, first + m, model_.site_use(parameter, use)),
                            weight(use, optimizer_step, first + m, source)});
        }
      }
    }
  }
  return result;
}

std::int64_t Reference::most_terms(int logical, int piece, int optimizer_step) const {
  std::int64_t most = 0;
  for (const int parameter : model_.trained(logical)) {
    const Parameter& site = model_.parameters()[at(parameter)];
    const auto holders = static_cast<std::int64_t>(holders_[at(model_.logical_of(parameter))][at(piece)].size());
    std::int64_t sources = holders;
    if (!site.dispatch.empty()) {
      const Groups& groups = dispatch_groups_[at(parameter)];
      sources =
          std::min<std::int64_t>(holders * static_cast<std::int64_t>(groups.members.front().size()), mesh_.world());
    }
    most += sources * static_cast<std::int64_t>(site.uses.size()) * batch_.micro_batches(optimizer_step);
  }
  return most;
}

namespace {

constexpr std::size_t most_numbers = 1024;

}  // namespace

void add_reference(std::uint64_t key, int bits, std::int64_t coefficient, std::uint64_t first, std::size_t count,
                   std::int64_t* sums) {
  for_stretches(key, bits, first, count, [&](const Numbers& numbers, std::size_t begin, std::size_t part) {
    loops().add_numbers_int64(sums + begin, coefficient, numbers, part);
  });
}

void add_reference(std::uint64_t key, int bits, std::int64_t coefficient, std::uint64_t first, std::size_t count,
                   std::int32_t* sums) {
  for_stretches(key, bits, first, count, [&](const Numbers& numbers, std::size_t begin, std::size_t part) {
    loops().add_numbers_int32(sums + begin, static_cast<std::int32_t>(coefficient), numbers, part);
  });
}

void add_reference(std::uint64_t key, std::uint64_t coefficient, std::uint64_t first, std::size_t count,
                   std::uint64_t* sums) {
  std::array<std::uint64_t, most_numbers> numbers;
  for (std::size_t done = 0; done < count; done += most_numbers) {
    const std::size_t part = std::min(most_numbers, count - done);
    generate_residues(key, first + done, part, numbers.data());
    if (coefficient == 1) {
      for (std::size_t i = 0; i < part; ++i) sums[done + i] = add61(sums[done + i], numbers[i]);
    } else {
      for (std::size_t i = 0; i < part; ++i)
        sums[done + i] = add61(sums[done + i], multiply61(coefficient, numbers[i]));
    }
  }
}

}  // namespace lockstep::numeric
