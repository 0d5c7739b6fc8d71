// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "lockstep/json.h"
#include "lockstep/schedule.h"

namespace lockstep {

/// "dp, cp", "pp first, last", "true": a value of a step's key as words; "" for null.
std::string text_of_value(const Json* value);
/// How many ranks meet over a step's "over"; 0 where there is none.
int ranks_over(const Schedule& schedule, const Json* over);
/// "dp (2 ranks)"
std::string group_text(const Schedule& schedule, const Json* over);
/// The number that an expression of sizes is; nothing where tokens stand in it.
std::optional<Rational> constant_of(const Schedule& schedule, const std::string& expression);
/// "1 / (dp * cp) = 1/4", or the expression alone where tokens or micro-batches stand in it.
std::string factor_text(const Schedule& schedule, const std::string& expression);
/// What a step does, after "nothing" or after its own name: "sums the gradients of tag:norm over tp (2 ranks)".
std::string deed_of(const Schedule& schedule, const Json& step);
/// What is wrong with one key of a step that an edit sets: "sums over dp (2 ranks) what should be averaged".
std::string words_for_key(const Schedule& schedule, const Json& step, const Json::Member& set);

}  // namespace lockstep
