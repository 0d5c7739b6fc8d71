// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "lockstep/transformer.h"
#include "src/base/at.h"
#include "src/transformer/known_references.h"
#include "src/transformer/least_squares.h"
#include "src/transformer/recognize.h"
#include "src/transformer/replay.h"
#include "src/transformer/replicas.h"
#include "src/transformer/stage_division.h"

namespace lockstep {

namespace transformer {

namespace {

class Engine {
 public:
  Engine(const Scenario& scenario, const Timeline& timeline, const TransformerOptions& options)
      : schedule_(*scenario.schedule),
        timeline_(timeline),
        seed_(options.seed),
        references_(options.references != nullptr ? *options.references : own_references_),
        config_(recognize(scenario)),
        data_(config_, schedule_, options.seed, scenario.preset->place),
        edits_(read_site_edits(*scenario.preset)) {
    check_stage_division(config_, schedule_.mesh.layout(), edits_, scenario.preset->place);
    for (int rank = 0; rank < schedule_.mesh.world(); ++rank)
      homes_.push_back(local_parameters(config_, schedule_.mesh, rank));
  }

  TransformerResult run() {
    ShardedRun sharded;
    sharded.seed = seed_;
    sharded.edits = edits_;
    std::set<std::string> reached;
    sharded.reached = &reached;
    const ContributionTable table(config_, schedule_, timeline_, data_, sharded);
    check_reached(edits_, reached);
    Replay replay(schedule_, timeline_, table, seed_);
    for (std::size_t step = 0; step < timeline_.step_ends.size(); ++step) {
      replay.run_to(timeline_.step_ends[step]);
      const auto reference = references_.get(config_, seed_, data_.sequences(static_cast<int>(step)));
      compare(static_cast<int>(step), *reference, replay, table);
      if (!result_.match) break;
    }
    return std::move(result_);
  }

 private:
  void compare(int step, const RoundedGradient& reference, Replay& replay, const ContributionTable& table) {
    if (step > 0) {
      std::vector<Intervals>& clear = result_.clear_before.emplace_back();
      for (TransformerBuffer& buffer : result_.buffers) clear.push_back(std::move(buffer.clear));
    }
    result_.buffers.clear();
    result_.match = true;
    result_.step = step;
    result_.smallest_wrong = 0;
    Replicas replicas(schedule_.model.logicals().size());
    for (int rank = 0; rank < schedule_.mesh.world(); ++rank) {
      const std::size_t count = schedule_.model.local(rank).buffers.size();
      for (std::size_t buffer = 0; buffer < count; ++buffer)
        compare_buffer(step, rank, static_cast<int>(buffer), reference, replay, table, replicas);
    }
    result_.replicas_agree = replicas.agree();
    result_.replicated = replicas.replicated();
  }

  /// The elements of a buffer in a tensor of one device; zeros for a parameter that never takes part.
  std::vector<double> piece(const Tensors<double>& tensors, int rank, const LocalBuffer& buffer) const {
    std::vector<double> elements(static_cast<std::size_t>(buffer.numel));
    for (const int parameter : buffer.parameters) {
      const auto home = homes_[at(rank)].find(schedule_.model.parameters()[at(parameter)].name);
      if (home == homes_[at(rank)].end()) continue;
      const Home& at = home->second;
      const Real block = block_of(tensors.at(at.tensor), at.row, at.column, at.rows, at.columns);
      std::copy_n(block.data(), block.size(), elements.begin());
      break;
    }
    return elements;
  }

  void compare_buffer(int step, int rank, int buffer, const RoundedGradient& reference, Replay& replay,
                      const ContributionTable& table, Replicas& replicas) {
    const LocalBuffer& local = schedule_.model.local(rank).buffers[at(buffer)];
    const std::vector<double> expected = piece(reference.gradient, rank, local);
    const std::vector<double> deviation = piece(reference.deviation, rank, local);
    const std::vector<double>& got = replay.values(schedule_.result, rank, buffer);
    const std::vector<double>& magnitude = replay.magnitudes(schedule_.result, rank, buffer);
    const Intervals& owned = timeline_.owned[at(step)][at(rank)][at(buffer)];
    // Rounding of the reference and of the sharded model, and of each step of the schedule (docs/transformer.md).
    const double steps = static_cast<double>(timeline_.step_ends[at(step)]);
    const auto bound = [&](std::size_t e) {
      return 4 * reference.worst(deviation[e]) + steps * 0x1p-53 * magnitude[e];
    };
    const auto error = [&](std::int64_t element) {
      const auto e = static_cast<std::size_t>(element);
      const double difference = std::abs(got[e] - expected[e]);
      if (difference == 0) return 0.0;
      const double ratio = difference / bound(e);
      return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
    };
    TransformerBuffer found;
    found.rank = rank;
    found.buffer = buffer;
    double off = 0, length = 0;
    for (const Interval& interval : owned) {
      for (std::int64_t element = interval.begin; element < interval.end; ++element) {
        const auto e = static_cast<std::size_t>(element);
        found.error = std::max(found.error, error(element));
        off = std::hypot(off, got[e] - expected[e]);
        length = std::hypot(length, expected[e]);
        replicas.add(local, element, got[e], bound(e), error(element) <= 1);
      }
    }
    found.relative = off == 0 ? 0 : off / length;
    const Pieces::mapped_type& piece = piece_of(step, local, reference, deviation, table);
    found.clear = intersect(piece.clear, owned);
    found.right = found.error <= 1;
    if (found.right) {
      result_.largest_right = std::max(result_.largest_right, found.error);
    } else {
      result_.smallest_wrong = result_.match ? found.error : std::min(result_.smallest_wrong, found.error);
      result_.match = false;
      for (const Interval& interval : cut(owned, replay.cuts(rank, buffer)))
        add_piece(found, interval, piece.named, got, error);
    }
    result_.buffers.push_back(std::move(found));
  }

