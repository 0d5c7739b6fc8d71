// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// What the engines of `result` say differently about values, with the command that replays it;
/// "" where they agree or one of them did not run. Counts and ownership are the symbolic engine's
/// alone.
std::string find_disagreement(const CheckResult& result, const CheckOptions& options);

// What EngineRow::compare is: what two engines found differently, as half a sentence; "" where they agree, or where the
// two cannot be compared.

/// Of an engine that computes with numbers: against formulas, and bit for bit against other numbers.
std::string compare_numbers(const CheckResult& result, const EngineResult& above, const EngineResult& own,
                            const CheckOptions& options);
/// Of an engine that decides by classes of ranks: verdict and step against formulas.
std::string compare_by_classes(const CheckResult& result, const EngineResult& above, const EngineResult& own,
                               const CheckOptions& options);
/// The first difference between what the symbolic and the transformer engine found about values: buffers that are right
/// for one of them, and coefficients of the contributions that wrong ones are made of. "" where they agree, where the
/// file edits the model, which the symbolic engine cannot see, and where the model is not as claimed: then it was told
/// something else, and is right about that.
///
/// Real gradients hide what is multiplied by zero: a buffer that is right for the transformer alone is a difference
/// only where the symbolic engine finds it wrong on elements on which a real gradient shows it.
std::string compare_with_transformer(const CheckResult& result, const EngineResult& above, const EngineResult& own,
                                     const CheckOptions& options);

}  // namespace lockstep::diagnosis
