// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lockstep/mesh.h"
#include "src/transformer/runtime.h"
#include "src/transformer/sites.h"

namespace lockstep::transformer {

/// The groups of all ranks along the axes of a mesh, made once.
class AxisGroups {
 public:
  explicit AxisGroups(const Mesh& mesh);
  const Mesh& mesh() const { return mesh_; }
  /// The ranks that share every coordinate of `rank` but that on `axis`, ascending.
  const std::vector<int>& group(Axis axis, int rank) const;

 private:
  const Mesh& mesh_;
  std::map<Axis, Groups> groups_;
};

/// What one rank's model communicates with: collectives along an axis, each at a named site. Along an axis of size 1
/// nothing happens. Rows are tokens in everything that is gathered or scattered.
class Communicator {
 public:
  /// `reached`, where given, gets the names of the edited sites at which something happens.
  Communicator(Runtime& runtime, const AxisGroups& groups, const SiteEdits& edits, int rank,
               std::set<std::string>* reached = nullptr)
      : runtime_(runtime), groups_(groups), edits_(edits), rank_(rank), reached_(reached) {}

  /// Whether an edit drops the site. What a collective or message then yields: of a sum the rank's own part, of a
  /// gather its own piece in every place, of an exchange zeros from all others, of a message zeros.
  bool is_dropped(const std::string& site) const;
  /// The same where dropping it changes something, so that the site is reached.
  bool drops(const std::string& site) const;
  const Mesh& mesh() const { return groups_.mesh(); }
  int rank() const { return rank_; }
  int size(Axis axis) const { return groups_.mesh().size(axis); }
  int coordinate(Axis axis) const { return groups_.mesh().coordinate(rank_, axis); }
  const std::vector<int>& group(Axis axis) const { return groups_.group(axis, rank_); }

  Task<Real> all_reduce(const char* site, Axis axis, Real tensor);
  Task<Real> all_reduce_max(const char* site, Axis axis, Real tensor);
  /// Every member brings as many rows.
  Task<Real> all_gather(const char* site, Axis axis, Real tensor);
  /// The same whatever the edits say, for what a dropped part of the model brings with it.
  Task<Real> gather_whole(const char* site, Axis axis, Real tensor);
  /// Every member gets as many rows.
  Task<Real> reduce_scatter(const char* site, Axis axis, Real tensor);
  /// `rows` go to each member of the group; `received` is how many came from each.
  Task<Real> all_to_all(const char* site, Axis axis, Real tensor, std::vector<int> rows, std::vector<int>& received);
  /// Throws CommunicationError where `received` rows came from the members, and the model takes `expected`.
  void expect_rows(const char* site, const std::vector<int>& received, const std::vector<int>& expected) const;
  /// `channel`: Request.
  Task<> send(std::string site, int peer, int channel, Real tensor);
  Task<Real> receive(std::string site, int peer, int channel);

 private:
  Task<Real> collective(Communication kind, const char* site, Axis axis, Real tensor, std::vector<int> rows,
                        std::vector<int>* received);

  const SiteEdit* edit_of(const std::string& site) const;
  void mark(const std::string& site) const;
  Axis axis_of(const char* site, Axis axis) const;
  void check_size(const char* site, Axis taken, Axis axis) const;
  bool duplicates(const char* site) const;

  Runtime& runtime_;
  const AxisGroups& groups_;
  const SiteEdits& edits_;
  int rank_;
  std::set<std::string>* reached_;
};

}  // namespace lockstep::transformer
