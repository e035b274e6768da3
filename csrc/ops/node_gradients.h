// node_gradients: dense per-node gradients of one layer from their factored form (Algorithm 1, line 3: grad L(i)).
#pragma once
#include <cstdint>

#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// The factored form of one layer's per-node gradients. Node i owns entries entry_ptr[i] .. entry_ptr[i + 1]; entry e
// stands for the rank-one term inputs[nodes[e], :]^T delta[e, :].
template <typename T>
struct GradientFactors {
  const int64_t* entry_ptr;  // [m + 1]
  const int32_t* nodes;      // [n_entries], rows of the layer's inputs
  const T* delta;            // [n_entries, h]
  int64_t m, h;
};

// out[i, a * h + b]  = sum over entries e of node i of inputs[nodes[e], a] * delta[e, b]     (weights, d * h numbers)
// out[i, d * h + b]  = sum over entries e of node i of delta[e, b]                           (bias, h numbers)
//   inputs  [r, d] dense row-major, or CSR with d columns, each named once in a row
//   out     [m, d * h + h], rows `stride` apart (a slice of the [m, p] gradient matrix); every element is written; must
//           not overlap what is read
// Sums run in T in entry order, so two runs agree bit for bit. No scratch.
void node_gradients_cpu(const Parallel& parallel, GradientFactors<float> f, MatrixView<const float> inputs,
                        MatrixView<float> out);
void node_gradients_cpu(const Parallel& parallel, GradientFactors<double> f, MatrixView<const double> inputs,
                        MatrixView<double> out);
void node_gradients_cpu(const Parallel& parallel, GradientFactors<float> f, CsrView<float> inputs,
                        MatrixView<float> out);
void node_gradients_cpu(const Parallel& parallel, GradientFactors<double> f, CsrView<double> inputs,
                        MatrixView<double> out);

// The same on `device`, asynchronous on `stream`.
void node_gradients_cuda(int device, void* stream, GradientFactors<float> f, MatrixView<const float> inputs,
                         MatrixView<float> out);
void node_gradients_cuda(int device, void* stream, GradientFactors<double> f, MatrixView<const double> inputs,
                         MatrixView<double> out);
void node_gradients_cuda(int device, void* stream, GradientFactors<float> f, CsrView<float> inputs,
                         MatrixView<float> out);
void node_gradients_cuda(int device, void* stream, GradientFactors<double> f, CsrView<double> inputs,
                         MatrixView<double> out);

}  // namespace calirare
