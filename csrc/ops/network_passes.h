// network_passes: what a step of b networks side by side does between its sparse products, each in one pass over
// memory.
#pragma once
#include <cstdint>

#include "../core/network_passes_element.h"
#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// Rows are cut into chunks by shapes alone, and each chunk's sums are added in order: threads do not change a bit.
int64_t network_chunks(int64_t n_rows, int64_t n_sums);

// z := relu(z + bias) * keep, and each network's product with its next weights.
//   z        [r, b h], rows `stride` apart; becomes the hidden states
//   bias     [b h]
//   keep     [r, h] contiguous or null: factors that all networks share (dropout)
//   weight   [b, k, h] contiguous: the next layer's, turned
//   out      [r, b k], rows `stride` apart; must not overlap z
// Sums run in T, in an order fixed by h.
template <typename T>
struct HiddenTask {
  MatrixView<T> z;
  const T *bias, *keep, *weight;
  MatrixView<T> out;
  int64_t b, h, k;
};

// z := weight_i (softmax(z + bias) - onehot(target_i)), the gradient of each network's loss at its logits.
//   z        [m, b k], rows `stride` apart
//   bias     [b k]
//   targets  [m], in [0, k)
//   weights  [b, m] contiguous; where it is 0 the gradient is 0 whatever the logits are
//   partial  [chunks, b + b k], scratch, chunks = network_chunks(m, b + b k)
//   sums     [b + b k], out: the losses, sum_i weight_i l_i, and the gradients of the biases
template <typename T>
struct LogitsTask {
  MatrixView<T> z;
  const T* bias;
  const int64_t* targets;
  const T* weights;
  double *partial, *sums;
  int64_t b, k;
};

// From the gradient at the messages hidden W to those at z, W and the bias below.
//   hidden   [r, b h], rows `stride` apart, as HiddenTask leaves them; becomes the gradient at z, of a unit that was on
//            `scale` times (its factor in `keep`) what arrives, else 0
//   back     [r, b k], rows `stride` apart: the gradient at the messages
//   weight   [b, k, h] contiguous
//   partial  [chunks, b (k + 1) h], scratch, chunks = network_chunks(r, b (k + 1) h)
//   sums     [b, k + 1, h], out: the gradient of the turned weight, then of the bias
template <typename T>
struct HiddenGradientTask {
  MatrixView<T> hidden;
  MatrixView<const T> back;
  const T* weight;
  T scale;
  T* partial;
  double* sums;
  int64_t b, h, k;
};

// theta, first and second moments [p], all in place.
template <typename T>
struct AdamTask {
  T* theta;
  const T* gradient;
  T *first, *second;
  int64_t p;
  AdamStep<T> step;
};

// out[r, u] = 0 with `probability`, else 1 / (1 - probability), by the counting of `dropout_bits`; to 2^-32.
template <typename T>
struct DropoutTask {
  MatrixView<T> out;
  double probability;  // in [0, 1)
  uint64_t key;
};

void hidden_cpu(const Parallel& parallel, const HiddenTask<float>& task);
void hidden_cpu(const Parallel& parallel, const HiddenTask<double>& task);
void logits_cpu(const Parallel& parallel, const LogitsTask<float>& task);
void logits_cpu(const Parallel& parallel, const LogitsTask<double>& task);
void hidden_gradient_cpu(const Parallel& parallel, const HiddenGradientTask<float>& task);
void hidden_gradient_cpu(const Parallel& parallel, const HiddenGradientTask<double>& task);
void adam_cpu(const Parallel& parallel, const AdamTask<float>& task);
void adam_cpu(const Parallel& parallel, const AdamTask<double>& task);
void dropout_factors_cpu(const Parallel& parallel, const DropoutTask<float>& task);
void dropout_factors_cpu(const Parallel& parallel, const DropoutTask<double>& task);

}  // namespace calirare
