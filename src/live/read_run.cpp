// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <unordered_set>

#include "src/base/at.h"
#include "src/base/inputs.h"
#include "src/base/refuse.h"
#include "src/live/captured_run.h"
#include "src/live/event.h"
#include "src/live/run_gaps.h"
#include "src/live/start_weights.h"
#include "src/numeric/parallel.h"

namespace lockstep::live {

namespace {

/// Files of ranks in the folder, by name. None where it cannot be read; `error` says why.
std::vector<std::string> rank_files_in(const std::string& folder, std::error_code& error) {
  std::vector<std::string> files;
  std::filesystem::directory_iterator entries(folder, error);
  if (error) return files;
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".jsonl")) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> rank_files(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) refuse(fmt::format("{}: there is no such folder", folder));
  if (!std::filesystem::is_directory(folder, error))
    refuse(fmt::format("{}: it is a file; expected the folder of a captured run, with a rank-00000.jsonl for each rank",
                       folder));
  std::vector<std::string> files = rank_files_in(folder, error);
  if (error) refuse(fmt::format("{}: it cannot be read: {}", folder, error.message()));
  if (files.empty()) {
    // lockstep.run leaves it beside what the ranks said.
    const std::string within = (std::filesystem::path(folder) / "run").string();
    const bool is_within = !rank_files_in(within, error).empty();
    refuse(
        fmt::format("{}: there is no rank-*.jsonl in it; expected the folder that a capture wrote (docs/verify.md){}",
                    folder, is_within ? fmt::format("; did you mean {}?", within) : ""));
  }
  return files;
}

template <class Value>
void must_agree(const RankRecord& a, const RankRecord& b, const char* what, const Value& one, const Value& other) {
  if (one == other) return;
  refuse(fmt::format("{}: {} is not that of {}; the files of one run agree on it: are two runs in this folder?", b.file,
                     what, a.file));
}

void check_headers(const std::vector<RankRecord>& ranks) {
  const RankRecord& first = ranks.front();
  const Header& a = first.header;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const RankRecord& other = ranks[i];
    const Header& b = other.header;
    if (b.rank == ranks[i - 1].header.rank)
      refuse(fmt::format("{}: it is of rank {}, and so is {}", other.file, b.rank, ranks[i - 1].file));
    must_agree(first, other, "\"world\"", a.world, b.world);
    must_agree(first, other, "\"sums\"", a.sums, b.sums);
    must_agree(first, other, "\"seed\"", a.seed, b.seed);
    must_agree(first, other, "\"one_of\"", a.one_of, b.one_of);
    must_agree(first, other, "\"mesh\"", std::tie(a.axes, a.sizes, a.mesh_ranks),
               std::tie(b.axes, b.sizes, b.mesh_ranks));
    must_agree(first, other, "\"data_axes\"", a.data_axes, b.data_axes);
    must_agree(first, other, "\"loss\"", a.loss, b.loss);
    must_agree(first, other, "\"collectives\"", a.collectives, b.collectives);
  }
}

/// Where no header says the loss, it is what all ranks have seen, if they have seen the same, of as much on each, which
/// those who say so name.
void take_seen_loss(CapturedRun& run) {
  const RankRecord& first = run.ranks.front();
  if (run.header.loss || static_cast<int>(run.ranks.size()) != run.header.world) return;
  const bool alike = std::all_of(run.ranks.begin(), run.ranks.end(), [&](const RankRecord& rank) {
    return rank.seen_loss == first.seen_loss && rank.seen_loss_from == first.seen_loss_from;
  });
  if (!alike) return;
  run.header.loss = first.seen_loss;
  run.header.loss_from = first.seen_loss_from;
}

void take_notes(CapturedRun& run) {
  for (const RankRecord& rank : run.ranks) {
    for (const std::string& note : rank.notes) {
      if (std::find(run.notes.begin(), run.notes.end(), note) == run.notes.end()) run.notes.push_back(note);
    }
  }
}

/// Finds out which parameters of all ranks are one tensor: those that have a name in common.
class Union {
 public:
  explicit Union(CapturedRun& run) : run_(run) {}

  void run() {
    for (RankRecord& rank : run_.ranks) {
      std::vector<int> number(rank.parameters.size());
      for (std::size_t i = 0; i < rank.parameters.size(); ++i) {
        number[i] = place(rank, rank.parameters[i]);
        rank.run_parameters.push_back(static_cast<int>(i));
      }
      renumber(rank, number);
    }
    join();
  }

