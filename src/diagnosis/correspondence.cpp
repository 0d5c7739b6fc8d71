// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/correspondence.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/base/at.h"

namespace lockstep::diagnosis {

namespace {

/// "pp 2 dp 4 "
std::string sizes_text(const Layout& layout) {
  std::string text;
  for (const auto& [axis, size] : {std::pair(Axis::pp, layout.pp),
                                   {Axis::dp, layout.dp},
                                   {Axis::cp, layout.cp},
                                   {Axis::sp, layout.sp},
                                   {Axis::tp, layout.tp},
                                   {Axis::ep, layout.ep},
                                   {Axis::etp, layout.etp}}) {
    if (size > 1) text += fmt::format("{} {} ", name_of(axis), size);
  }
  return text;
}

std::string order_text(const std::vector<Axis>& order) {
  std::string text;
  for (const Axis axis : order) text += fmt::format("{}{}", axis == order.front() ? "" : "-", name_of(axis));
  return text;
}

/// The axes that tell ranks apart, in their order: where etp and edp stand tp and dp do.
std::vector<Axis> order_of_ranks(const Mesh& mesh) {
  std::vector<Axis> order = mesh.layout().order;
  std::erase_if(order, [&](Axis axis) {
    const Axis of_experts = axis == Axis::tp ? Axis::etp : axis == Axis::dp ? Axis::edp : axis;
    return mesh.size(axis) == 1 && mesh.size(of_experts) == 1;
  });
  return order;
}

bool same_box(const Piece& a, const Piece& b) { return a.dims == b.dims; }

/// Of which losses and micro-batches the uses of a tensor get a gradient.
std::multiset<std::pair<std::string, std::set<int>>> contributions(const Schedule& schedule, const Logical& logical) {
  const std::vector<int>& counts = schedule.batch.micro_batch_counts;
  std::set<int> all;
  for (int i = 0; i < *std::max_element(counts.begin(), counts.end()); ++i) all.insert(i);
  std::multiset<std::pair<std::string, std::set<int>>> result;
  for (const int site : logical.parameters) {
    const Parameter& parameter = schedule.model.parameters()[at(site)];
    std::set<int> micro_batches = all;
    if (parameter.micro_batches) micro_batches = {parameter.micro_batches->begin(), parameter.micro_batches->end()};
    for (const std::string& use : parameter.uses) result.emplace(use, micro_batches);
  }
  return result;
}

/// What is tied together.
struct Tie {
  std::set<std::string> names;
  std::vector<std::int64_t> shape;
  bool is_lost = false;  ///< there are several copies
};

std::map<std::string, Tie> ties_of(const Model& model) {
  std::map<std::string, Tie> by_group;
  for (const Parameter& parameter : model.parameters()) {
    if (!parameter.tied.empty()) by_group[parameter.tied].names.insert(parameter.name);
  }
  std::map<std::string, Tie> result;
  for (std::size_t i = 0; i < model.logicals().size(); ++i) {
    const Logical& logical = model.logicals()[i];
    if (logical.tied.empty() || logical.original != static_cast<int>(i)) continue;
    Tie& tie = result[logical.name] = by_group[logical.tied];
    tie.shape = logical.shape;
    tie.is_lost = model.copies(static_cast<int>(i)).size() > 1;
  }
  return result;
}

/// Parameters that are one tensor in one of the models, and several copies in the other, by the first name.
std::set<std::string> tied_in_one(const Model& one, const Model& other) {
  const std::map<std::string, Tie> here = ties_of(one), there = ties_of(other);
  std::set<std::string> names;
  for (const auto& [name, tie] : here) {
    const auto found = there.find(name);
    if (found != there.end() && found->second.is_lost != tie.is_lost && found->second.names == tie.names &&
        found->second.shape == tie.shape)
      names.insert(name);
  }
  return names;
}

/// "a copy of "w"", or "a parameter of its own".
std::string role(const Logical& logical, const std::string& original) {
  return original == logical.name ? "a parameter of its own" : fmt::format("a copy of \"{}\"", original);
}

/// Why a parameter of the `which` one, which leads what is tied to it, leads nothing in the other.
std::string missing(const std::string& name, const char* which, const Model& other) {
  const std::vector<Parameter>& parameters = other.parameters();
  const bool is_there =
      std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& one) { return one.name == name; });
  return is_there ? fmt::format("Parameter \"{}\" is tied to others in the new one than in the old one.", name)
                  : fmt::format("Only the {} one has parameter \"{}\".", which, name);
}

}  // namespace

