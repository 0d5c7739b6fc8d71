// SPDX-License-Identifier: Apache-2.0
#include "src/base/bytes_text.h"

#include <fmt/format.h>

namespace lockstep {

std::string bytes_text(double bytes) {
  if (bytes >= 0x1p40) return fmt::format("{:.1f} TiB", bytes / 0x1p40);
  if (bytes >= 0x1p30) return fmt::format("{:.1f} GiB", bytes / 0x1p30);
  if (bytes >= 0x1p20) return fmt::format("{:.1f} MiB", bytes / 0x1p20);
  if (bytes >= 0x1p10) return fmt::format("{:.1f} KiB", bytes / 0x1p10);
  return fmt::format("{:.0f} B", bytes);
}

}  // namespace lockstep
