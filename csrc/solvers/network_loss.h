// The loss of graph convolutional networks side by side, and its gradient, on one receptive field.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "propagate_layouts.h"

namespace calirare {

// One matrix that multiplies what comes: dense, or sparse in the layout that serves it best.
struct Factor {
  at::Tensor dense;                  // [n, m], any strides
  CsrTensors rows;                   // else rows of the matrix,
  std::optional<TileTensors> tiles;  // or its tiles

  at::Tensor operator()(const at::Tensor& x) const;
  void write(const at::Tensor& x, at::Tensor& out) const;  // the product into `out`, contiguous
};

// What b networks with L layers read; z_1 = last(.. first(W_1)) + b_1 of `inputs`, z_l = A_l relu(z_{l-1}) W_l + b_l.
struct NetworkField {
  std::vector<Factor> inputs, inputs_t;             // in the order they are applied
  std::vector<Factor> blocks, blocks_t;             // A_2 .. A_L
  std::vector<std::pair<int64_t, int64_t>> widths;  // of each layer, in and out

  int64_t n_parameters() const;
};

struct NetworkLabels {
  at::Tensor targets;  // int64 [m]
  at::Tensor weights;  // of each network and label in its loss, [b, m]
};

// What dropout multiplies hidden units with, [r_l, h_l] of each hidden layer, all networks alike; empty: nothing.
struct Dropped {
  std::vector<at::Tensor> factors;
  double scale = 1;  // of units that are kept
};

// Products [m, b k] of the last layer, without its bias, for parameters [b, p]: W_1, b_1, .., W_L, b_L, row-major.
at::Tensor network_products(const NetworkField& field, const at::Tensor& parameters);

// Losses sum_i w_i l_i [b] in double; `gradient` [b, p] is written. `composed`: by torch's operators, as on a GPU.
at::Tensor network_loss(const NetworkField& field, const at::Tensor& parameters, const NetworkLabels& labels,
                        const Dropped& dropped, bool composed, at::Tensor& gradient);

// A step of Adam on the CPU, all in place; see core/network_passes_element.h.
struct AdamRates {
  double weight_decay, beta1, beta2, length, scale, epsilon;
};
void adam_step(at::Tensor& theta, const at::Tensor& gradient, at::Tensor& first, at::Tensor& second,
               const AdamRates& rates);

// Factors of dropout on the CPU, float32 or float64 [r, h]; see ops/network_passes.h.
void dropout_factors(at::Tensor& out, double probability, uint64_t key);

}  // namespace calirare
