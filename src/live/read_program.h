// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/live/event.h"
#include "src/live/extraction.h"

namespace lockstep::live {

/// What the programs of an extraction share, each once: parameters by name, parts of them, process groups.
class ExtractionTables {
 public:
  /// The header of `extraction` must be read.
  explicit ExtractionTables(Extraction& extraction);

  /// The run's number of a parameter that a program declares; a mistake and nothing where it contradicts others.
  std::optional<int> parameter(const Event& event, const DeclaredParameter& declared);
  int region(int parameter, const DeclaredParameter& declared, const std::vector<Interval>& piece);
  /// The group that an event names, on the ranks of its program; a mistake and nothing where they are not in it.
  std::optional<int> group(const Event& event, const std::vector<int>& ranks);
  /// The rank that an event's "peer" names on each of these ranks: a global rank, or how far it stands from them along
  /// axes of the mesh. A mistake and nothing where there is no such rank.
  std::optional<symbolic::ProgramPeer> peer(const Event& event, const std::vector<int>& ranks);
  /// The position of an event's "root" in the group on all these ranks: that of a global rank, or "position" of `root`
  /// where it is an object. A mistake and nothing where it is not one position in all of their groups.
  std::optional<int> position(const Event& event, const Event& root, bool is_position, int group,
                              const std::vector<int>& ranks) const;

 private:
  int members(std::vector<int> ranks, std::int64_t communicator);
  std::vector<int> peers_at(const std::vector<int>& away) const;

  Extraction& extraction_;
  std::map<std::string, int, std::less<>> by_name_;
  std::map<std::pair<int, std::vector<std::pair<std::int64_t, std::int64_t>>>, int> region_numbers_;
  std::map<std::pair<std::int64_t, std::vector<int>>, int> member_numbers_;  // by communicator of these ranks
  std::map<std::pair<std::int64_t, std::uint32_t>, int> groups_by_axes_;
  std::map<int, int> groups_of_members_;
  std::map<std::vector<int>, std::shared_ptr<std::vector<int>>> peers_;  // by how far along each axis
};

/// The events of one program, in their order.
class ProgramReader {
 public:
  /// `program` has its ranks. All must outlive it.
  ProgramReader(const Header& header, ExtractionTables& tables, ExtractedProgram& details,
                symbolic::RankProgram& program)
      : header_(header), tables_(tables), details_(details), program_(program) {}

  /// Reads one event, which stands in that line.
  void event(const Json& json, int line, Diagnostics& mistakes);
  /// After the last event of the list at `events`.
  void end(const Json& events, Diagnostics& mistakes);

  /// What each rank of the program has of its own.
  const std::map<int, RankStep>& steps() const { return steps_; }
  const std::vector<CaptureGap>& gaps() const { return gaps_; }

 private:
  /// The part of a parameter that an event is about.
  struct Part {
    int parameter = 0, region = 0;  ///< of the run
    std::int64_t first = 0, elements = 0;
  };

  void parameter(const Event& event);
  void contribution(const Event& event, int line);
  void collective(const Event& event, int line);
  void result(const Event& event, int line);
  void square(const Event& event);
  void norm(const Event& event, int line);
  void step(const Event& event);
  void end_event(const Event& event);
  void gap(const Event& event, int line);
  std::optional<Part> part(const Event& event) const;
  std::optional<std::pair<int, const DeclaredParameter*>> parameter_of(const Event& event) const;
  Part region(const Event& event, int parameter, const DeclaredParameter& declared,
              const std::vector<Interval>& piece) const;
  std::vector<std::vector<int>> ranks_by_piece(const Event& event, std::size_t pieces) const;
  void add_result(const Event& event, const Part& part, std::vector<int> ranks, int content, int line);
  std::vector<int> declared(const Event& event, std::string_view key) const;
  static constexpr int contributes = -1, calls_nothing = -2;
  /// A source: what that call brings, a contribution, or neither.
  int define(const Event& event, const Json& number, int call, std::int64_t elements);
  static void no_sum(const Event& event, const Json& what, symbolic::ContentPart& part);
  symbolic::ProgramContent content(const Event& event, const Json& list, std::int64_t elements) const;
  std::vector<symbolic::SourceTerm> terms(const Event& event, const Json& list, std::int64_t count) const;
  bool root_and_peer(const Event& event, symbolic::ProgramCall& call) const;
  std::vector<std::int64_t> splits(const Event& event, std::string_view key) const;

  const Header& header_;
  ExtractionTables& tables_;
  ExtractedProgram& details_;
  symbolic::RankProgram& program_;
  std::map<std::int64_t, int> number_of_id_;  // of the run
  std::set<int> numbers_;                     // of the run, that it has declared
  std::map<std::int64_t, DeclaredParameter> declared_;
  std::map<int, RankStep> steps_;
  std::vector<CaptureGap> gaps_;
  int last_contributed_ = -1;                                // the latest optimizer step of a contribution
  std::vector<std::tuple<int, Place, const char*>> places_;  // of what steps have: step, where, and what it is
  bool ended_ = false;
};

}  // namespace lockstep::live
