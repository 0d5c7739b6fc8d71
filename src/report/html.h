// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/json.h"

namespace lockstep::report {

/// Text for HTML, for text and for attributes in double quotes. What would not be seen is escaped (is_invisible()).
std::string html_text(std::string_view text);
/// JSON without spaces that may stand in a <script> element: `<` is written as \u003c. What would
/// not be seen is escaped twice, so that the page shows it.
std::string script_json(const Json& value);

/// The member's text; "" where it is missing, null or no string or number.
const std::string& text_at(const Json& object, std::string_view key);
/// The member's items; none where it is missing.
const std::vector<Json>& items_at(const Json& object, std::string_view key);
/// An integer that this program wrote itself.
long long number_of(const Json& number);

/// Texts of src/report/page/* by name. Defined in a source that cmake/embed.cmake generates.
const std::map<std::string, std::string>& embedded_page();

}  // namespace lockstep::report
