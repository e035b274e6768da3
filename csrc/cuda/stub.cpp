// Stands in for every CUDA launcher in a build without nvcc.
#include <stdexcept>

#include "../ops/block_cg.h"
#include "../ops/device.h"
#include "../ops/jackknife_interval.h"
#include "../ops/masked_sum.h"
#include "../ops/message_interval.h"
#include "../ops/neighbour_means.h"
#include "../ops/node_gradients.h"
#include "../ops/propagate.h"

namespace calirare {
namespace {

const char kReason[] = "this build has no CUDA kernels: install nvcc and build again with CALIRARE_CUDA=ON";

[[noreturn]] void refuse() { throw std::runtime_error(kReason); }

}  // namespace

bool cuda_compiled() { return false; }
int cuda_device_count(std::string* reason) {
  if (reason) *reason = kReason;
  return 0;
}

int64_t message_interval_scratch_rows(int64_t, int64_t, int64_t) { refuse(); }

#define CALIRARE_STUB(T)                                                                                      \
  void propagate_cuda(int, void*, CsrView<T>, MatrixView<const T>, MatrixView<T>) { refuse(); }               \
  void neighbour_means_cuda(int, void*, CsrView<T>, MatrixView<const T>, MatrixView<T>) { refuse(); }         \
  void node_gradients_cuda(int, void*, GradientFactors<T>, MatrixView<const T>, MatrixView<T>) { refuse(); }  \
  void node_gradients_cuda(int, void*, GradientFactors<T>, CsrView<T>, MatrixView<T>) { refuse(); }           \
  void cg_descend_cuda(int, void*, CgColumns, const T*, const T*, T*, T*) { refuse(); }                       \
  void cg_redirect_cuda(int, void*, CgColumns, const T*, const T*, T*) { refuse(); }                          \
  void masked_sum_cuda(int, void*, const MaskedSumTask<T>&) { refuse(); }                                     \
  void message_interval_cuda(int, void*, const MessageScores<T>&, const T*, const double*, T*, T*, int64_t) { \
    refuse();                                                                                                 \
  }                                                                                                           \
  void jackknife_interval_cuda(int, void*, MatrixView<const T>, const T*, const double*, T*, int32_t*) { refuse(); }
CALIRARE_STUB(float)
CALIRARE_STUB(double)
#undef CALIRARE_STUB

}  // namespace calirare
