#include "block_cg.cuh"

namespace calirare {

#define CALIRARE_DEFINE(T)                                                                                 \
  void cg_descend_cuda(int device, void* stream, CgColumns columns, const T* p, const T* ap, T* x, T* r) { \
    const DeviceGuard guard(device);                                                                       \
    launch_cg_descend(columns, p, ap, x, r, stream);                                                       \
  }                                                                                                        \
  void cg_redirect_cuda(int device, void* stream, CgColumns columns, const T* r, const T* z, T* p) {       \
    const DeviceGuard guard(device);                                                                       \
    launch_cg_redirect(columns, r, z, p, stream);                                                          \
  }
CALIRARE_DEFINE(float)
CALIRARE_DEFINE(double)
#undef CALIRARE_DEFINE

}  // namespace calirare
