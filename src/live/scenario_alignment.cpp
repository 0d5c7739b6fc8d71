// SPDX-License-Identifier: Apache-2.0
#include "src/live/scenario_alignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "src/base/counted.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

/// What the stars of a pattern stand for in a name; nothing where it does not fit. Each is as short as it may be.
std::optional<std::vector<std::string>> stars(const std::string& pattern, const std::string& name) {
  std::vector<std::string> found;
  std::size_t from = 0, star = pattern.find('*');
  if (star == std::string::npos) return pattern == name ? std::optional(found) : std::nullopt;
  if (name.compare(0, star, pattern, 0, star) != 0) return std::nullopt;
  from = star;
  while (star != std::string::npos) {
    const std::size_t next = pattern.find('*', star + 1);
    const std::string text = pattern.substr(star + 1, next == std::string::npos ? next : next - star - 1);
    std::size_t place = name.find(text, from);
    if (next == std::string::npos) {
      if (name.size() < from + text.size() || !name.ends_with(text)) return std::nullopt;
      place = name.size() - text.size();
    }
    if (place == std::string::npos) return std::nullopt;
    found.push_back(name.substr(from, place - from));
    from = place + text.size();
    star = next;
  }
  return found;
}

std::string with_stars(const std::string& pattern, const std::vector<std::string>& texts) {
  std::string name;
  std::size_t next = 0;
  for (const char letter : pattern) {
    if (letter == '*' && next < texts.size())
      name += texts[next++];
    else
      name += letter;
  }
  return name;
}

/// "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

class Aligning {
 public:
  Aligning(const Scenario& scenario, const Extraction& code)
      : schedule_(*scenario.schedule), code_(code), run_(code.run) {}

  ScenarioAlignment run(const std::vector<std::pair<std::string, std::string>>& names) {
    ranks();
    if (result_.apart.empty()) data();
    if (result_.apart.empty()) batches();
    if (result_.apart.empty()) parameters(names);
    if (result_.apart.empty()) tied_in_the_scenario_alone();
    return std::move(result_);
  }

 private:
  void ranks() {
    const Header& header = run_.header;
    const Mesh& mesh = schedule_.mesh;
    result_.axes.resize(header.axes.size());
    if (header.world != mesh.world()) {
      result_.apart.push_back(fmt::format("The scenario is of {}, the code ran as {}.", counted(mesh.world(), "rank"),
                                          counted(header.world, "rank")));
      return;
    }
    for (std::size_t i = 0; i < header.axes.size(); ++i) {
      if (header.sizes[i] == 1) continue;
      const std::uint32_t bit = std::uint32_t{1} << i;
      std::optional<Axis> same;
      int apart_at = -1;
      for (int number = 0; number < axis_count; ++number) {
        const Axis axis = static_cast<Axis>(number);
        const bool by_name = name_of(axis) == header.axes[i];
        if ((same && !by_name) || mesh.size(axis) != header.sizes[i]) continue;
        int rank = 0;
        while (rank < mesh.world() && mesh.coordinate(rank, axis) == run_.coordinates(rank, bit)) ++rank;
        if (rank == mesh.world())
          same = axis;
        else if (by_name)
          apart_at = rank;
      }
      result_.axes[i] = same;
      const std::optional<Axis> named = axis_named(header.axes[i]);
      if (apart_at >= 0)
        result_.apart.push_back(
            fmt::format("Rank {} has coordinate {} on {} in the code, and {} in the scenario: its layout has another "
                        "order.",
                        apart_at, run_.coordinates(apart_at, bit), header.axes[i], mesh.coordinate(apart_at, *named)));
      else if (!same)
        result_.apart.push_back(fmt::format("No axis of the scenario's layout is the code's {} of {}.", header.axes[i],
                                            counted(header.sizes[i], "rank")));
      else if (name_of(*same) != header.axes[i])
        result_.notes.push_back(
            fmt::format("The code's axis {} is {} of the scenario.", header.axes[i], name_of(*same)));
    }
  }