 private:
  static void renumber(RankRecord& rank, const std::vector<int>& number) {
    for (auto& [step, content] : rank.steps) {
      for (auto* tensors : {&content.contributions, &content.results}) {
        for (SketchedTensor& tensor : *tensors) tensor.parameter = number[at(tensor.parameter)];
      }
      for (int& parameter : content.waiting) parameter = number[at(parameter)];
      std::map<int, Dtype> coarsest;
      for (const auto& [parameter, dtype] : content.coarsest_of) coarsest.emplace(number[at(parameter)], dtype);
      content.coarsest_of = std::move(coarsest);
    }
    for (int& parameter : rank.run_parameters) parameter = number[at(parameter)];
    for (CapturedCollective& call : rank.collectives) {
      for (int& parameter : call.parameters) parameter = number[at(parameter)];
    }
    for (CaptureGap& gap : rank.gaps) {
      for (int& parameter : gap.parameters) parameter = number[at(parameter)];
    }
  }

  int place(const RankRecord& rank, const DeclaredParameter& declared) {
    const auto [found, is_new] = by_name_.try_emplace(declared.name, static_cast<int>(run_.parameters.size()));
    if (is_new) {
      run_.parameters.push_back({declared});
      first_.push_back(rank.file);
      aliases_.emplace_back(declared.aliases.begin(), declared.aliases.end());
      return found->second;
    }
    DeclaredParameter& known = run_.parameters[at(found->second)].declared;
    const std::string& file = first_[at(found->second)];
    if (known.shape != declared.shape)
      refuse(fmt::format(
          "{}: parameter \"{}\" has the shape [{}], and in {} it is [{}]; expected that of the whole tensor", rank.file,
          declared.name, fmt::join(declared.shape, ", "), file, fmt::join(known.shape, ", ")));
    if (known.pieces != declared.pieces)
      refuse(fmt::format("{}: parameter \"{}\" is cut into other pieces than in {}", rank.file, declared.name, file));
    if (known.sampled != declared.sampled)
      refuse(fmt::format("{}: parameter \"{}\" is {}, and in {} it is {}", rank.file, declared.name,
                         declared.sampled ? "sampled" : "measured whole", file,
                         known.sampled ? "sampled" : "measured whole"));
    known.frozen = known.frozen && declared.frozen;
    for (const std::string& alias : declared.aliases) add_alias(found->second, known, alias);
    return found->second;
  }

  void add_alias(int number, DeclaredParameter& known, const std::string& alias) {
    if (aliases_[at(number)].insert(alias).second) known.aliases.push_back(alias);
  }

  /// Parameters of other ranks that an alias names, such as the two ends of a pipeline's tied embedding.
  void join() {
    std::vector<int> target(run_.parameters.size());
    std::iota(target.begin(), target.end(), 0);
    const auto root = [&](int i) {
      while (target[at(i)] != i) {
        int& above = target[at(i)];
        i = above = target[at(above)];  // half the way for whoever asks next
      }
      return i;
    };
    std::set<std::string> told;
    for (std::size_t i = 0; i < run_.parameters.size(); ++i) {
      for (const std::string& alias : run_.parameters[i].declared.aliases) {
        const auto found = by_name_.find(alias);
        if (found == by_name_.end()) continue;
        const int a = std::min(root(static_cast<int>(i)), root(found->second)),
                  b = std::max(root(static_cast<int>(i)), root(found->second));
        if (a == b) continue;
        const DeclaredParameter& one = run_.parameters[at(a)].declared;
        const DeclaredParameter& other = run_.parameters[at(b)].declared;
        if (one.shape != other.shape || one.pieces != other.pieces) {
          if (told.insert(one.name + '\n' + other.name).second)
            run_.gaps.push_back({fmt::format(
                "{} and {} are one tensor, and ranks cut it into different pieces: they are not compared with each "
                "other.",
                one.name, other.name)});
          continue;
        }
        target[at(b)] = a;
      }
    }
    std::vector<int> number(run_.parameters.size(), -1);
    std::vector<RunParameter> joined;
    for (std::size_t i = 0; i < run_.parameters.size(); ++i) {
      const auto to = static_cast<std::size_t>(root(static_cast<int>(i)));
      if (to == i) {
        number[i] = static_cast<int>(joined.size());
        joined.push_back(std::move(run_.parameters[i]));
        continue;
      }
      number[i] = number[to];
      add_alias(static_cast<int>(to), joined[at(number[to])].declared, run_.parameters[i].declared.name);
    }
    if (joined.size() == run_.parameters.size()) {
      run_.parameters = std::move(joined);
      return;
    }
    run_.parameters = std::move(joined);
    for (RankRecord& rank : run_.ranks) renumber(rank, number);
  }