std::vector<std::string> Correspondence::apart() {
  std::vector<std::string> reasons;
  const Layout &old_layout = before_.mesh.layout(), &new_layout = after_.mesh.layout();
  const std::string old_sizes = sizes_text(old_layout), new_sizes = sizes_text(new_layout);
  if (old_sizes != new_sizes || order_of_ranks(before_.mesh) != order_of_ranks(after_.mesh)) {
    const char* what = old_sizes != new_sizes ? "No rank of the one stands for a rank of the other"
                                              : "A rank has other coordinates in the one than in the other";
    reasons.push_back(fmt::format("{}: the old layout is {}in order {}, the new one {}in order {}.", what, old_sizes,
                                  order_text(old_layout.order), new_sizes, order_text(new_layout.order)));
    return reasons;
  }
  compare_batches(reasons);
  compare_parameters(reasons);
  return reasons;
}

const std::vector<int>& Correspondence::buffers(int rank) {
  const LocalModel &old_local = before_.model.local(rank), &new_local = after_.model.local(rank);
  const auto [found, is_new] = buffers_.try_emplace({old_local.id, new_local.id});
  if (!is_new) return found->second;
  std::map<int, int> by_logical;
  for (std::size_t i = 0; i < new_local.buffers.size(); ++i)
    by_logical.emplace(new_local.buffers[i].logical, static_cast<int>(i));
  for (const LocalBuffer& buffer : old_local.buffers)
    found->second.push_back(by_logical.at(logical_after(buffer.logical)));
  return found->second;
}

void Correspondence::compare_batches(std::vector<std::string>& reasons) const {
  const Batch &old_batch = before_.batch, &new_batch = after_.batch;
  if (old_batch.micro_batch_counts != new_batch.micro_batch_counts) {
    reasons.emplace_back("Their numbers of micro-batches differ, and with them the gradients that there are.");
  }
}

void Correspondence::compare_parameters(std::vector<std::string>& reasons) {
  std::map<std::string, int> by_name;
  const std::vector<Logical>& others = after_.model.logicals();
  for (std::size_t i = 0; i < others.size(); ++i) by_name.emplace(others[i].name, static_cast<int>(i));
  const std::set<std::string> lost = tied_in_one(before_.model, after_.model);
  std::set<int> met;
  for (std::size_t i = 0; i < before_.model.logicals().size(); ++i) {
    const Logical& old_one = before_.model.logicals()[i];
    const std::string& old_name = before_.model.logicals()[at(old_one.original)].name;
    const auto found = by_name.find(old_one.name);
    logical_after_.push_back(found == by_name.end() ? -1 : found->second);
    if (found == by_name.end()) {
      if (!lost.contains(old_name)) reasons.push_back(missing(old_one.name, "old", after_.model));
      continue;
    }
    met.insert(found->second);
    const Logical& new_one = others[at(found->second)];
    const std::string& new_name = others[at(new_one.original)].name;
    if (old_name != new_name)
      reasons.push_back(fmt::format("Parameter \"{}\" is {} in the old one and {} in the new one.", old_one.name,
                                    role(old_one, old_name), role(new_one, new_name)));
    else if (lost.contains(old_one.name))
      reasons.push_back(fmt::format("Parameter \"{}\" and what is tied to it are {} in the new one.", old_one.name,
                                    before_.model.copies(static_cast<int>(i)).size() > 1
                                        ? "several tensors in the old one, and one tensor"
                                        : "one tensor in the old one, and several tensors"));
    else if (old_one.shape != new_one.shape || old_one.frozen != new_one.frozen ||
             old_one.uses.size() != new_one.uses.size() || !placed_alike(static_cast<int>(i), found->second))
      reasons.push_back(fmt::format("Parameter \"{}\" has another shape, place or use in the new one.", old_one.name));
    else if (contributions(before_, old_one) != contributions(after_, new_one))
      reasons.push_back(fmt::format(
          "Parameter \"{}\" gets its gradients from other losses or micro-batches in the new one.", old_one.name));
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (met.count(static_cast<int>(i)) == 0 && !lost.contains(others[at(others[i].original)].name))
      reasons.push_back(missing(others[i].name, "new", before_.model));
  }
  if (reasons.empty() && !held_alike())
    reasons.emplace_back("Ranks hold other parameters in the new one than in the old one.");
}

bool Correspondence::placed_alike(int old_logical, int new_logical) const {
  const std::vector<Piece>&old_pieces = before_.model.pieces(old_logical),
        &new_pieces = after_.model.pieces(new_logical);
  return std::equal(old_pieces.begin(), old_pieces.end(), new_pieces.begin(), new_pieces.end(), same_box);
}

bool Correspondence::held_alike() const {
  for (int rank = 0; rank < before_.mesh.world(); ++rank) {
    const auto held = [](const Model& model, int rank_of, const auto& number) {
      std::set<std::pair<int, int>> result;
      for (const LocalBuffer& buffer : model.local(rank_of).buffers)
        result.emplace(number(buffer.logical), buffer.piece);
      return result;
    };
    if (held(before_.model, rank, [&](int logical) { return logical_after(logical); }) !=
        held(after_.model, rank, [](int logical) { return logical; }))
      return false;
  }
  return true;
}

}  // namespace lockstep::diagnosis
