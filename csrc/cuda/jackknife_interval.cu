#include "../ops/jackknife_interval.h"
#include "jackknife_interval.cuh"

namespace calirare {

#define CALIRARE_DEFINE(T)                                                                               \
  void jackknife_interval_cuda(int device, void* stream, MatrixView<const T> scores, const T* residuals, \
                               const double q[2], T* ends, int32_t* places) {                            \
    const DeviceGuard guard(device);                                                                     \
    launch_jackknife_interval(scores, residuals, q, ends, places, stream);                               \
  }
CALIRARE_DEFINE(float)
CALIRARE_DEFINE(double)
#undef CALIRARE_DEFINE

}  // namespace calirare