  /// Ranks that see the same data, and other data, must do so in both.
  void data() {
    const Mesh& mesh = schedule_.mesh;
    std::map<int, int> first_of_data;  // by the code's coordinate
    std::map<int, int> first_of_dp;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const int data = run_.data_coordinate(rank), dp = mesh.coordinate(rank, Axis::dp);
      const auto [by_data, is_new] = first_of_data.emplace(data, rank);
      const int other = by_data->second;
      if (mesh.coordinate(other, Axis::dp) != dp)
        return result_.apart.push_back(
            fmt::format("Ranks {} and {} see the same data in the code, and other data in the scenario.", other, rank));
      const auto splits = [&](Axis axis) { return mesh.coordinate(rank, axis); };
      const int tokens = (dp * mesh.size(Axis::cp) + splits(Axis::cp)) * mesh.size(Axis::sp) + splits(Axis::sp);
      const auto [by_dp, first] = first_of_dp.emplace(tokens, rank);
      if (run_.data_coordinate(by_dp->second) != data)
        return result_.apart.push_back(fmt::format(
            "Ranks {} and {} see the same data in the scenario, and other data in the code.", by_dp->second, rank));
    }
  }

  void batches() {
    const Batch& batch = schedule_.batch;
    result_.steps = std::min(batch.steps(), static_cast<int>(run_.steps.size()));
    if (run_.steps.empty()) return result_.apart.push_back("The code has no optimizer step.");
    if (batch.steps() != static_cast<int>(run_.steps.size()))
      result_.notes.push_back(fmt::format("The scenario has {}, the code {}: {} compared.",
                                          counted(batch.steps(), "optimizer step"), run_.steps.size(),
                                          result_.steps == 1 ? "the first is" : "those that both have are"));
    bool told = false;
    for (int step = 0; step < result_.steps; ++step) {
      for (const RankRecord& rank : run_.ranks) {
        const auto found = rank.steps.find(run_.steps[at(step)]);
        if (found == rank.steps.end()) continue;
        const int count = found->second.micro_batches;
        if (count != batch.micro_batches(step))
          return result_.apart.push_back(fmt::format("Rank {} runs {} in optimizer step {}, the scenario has {}.",
                                                     rank.header.rank, counted(count, "micro-batch"),
                                                     run_.steps[at(step)], batch.micro_batches(step)));
        for (std::size_t micro = 0; micro < found->second.tokens.size() && !told; ++micro) {
          const auto& tokens = found->second.tokens[micro];
          const int number = batch.first_micro_batch(step) + static_cast<int>(micro);
          const Mesh& mesh = schedule_.mesh;
          const std::int64_t own =
              batch.tokens("main", number, mesh.coordinate(rank.header.rank, Axis::dp),
                           mesh.coordinate(rank.header.rank, Axis::cp), mesh.coordinate(rank.header.rank, Axis::sp));
          told = tokens && *tokens != own;
          if (told)
            result_.notes.push_back(fmt::format(
                "Rank {} has {} in micro-batch {} of the code, and {} in the scenario: where gradients depend on "
                "them, give the scenario the code's (batch.tokens).",
                rank.header.rank, counted(*tokens, "token"), micro, own));
        }
      }
    }
  }

  void parameters(const std::vector<std::pair<std::string, std::string>>& names) {
    const Model& model = schedule_.model;
    const std::vector<char> apart = held_apart(model);
    std::vector<bool> fits(names.size());
    std::map<std::string, int> wanted;  // logical parameters, by what the code should call them
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      std::string name = model.parameters()[i].name;
      for (std::size_t j = 0; j < names.size(); ++j) {
        const auto texts = stars(names[j].first, model.parameters()[i].name);
        if (!texts) continue;
        fits[j] = true;
        name = with_stars(names[j].second, *texts);
        break;
      }
      const int logical = model.logical_of(static_cast<int>(i));
      wanted.emplace(name, apart[at(logical)] != 0 ? logical : model.original(logical));
    }
    for (std::size_t j = 0; j < names.size(); ++j) {
      if (!fits[j])
        throw InputError({Diagnostic{
            {},
            fmt::format("--name {}={}: no parameter of the scenario has such a name, or another --name comes first",
                        names[j].first, names[j].second)}});
    }
    result_.code_of.resize(model.logicals().size());
    for (std::size_t i = 0; i < run_.parameters.size(); ++i) {
      const DeclaredParameter& declared = run_.parameters[i].declared;
      std::vector<std::string> all = declared.aliases;
      all.insert(all.begin(), declared.name);
      int logical = -1;
      std::set<int> several;
      for (const std::string& name : all) {
        const auto found = wanted.find(name);
        if (found == wanted.end()) continue;
        if (logical < 0) logical = found->second;
        several.insert(found->second);
      }
      if (several.size() > 1) {
        std::vector<std::string> of_scenario;
        for (const int one : several) {
          of_scenario.push_back(model.logicals()[at(one)].name);
          result_.code_of[at(one)].push_back(static_cast<int>(i));
        }
        tie(of_scenario, "one tensor in the code", "in the scenario");
        result_.logical_of.push_back(-1);
        continue;
      }
      if (logical >= 0 && model.logicals()[at(logical)].shape != declared.shape) {
        result_.other_shape.push_back(static_cast<int>(i));
        result_.code_of[at(logical)].push_back(static_cast<int>(i));
        logical = -1;
      } else if (logical >= 0) {
        result_.code_of[at(logical)].push_back(static_cast<int>(i));
        for (const std::string& name : all) result_.logical_named.emplace(name, logical);
      } else if (!declared.frozen) {
        result_.only_code.push_back(declared.name);
      }
      result_.logical_of.push_back(logical);
    }
    for (std::size_t logical = 0; logical < model.logicals().size(); ++logical) {
      const bool counts = apart[logical] != 0 || model.original(static_cast<int>(logical)) == static_cast<int>(logical);
      if (counts && !model.logicals()[logical].frozen && result_.code_of[logical].empty())
        result_.only_scenario.push_back(model.logicals()[logical].name);
    }
  }

  void tie(const std::vector<std::string>& names, const char* one, const char* several) {
    result_.ties.push_back(fmt::format("{} are {}, and {} {}.", listed(names), one, names.size(), several));
  }

  /// What a rank of the code has as several tensors is one tensor of the scenario: none of them gets what that gets.
  void tied_in_the_scenario_alone() {
    std::vector<std::set<std::size_t>> programs(run_.parameters.size());  // that have it
    for (std::size_t i = 0; i < code_.details.size(); ++i) {
      for (const ExtractedContribution& one : code_.details[i].contributions)
        programs[at(code_.regions[at(one.region)].parameter)].insert(i);
      for (const ExtractedResult& one : code_.details[i].results)
        programs[at(code_.regions[at(one.region)].parameter)].insert(i);
    }
    for (std::size_t logical = 0; logical < result_.code_of.size(); ++logical) {
      std::map<std::size_t, std::set<int>> parameters;  // of the code, by program
      for (const int parameter : result_.code_of[logical]) {
        if (result_.logical_of[at(parameter)] < 0) continue;
        for (const std::size_t program : programs[at(parameter)]) parameters[program].insert(parameter);
      }
      std::set<int> apart;
      for (const auto& [program, own] : parameters) {
        if (own.size() > 1) apart.insert(own.begin(), own.end());
      }
      if (apart.empty()) continue;
      std::vector<std::string> names;
      for (const int parameter : apart) names.push_back(run_.parameters[at(parameter)].declared.name);
      tie(names, "one tensor in the scenario", "in the code");
      for (const int parameter : result_.code_of[logical]) result_.logical_of[at(parameter)] = -1;
      std::erase_if(result_.logical_named, [&](const auto& one) { return one.second == static_cast<int>(logical); });
    }
  }

  const Schedule& schedule_;
  const Extraction& code_;
  const CapturedRun& run_;
  ScenarioAlignment result_;
};

}  // namespace

std::vector<char> held_apart(const Model& model) {
  std::vector<char> apart(model.logicals().size());
  for (const auto& local : model.locals()) {
    std::set<int> seen;
    for (const LocalBuffer& buffer : local->buffers) {
      if (seen.insert(model.original(buffer.logical)).second) continue;
      for (const int copy : model.copies(buffer.logical)) apart[at(copy)] = 1;
    }
  }
  return apart;
}

ScenarioAlignment align(const Scenario& scenario, const Extraction& code,
                        const std::vector<std::pair<std::string, std::string>>& names) {
  return Aligning(scenario, code).run(names);
}

}  // namespace lockstep::live
