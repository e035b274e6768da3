#include "../ops/propagate.h"
#include "propagate.cuh"

namespace calirare {

#define CALIRARE_DEFINE(T)                                                                                \
  void propagate_cuda(int device, void* stream, CsrView<T> a, MatrixView<const T> x, MatrixView<T> out) { \
    const DeviceGuard guard(device);                                                                      \
    launch_propagate(a, x, out, stream);                                                                  \
  }
CALIRARE_DEFINE(float)
CALIRARE_DEFINE(double)
#undef CALIRARE_DEFINE

}  // namespace calirare
