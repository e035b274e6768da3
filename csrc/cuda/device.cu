#include "../ops/device.h"
#include "launch.cuh"

namespace calirare {

bool cuda_compiled() { return true; }

int cuda_device_count(std::string* reason) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();  // asking is no failure: leaves nothing for the next launch to report
  if (!reason) return 0;
  int driver = 0;
  if (error == cudaSuccess) {
    *reason = "the NVIDIA driver lists no device";
  } else if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
    *reason = "no NVIDIA driver is installed";
  } else {
    *reason = cudaGetErrorString(error);
  }
  return 0;
}

}  // namespace calirare
