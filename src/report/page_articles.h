// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/json.h"
#include "src/report/html_article.h"

namespace lockstep::report {

/// The scenarios of a page in as much detail as the space allows. Where not all fit whole, they are packed for a script
/// to unpack, and what can be read without it is what else there is room for. What did not come out as expected goes
/// first, then what is wrong.
struct PageArticles {
  std::string text;
  std::string data;             ///< what is packed, as an element; "" where nothing is
  std::vector<Detail> details;  ///< by report: how much stands in `text`
  std::size_t packed = 0;       ///< scenarios in `data`
};

/// `reports` with --timeline, in at most `space` bytes; a single one is shown whole however large it is.
PageArticles page_articles(const std::vector<Json>& reports, std::size_t space);

/// Who opens a page looks first for what did not come out as expected (0), then for what is wrong (1), then the rest
/// (2).
int page_priority(const Json& report);

}  // namespace lockstep::report
