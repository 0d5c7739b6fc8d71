// SPDX-License-Identifier: Apache-2.0
#include "src/importers/megatron_sources.h"

#include "src/importers/megatron_flags.h"

namespace lockstep {

MegatronSource read_megatron_source(const ImportRequest& request, Diagnostics& diagnostics) {
  return {read_megatron_arguments(words_of_arguments(request.arguments), request.ignore_unknown, diagnostics),
          "arguments of Megatron-LM", 0};
}

}  // namespace lockstep
