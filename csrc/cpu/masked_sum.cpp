#include "../ops/masked_sum.h"

#include "../core/masked_sum_element.h"

namespace calirare {
namespace {

template <typename T>
void masked_sum_any(const Parallel& parallel, const MaskedSumTask<T>& t) {
  const int64_t h = t.z.n_cols, s = t.out.n_cols;
  if (t.out.n_rows == 0 || s == 0) return;
  parallel.run(t.out.n_rows, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const T *product = t.product.data + r * t.product.stride, *z = t.z.data + r * t.z.stride;
      T* out = t.out.data + r * t.out.stride;
      for (int64_t i = 0; i < s; ++i) {
        MaskedSum<T> sum;
        for (int64_t j = 0; j < h; ++j) sum.add(z[j], t.weight[j], product[i * h + j], t.bias[i * h + j]);
        out[i] = sum.finish(out[i]);
      }
    }
  });
}

}  // namespace

void masked_sum_cpu(const Parallel& parallel, const MaskedSumTask<float>& task) { masked_sum_any(parallel, task); }
void masked_sum_cpu(const Parallel& parallel, const MaskedSumTask<double>& task) { masked_sum_any(parallel, task); }

}  // namespace calirare
