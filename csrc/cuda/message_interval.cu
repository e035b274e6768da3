#include "../ops/message_interval.h"
#include "message_interval.cuh"

namespace calirare {

int64_t message_interval_scratch_rows(int64_t n, int64_t m, int64_t size) { return message_interval_rows(n, m, size); }

#define CALIRARE_DEFINE(T)                                                                                 \
  void message_interval_cuda(int device, void* stream, const MessageScores<T>& scores, const T* residuals, \
                             const double q[2], T* ends, T* scratch, int64_t rows) {                       \
    const DeviceGuard guard(device);                                                                       \
    launch_message_interval(scores, residuals, q, ends, scratch, rows, stream);                            \
  }
CALIRARE_DEFINE(float)
CALIRARE_DEFINE(double)
#undef CALIRARE_DEFINE

}  // namespace calirare
