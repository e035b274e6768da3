// Launching with nvcc: errors become exceptions that name the kernel.
#pragma once
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#define CALIRARE_SHARED(T, name, count) __shared__ T name[count]
#define CALIRARE_CHECK_LAUNCH(kernel) ::calirare::check_launch(kernel)

namespace calirare {

inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
}

// CALIRARE_SYNC=1 makes a kernel's own failure show at its own launch. It also breaks CUDA graph capture.
inline bool synchronise_every_launch() {
  static const bool on = [] {
    const char* value = std::getenv("CALIRARE_SYNC");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  return on;
}

inline void check_launch(const char* kernel) {
  check_cuda(cudaGetLastError(), kernel);
  if (synchronise_every_launch()) check_cuda(cudaDeviceSynchronize(), kernel);
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, void* stream, Arguments... arguments) {
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(Parameters(arguments)...);
}

// Copies a pack of 4, 8 or 16 bytes from global to shared memory without a register. It is there once this thread has
// waited, and for other threads after a barrier.
template <typename P, typename T>
__device__ inline void copy_async(P* to, const T* from) {
  __pipeline_memcpy_async(to, from, sizeof(P));
}
__device__ inline void wait_for_copies() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

// Makes `device` current and puts the caller's device back.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check_cuda(cudaGetDevice(&previous_), "cudaGetDevice");
    if (previous_ == device) {
      previous_ = -1;
    } else {
      check_cuda(cudaSetDevice(device), "cudaSetDevice");
    }
  }
  ~DeviceGuard() {
    if (previous_ >= 0) (void)cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = -1;
};

}  // namespace calirare
