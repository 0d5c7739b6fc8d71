// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lockstep/scenario.h"

namespace lockstep::transformer {

/// What an edit does to the model at a site.
struct SiteEdit {
  enum class Kind { drop, duplicate, over };
  Kind kind = Kind::drop;
  Axis axis = Axis::tp;  ///< over: the axis along which the site communicates instead
  Place place;
};
using SiteEdits = std::map<std::string, SiteEdit>;

/// A place in the model at which ranks communicate, or say where they are and which part of it is theirs.
struct Site {
  enum class Kind { sum, gather, exchange, message, positions, part };
  const char* name;
  Kind kind;
  const char* help;
};
const std::vector<Site>& sites();
/// Null where there is none.
const Site* find_site(const std::string& name);

/// The edits of a scenario's model. Throws InputError for a site that does not exist, and for an edit that it cannot
/// bear: only sums can be duplicated, and only collectives run over another axis.
SiteEdits read_site_edits(const Preset& preset);
/// Throws InputError for an edit of a site that a run did not reach: it would pass for a repair.
void check_reached(const SiteEdits& edits, const std::set<std::string>& reached);

}  // namespace lockstep::transformer