  CapturedRun& run_;
  std::map<std::string, int, std::less<>> by_name_;
  std::vector<std::string> first_;                        // by parameter: the file that declared it first
  std::vector<std::unordered_set<std::string>> aliases_;  // by parameter: those that it has
};

}  // namespace

std::int64_t RunParameter::numel(int piece) const {
  std::int64_t count = 1;
  for (const Interval& interval : declared.pieces[at(piece)]) count *= interval.size();
  return count;
}

double CapturedRun::measured(int parameter, int piece) const {
  const RunParameter& one = parameters[at(parameter)];
  return static_cast<double>(one.numel(piece)) / (one.declared.sampled ? header.one_of : 1);
}

bool CapturedRun::complete_step(int step) const {
  return missing_ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [&](const RankRecord& rank) {
           const auto found = rank.steps.find(step);
           return found != rank.steps.end() && found->second.complete;
         });
}

int CapturedRun::coordinates(int rank, std::uint32_t axes) const {
  int rest = place_of_rank[at(rank)], result = 0, stride = 1;
  for (std::size_t axis = header.axes.size(); axis-- > 0;) {
    const int size = header.sizes[axis];
    if ((axes >> axis & 1) != 0) {
      result += rest % size * stride;
      stride *= size;
    }
    rest /= size;
  }
  return result;
}

void lay_out(CapturedRun& run) {
  const Header& header = run.header;
  run.place_of_rank.resize(static_cast<std::size_t>(header.world));
  for (std::size_t place = 0; place < header.mesh_ranks.size(); ++place)
    run.place_of_rank[at(header.mesh_ranks[place])] = static_cast<int>(place);
  std::uint32_t& data = run.data_axes;
  for (std::size_t axis = 0; axis < header.axes.size(); ++axis) {
    if (std::find(header.data_axes.begin(), header.data_axes.end(), header.axes[axis]) == header.data_axes.end())
      continue;
    data |= std::uint32_t{1} << axis;
    run.data_ranks *= header.sizes[axis];
  }
  for (int rank = 0; rank < header.world; ++rank) run.data_coordinates.push_back(run.coordinates(rank, data));
}

CapturedRun read_run(const std::string& folder, int threads) {
  CapturedRun run;
  run.folder = folder;
  const std::vector<std::string> files = rank_files(folder);
  std::vector<RankRecord> records(files.size());
  std::vector<std::vector<Diagnostic>> mistakes(files.size());
  numeric::parallel_for(files.size(), threads, [&](std::size_t i) {
    try {
      if (leads_out_of(files[i], folder))
        refuse(fmt::format("{}: it is a link that leads out of the folder of the run; expected a file", files[i]));
      records[i] = read_rank(files[i]);
    } catch (const InputError& error) {
      mistakes[i] = error.diagnostics();
    }
  });
  std::vector<Diagnostic> all;
  for (const std::vector<Diagnostic>& of_file : mistakes) all.insert(all.end(), of_file.begin(), of_file.end());
  if (!all.empty()) throw InputError(std::move(all));
  for (RankRecord& record : records) {
    if (record.header.world == 0) {
      run.gaps.push_back({fmt::format("{} ends before its first line does: the rank died as it began.", record.file)});
    } else {
      run.ranks.push_back(std::move(record));
    }
  }
  if (run.ranks.empty()) refuse(fmt::format("{}: no rank's file has a complete first line", folder));
  std::stable_sort(run.ranks.begin(), run.ranks.end(),
                   [](const RankRecord& a, const RankRecord& b) { return a.header.rank < b.header.rank; });
  check_headers(run.ranks);
  run.header = run.ranks.front().header;
  lay_out(run);
  name_stages_apart(run);
  take_seen_loss(run);
  take_notes(run);
  Union(run).run();
  compare_start_weights(run);
  find_gaps(run);
  for (const RunParameter& parameter : run.parameters)
    run.placed_axes.insert(parameter.declared.placed.begin(), parameter.declared.placed.end());
  return run;
}

}  // namespace lockstep::live
