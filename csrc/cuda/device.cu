#include "cuda.h"
#include "launch.cuh"

namespace calirare {

bool cuda_compiled() { return true; }

int cuda_device_count(std::string* reason) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();  // asking is no failure: leaves nothing for the next launch to report
  if (reason) *reason = error == cudaSuccess ? "the driver lists no CUDA device" : cudaGetErrorString(error);
  return 0;
}

}  // namespace calirare
