#include "../ops/message_interval.h"
#include "message_interval.cuh"

namespace calirare {

int64_t message_interval_scratch_rows(int64_t n, int64_t m) { return message_interval_blocks(n, m); }

#define CALIRARE_DEFINE(T)                                                                                 \
  void message_interval_cuda(int device, void* stream, const MessageScores<T>& scores, const T* residuals, \
                             const double q[2], T* ends, T* scratch) {                                     \
    const DeviceGuard guard(device);                                                                       \
    launch_message_interval(scores, residuals, q, ends, scratch, stream);                                  \
  }
CALIRARE_DEFINE(float)
CALIRARE_DEFINE(double)
#undef CALIRARE_DEFINE

}  // namespace calirare
