// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/mesh.h"

namespace lockstep::mesh {

/// Whether the parts that `dp_replicate` cuts dp into are those that `edp_replicate` cuts edp into, rank for rank, and
/// each is a row of neighbours among the ranks of dp and cp together; so it is where edp is not cut at all. Megatron's
/// optimizer instances are such rows, but it takes the groups between instances from the expert mesh for all
/// parameters.
bool instance_groups_agree(const Layout& layout);

/// Whether that is so for every size of every axis: nothing but pp is slower than dp.
bool instance_groups_always_agree(const Layout& layout);

}  // namespace lockstep::mesh