  /// What is made to a piece of a logical parameter, the same for every rank that holds it.
  struct Piece {
    std::vector<ContributionTable::Named> named;
    Intervals clear;
  };
  using Pieces = std::map<std::tuple<int, int, int>, Piece>;  ///< by step, logical and piece

  const Piece& piece_of(int step, const LocalBuffer& local, const RoundedGradient& reference,
                        const std::vector<double>& deviation, const ContributionTable& table) {
    const auto [found, is_new] = pieces_.try_emplace({step, local.logical, local.piece});
    Piece& piece = found->second;
    if (!is_new) return piece;
    piece.named = table.named(local.logical, local.piece, step);
    if (piece.named.empty()) return piece;
    // Coefficients are fractions that differ by far more than this; see docs/transformer.md on the bound.
    constexpr double far_above = 1e8;
    for (std::int64_t e = 0; e < local.numel; ++e) {
      const double least = far_above * 4 * reference.worst(deviation[at(e)]);
      const bool clear = std::all_of(piece.named.begin(), piece.named.end(), [&](const auto& entry) {
        return entry.values != nullptr && std::abs((*entry.values)(e)) > least;
      });
      if (!clear) continue;
      if (!piece.clear.empty() && piece.clear.back().end == e)
        piece.clear.back().end = e + 1;
      else
        piece.clear.push_back({e, e + 1});
    }
    return piece;
  }

  static Intervals cut(const Intervals& owned, const std::set<std::int64_t>& cuts) {
    Intervals result;
    for (const Interval& interval : owned) {
      std::int64_t begin = interval.begin;
      for (auto at = cuts.upper_bound(begin); at != cuts.end() && *at < interval.end; ++at) {
        result.push_back({begin, *at});
        begin = *at;
      }
      result.push_back({begin, interval.end});
    }
    return result;
  }

  template <class Error>
  static void add_piece(TransformerBuffer& found, const Interval& interval,
                        const std::vector<ContributionTable::Named>& named, const std::vector<double>& got,
                        const Error& error) {
    TransformerPiece piece{interval, true, {}, {}};
    for (std::int64_t e = interval.begin; e < interval.end && piece.right; ++e) piece.right = error(e) <= 1;
    if (!piece.right) {
      std::vector<const Real*> values;
      std::vector<Term> terms;
      for (const ContributionTable::Named& entry : named) {
        const auto is_zero = [&] {
          const double* begin = entry.values->data() + interval.begin;
          return std::all_of(begin, begin + interval.size(), [](double value) { return value == 0; });
        };
        const bool zero = entry.values == nullptr || is_zero();
        (zero ? piece.unseen : terms).push_back(entry.term);
        if (!zero) values.push_back(entry.values);
      }
      if (const auto coefficients = find_coefficients(values, got, interval)) {
        piece.terms.emplace();
        for (std::size_t i = 0; i < terms.size(); ++i) {
          terms[i].coefficient = (*coefficients)[i];
          if (!terms[i].coefficient.is_zero()) piece.terms->push_back(std::move(terms[i]));
        }
      }
    }
    found.pieces.push_back(std::move(piece));
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  std::uint64_t seed_;
  KnownReferences own_references_;
  KnownReferences& references_;
  Config config_;
  Data data_;
  SiteEdits edits_;
  std::vector<std::map<std::string, Home>> homes_;
  Pieces pieces_;
  TransformerResult result_;
};

TransformerFailure failure_of(const CommunicationError& error) {
  TransformerFailure failure{error.kind != CommunicationError::Kind::mismatch, error.what(), {}};
  for (const CommunicationError::Line& line : error.lines)
    failure.lines.push_back({line.rank, line.calls, line.waits_for});
  return failure;
}

}  // namespace

}  // namespace transformer

TransformerResult run_transformer(const Scenario& scenario, const Timeline& timeline,
                                  const TransformerOptions& options) {
  try {
    return transformer::Engine(scenario, timeline, options).run();
  } catch (const transformer::CommunicationError& error) {
    TransformerResult result;
    result.failure = transformer::failure_of(error);
    return result;
  }
}

}  // namespace lockstep
