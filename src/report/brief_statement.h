// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep::report {

/// The statement of a proof (Proof::statement, SameProof::statement) for readers who can ask for more: of long lists of
/// sizes the simplest few, how many more there are, and "(-v prints all)". What it says is as true as the whole. One
/// with short lists comes back as it is.
std::string brief_statement(const std::string& statement);

}  // namespace lockstep::report
