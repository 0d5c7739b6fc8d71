// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/edit.h"
#include "lockstep/schedule.h"

namespace lockstep::diagnosis {

/// "dp, cp", "pp first, last", "true": what a step says of a key as words; "" where it says nothing.
std::string words_of_key(const Step& step, std::string_view key);
/// How many ranks meet over a step's "over"; 0 where there is none.
int ranks_over(const Schedule& schedule, const std::optional<Over>& over);
/// "dp (2 ranks)"
std::string group_text(const Schedule& schedule, const Step& step);
/// The number that an expression of sizes is; nothing where tokens stand in it.
std::optional<Rational> constant_of(const Schedule& schedule, const Expression& expression);
/// "1 / (dp * cp) = 1/4", or the expression alone where tokens or micro-batches stand in it; "1" for none.
std::string factor_text(const Schedule& schedule, const std::optional<Expression>& expression);
/// What a step does, after "nothing" or after its own name: "sums the gradients of tag:norm over tp (2 ranks)".
std::string deed_of(const Schedule& schedule, const Step& step);
/// What is wrong with one key of a step, that an edit sets or removes: "sums over dp (2 ranks) what should be
/// averaged".
std::string words_for_key(const Schedule& schedule, const Step& step, const Edit& edit, std::string_view key);

}  // namespace lockstep::diagnosis
