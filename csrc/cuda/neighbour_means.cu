#include "../ops/neighbour_means.h"
#include "neighbour_means.cuh"

namespace calirare {

#define CALIRARE_DEFINE(T)                                                                                      \
  void neighbour_means_cuda(int device, void* stream, CsrView<T> a, MatrixView<const T> x, MatrixView<T> out) { \
    const DeviceGuard guard(device);                                                                            \
    launch_neighbour_means(a, x, out, stream);                                                                  \
  }
CALIRARE_DEFINE(float)
CALIRARE_DEFINE(double)
#undef CALIRARE_DEFINE

}  // namespace calirare
