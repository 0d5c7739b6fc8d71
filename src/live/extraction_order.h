// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/live/collective_order.h"
#include "src/live/extraction.h"
#include "src/symbolic/program_meetings.h"

namespace lockstep::live {

/// What does not meet among the calls of an extraction, and which ranks wait for ever. Complexity: linear in the calls
/// of all ranks.
CollectiveOrder order_of_calls(const Extraction& extraction, const symbolic::Meetings& meetings);

}  // namespace lockstep::live
