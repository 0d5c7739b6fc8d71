// SPDX-License-Identifier: Apache-2.0
// All kernels for the host, compiled once for every program that uses them.
#include "tests/device/host_gpu.h"

template class lockstep::device::KernelGpu<lockstep::test::HostLauncher>;
