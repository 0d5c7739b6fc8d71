// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/numeric.h"
#include "tests/catch.h"

namespace lockstep::test {

/// The same findings, to the bit.
inline void require_equal(const HostResult& host, const HostResult& other) {
  REQUIRE(other.match == host.match);
  REQUIRE(other.step == host.step);
  REQUIRE(other.sampled == host.sampled);
  REQUIRE(other.elements == host.elements);
  REQUIRE(other.of == host.of);
  REQUIRE(other.notes == host.notes);
  REQUIRE(other.reference == host.reference);
  REQUIRE(other.buffers.size() == host.buffers.size());
  for (std::size_t i = 0; i < host.buffers.size(); ++i) {
    const HostBuffer &a = host.buffers[i], &b = other.buffers[i];
    INFO("rank " << a.rank << " buffer " << a.buffer);
    REQUIRE(b.rank == a.rank);
    REQUIRE(b.buffer == a.buffer);
    REQUIRE(b.right == a.right);
    REQUIRE(b.replayed == a.replayed);
    REQUIRE(b.arithmetic == a.arithmetic);
    REQUIRE(b.hash == a.hash);
    REQUIRE(b.expected_hash == a.expected_hash);
  }
}

}  // namespace lockstep::test
