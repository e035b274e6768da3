// How the messages of a two-layer ReLU network's rows change in each left-out model, to first order.
#pragma once
#include <ATen/core/Tensor.h>

#include "launch.h"

namespace calirare {

// Row u of the first layer, z_u = S_u W1 + b1, sends t_u = <relu(z_u), w2>; along direction i of the parameters
//   dt_ui = sum over units j with z_uj > 0 of w2_j (<S_u, dW1_i[:, j]> + db1_ij) + <relu(z_u), dw2_i>
struct LooDirections {
  at::Tensor first;     // [d + 1, s, h]: dW1, and db1 in the last row; undefined where `factors` are given
  at::Tensor second;    // [h, s]: dw2
  at::Tensor contrast;  // [h]: w2
  at::Tensor mix;       // [s, m]: models as combinations of directions; undefined: the directions are the models
};

// dW1_i = sum over entries e of direction i of inputs[nodes[e], :]^T delta[e, :], as in ops/node_gradients.h; db1_i is
// the sum of their delta. Sparse inputs make these small where d is large. CPU only.
struct DirectionFactors {
  at::Tensor entry_ptr, nodes;  // int64 [s + 1], int32 [E]
  at::Tensor delta;             // [E, h]
  CsrTensors inputs;            // [rows, d]
  at::Tensor seen;              // the same transposed and dense [d, rows]; undefined where that is large
};

// out[u, i] = sum_s dt_us mix[s, i]. Inputs S [r, d], z [r, h], out [r, m] with contiguous rows, written in full.
//
// CPU: rows with the same active units share the matrix sum_j w2_j dW1[:, :, j], so each row costs one product with
// [d, s] instead of h of them. Units are cut into as few groups as pays, and rows are grouped by their pattern in each
// (the "four Russians" of Arlazarov et al. 1970): exact, groups * r d s multiply-adds instead of h * r d s.
// CUDA: the product with all directions, a block of rows at a time, and `masked_sum`.
void loo_messages_out(const at::Tensor& inputs, const at::Tensor& z, const LooDirections& directions, at::Tensor& out);
void loo_messages_out(const CsrTensors& inputs, const at::Tensor& z, const LooDirections& directions, at::Tensor& out);
void loo_messages_out(const CsrTensors& inputs, const at::Tensor& z, const LooDirections& directions,
                      const DirectionFactors& factors, at::Tensor& out);

}  // namespace calirare
