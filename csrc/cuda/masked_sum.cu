#include "masked_sum.cuh"

namespace calirare {

#define CALIRARE_DEFINE(T)                                                       \
  void masked_sum_cuda(int device, void* stream, const MaskedSumTask<T>& task) { \
    const DeviceGuard guard(device);                                             \
    launch_masked_sum(task, stream);                                             \
  }
CALIRARE_DEFINE(float)
CALIRARE_DEFINE(double)
#undef CALIRARE_DEFINE

}  // namespace calirare
