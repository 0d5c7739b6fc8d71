// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/json.h"

namespace lockstep::report {

/// How much of a scenario is shown, each with all that stands above it.
enum class Detail {
  row,       ///< its row in the list
  findings,  ///< what is wrong, the first of it
  ranks,     ///< the grid of ranks, and the timeline
  text,      ///< the text of the file
  whole,     ///< all that is wrong, and what the ranks hold after every step as tables
};
/// One scenario of a page, from its JSON report with --timeline: readable without scripts. In parts, of which those
/// with one index are alike between scenarios; joined they are an element. None for Detail::row. `data`: with what the
/// script reads; else the page has it elsewhere.
std::vector<std::string> html_article(const Json& report, Detail detail, bool data);
/// Its row in the list, with or without a link to its article.
std::string html_row(const Json& report, bool linked);
/// A verdict as a word with a sign that needs no colour.
std::string html_verdict(const Json& report);

/// The parts of an article that are tables: wrong parameters, and failures.
std::string html_findings(const Json& report, bool brief);
/// The grid of ranks, and what they hold after every step.
std::string html_ranks(const Json& report);
std::string html_steps(const Json& report);

}  // namespace lockstep::report
