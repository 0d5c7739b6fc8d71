// SPDX-License-Identifier: Apache-2.0
#include "src/base/bytes_text.h"

#include <cstdint>

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("bytes are told in the largest unit of which there is one") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1024) == "1.0 KiB");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(std::uint64_t{5} << 20) == "5.0 MiB");
  CHECK(bytes_text(std::int64_t{3} << 30) == "3.0 GiB");
  CHECK(bytes_text(0x1p50) == "1024.0 TiB");
}
