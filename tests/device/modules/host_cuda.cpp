// SPDX-License-Identifier: Apache-2.0
// A module in the place of the one that speaks CUDA: the host runs the kernels. For tests of what is around a GPU.
#include "tests/device/host_gpu.h"

/// The caller owns the result.
extern "C" __attribute__((visibility("default"))) lockstep::device::Gpu* lockstep_open_gpu(int number) {
  lockstep::device::GpuFacts facts = lockstep::test::host_facts();
  facts.name = "GPU " + std::to_string(number) + " (host)";
  return new lockstep::test::HostGpu(facts, static_cast<unsigned>(number) + 1);
}
