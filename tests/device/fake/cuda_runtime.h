// SPDX-License-Identifier: Apache-2.0
// What the nccl engine calls of CUDA, for tests without a GPU: tests/device/fake_nccl.cpp does it.
#pragma once

#include <cstddef>

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidDevice = 101, cudaErrorNotReady = 600 };
using cudaStream_t = struct CUstream_st*;

extern "C" {
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
}
