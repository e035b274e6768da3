#include "node_gradients.cuh"

namespace calirare {

#define CALIRARE_DEFINE(T, INPUTS)                                                                             \
  void node_gradients_cuda(int device, void* stream, GradientFactors<T> f, INPUTS inputs, MatrixView<T> out) { \
    const DeviceGuard guard(device);                                                                           \
    launch_node_gradients(f, inputs, out, stream);                                                             \
  }
CALIRARE_DEFINE(float, MatrixView<const float>)
CALIRARE_DEFINE(double, MatrixView<const double>)
CALIRARE_DEFINE(float, CsrView<float>)
CALIRARE_DEFINE(double, CsrView<double>)
#undef CALIRARE_DEFINE

}  // namespace calirare
