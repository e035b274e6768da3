// Products with the Hessian of a graph convolutional network's loss, in closed form, on the receptive field only.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "launch.h"

namespace calirare {

// Everything a product needs, at fixed parameters. Layer l of L maps rows r_{l-1} to rows r_l; the rows of layer L are
// the m labelled nodes. Layer 1 reads `inputs` = (A X) at rows r_1, sparse, dense or by its factors A_1 and X; later
// layers aggregate first.
//   z_l = s_l W_l + b_l,  s_1 = inputs,  s_l = A_l relu(z_{l-1})
struct GcnTape {
  CsrTensors sparse_inputs, sparse_inputs_t;  // [r_1, d] and its transpose, where the features are sparse
  at::Tensor dense_inputs;                    // [r_1, d] otherwise
  CsrTensors first_block, first_block_t;      // A_1 [r_1, c], where the inputs above are X [c, d] alone
  std::vector<CsrTensors> blocks, blocks_t;   // A_2 .. A_L and their transposes
  std::vector<at::Tensor> aggregated;         // s_2 .. s_L [r_l, h_{l-1}]
  std::vector<at::Tensor> weights;            // W_1 .. W_L [h_{l-1}, h_l]
  std::vector<at::Tensor> masks;              // 1[z_l > 0] for l < L, in the dtype of the weights [r_l, h_l]
  std::vector<at::Tensor> deltas;             // d loss / d z_l, l = 1 .. L [r_l, h_l]
  at::Tensor probabilities;                   // softmax(z_L) [m, k]
  at::Tensor loss_weights;                    // weight of each labelled node's loss in the mean, w_i / m [m]

  bool sparse() const { return sparse_inputs.indptr.defined(); }
  bool factored() const { return first_block.indptr.defined(); }
  int64_t n_layers() const { return int64_t(weights.size()); }
  int64_t n_parameters() const;
};

enum class Curvature { kExact, kGaussNewton };

// (H + damping I) v for every row v of `vectors` [b, p]; parameters in the order W_1, b_1, .., W_L, b_L, row-major.
// kExact is the Hessian of sum_i w_i l_i / m away from the kinks of the ReLU; kGaussNewton drops its indefinite part.
at::Tensor hessian_product(const GcnTape& tape, const at::Tensor& vectors, Curvature curvature, double damping);

// J v for every row v: the first-order change of the logits, [m, b * k].
at::Tensor move_logits(const GcnTape& tape, const at::Tensor& vectors);

}  // namespace calirare
