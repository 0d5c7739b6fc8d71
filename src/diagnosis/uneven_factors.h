// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/timeline.h"

namespace lockstep::diagnosis {

/// A sentence on the first scale that gives ranks with the same place on all axes but cp and sp different numbers; ""
/// where there is none. Attention brings gradients of a rank's loss to the other ranks of its sequence. So what a
/// rank's backward yields is the gradient of its own tokens' loss no longer where ranks of a sequence are weighed apart
/// after it, and engines that go by contributions alone do not see that. Found by the transformer engine, which has
/// real attention. Complexity: linear in the events.
std::string uneven_factors_of_a_sequence(const Schedule& schedule, const Timeline& timeline);

}  // namespace lockstep::diagnosis
