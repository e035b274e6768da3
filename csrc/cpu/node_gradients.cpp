#include "../ops/node_gradients.h"

#include <algorithm>

#include "../core/node_gradients_element.h"

namespace calirare {
namespace {

template <typename T>
void add_scaled(T scale, const T* x, int64_t size, T* out) {
#pragma omp simd
  for (int64_t b = 0; b < size; ++b) add_outer_term(scale, x[b], out + b);
}

// Adds inputs[node, :]^T delta to out [d, h], one row of the inputs dense or sparse.
template <typename T>
void add_outer(MatrixView<const T> inputs, int64_t node, const T* delta, int64_t h, T* out) {
  const T* row = inputs.data + node * inputs.stride;
  for (int64_t a = 0; a < inputs.n_cols; ++a) add_scaled(row[a], delta, h, out + a * h);
}
template <typename T>
void add_outer(CsrView<T> inputs, int64_t node, const T* delta, int64_t h, T* out) {
  for (int64_t e = inputs.indptr[node]; e < inputs.indptr[node + 1]; ++e) {
    add_scaled(inputs.values[e], delta, h, out + int64_t(inputs.indices[e]) * h);
  }
}

template <typename T, typename Inputs>
void gradients(const Parallel& parallel, GradientFactors<T> f, Inputs inputs, MatrixView<T> out) {
  const int64_t n_weights = out.n_cols - f.h;
  if (f.m == 0 || out.n_cols == 0) return;
  parallel.run(f.m, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      T* row = out.data + i * out.stride;
      std::fill_n(row, out.n_cols, T(0));
      for (int64_t e = f.entry_ptr[i]; e < f.entry_ptr[i + 1]; ++e) {
        add_outer(inputs, int64_t(f.nodes[e]), f.delta + e * f.h, f.h, row);
        add_scaled(T(1), f.delta + e * f.h, f.h, row + n_weights);
      }
    }
  });
}

}  // namespace

#define CALIRARE_DEFINE(T, INPUTS)                                                                            \
  void node_gradients_cpu(const Parallel& parallel, GradientFactors<T> f, INPUTS inputs, MatrixView<T> out) { \
    gradients(parallel, f, inputs, out);                                                                      \
  }
CALIRARE_DEFINE(float, MatrixView<const float>)
CALIRARE_DEFINE(double, MatrixView<const double>)
CALIRARE_DEFINE(float, CsrView<float>)
CALIRARE_DEFINE(double, CsrView<double>)
#undef CALIRARE_DEFINE

}  // namespace calirare
