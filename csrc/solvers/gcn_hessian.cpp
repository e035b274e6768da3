#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "gcn_hessian.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>

namespace calirare {
namespace {

// Layer l's share of a block of parameter vectors.
struct Direction {
  at::Tensor weight;  // [b, d, h]
  at::Tensor bias;    // [b, h]
};

std::vector<Direction> split(const GcnTape& tape, const at::Tensor& vectors) {
  std::vector<Direction> parts;
  const int64_t b = vectors.size(0);
  int64_t start = 0;
  for (const at::Tensor& weight : tape.weights) {
    const int64_t d = weight.size(0), h = weight.size(1);
    parts.push_back({vectors.narrow(1, start, d * h).reshape({b, d, h}), vectors.narrow(1, start + d * h, h)});
    start += d * h + h;
  }
  return parts;
}

// [b, d, h] -> [d, b * h]: one product serves all b vectors.
at::Tensor side_by_side(const at::Tensor& x) {
  return x.permute({1, 0, 2}).reshape({x.size(1), x.size(0) * x.size(2)});
}
// [d, b * h] -> [b, d * h]
at::Tensor one_per_row(const at::Tensor& x, int64_t b, int64_t h) {
  return x.view({x.size(0), b, h}).permute({1, 0, 2}).reshape({b, x.size(0) * h});
}
// [r, b * h] times W [h, k] for each of the b parts -> [r, b * k]
at::Tensor times(const at::Tensor& x, int64_t b, const at::Tensor& weight) {
  return at::mm(x.view({x.size(0) * b, weight.size(0)}), weight).view({x.size(0), b * weight.size(1)});
}

at::Tensor inputs_times(const GcnTape& tape, const at::Tensor& x) {
  const at::Tensor y = tape.sparse() ? propagate(tape.sparse_inputs, x) : at::mm(tape.dense_inputs, x);
  return tape.factored() ? propagate(tape.first_block, y) : y;
}
at::Tensor inputs_t_times(const GcnTape& tape, const at::Tensor& x) {
  const at::Tensor y = tape.factored() ? propagate(tape.first_block_t, x) : x;
  return tape.sparse() ? propagate(tape.sparse_inputs_t, y) : at::mm(tape.dense_inputs.t(), y);
}

// x [r, b * h] times mask [r, h], in place.
void apply_mask(at::Tensor& x, const at::Tensor& mask, int64_t b) {
  x.view({x.size(0), b, mask.size(1)}).mul_(mask.unsqueeze(1));
}

// Change of the loss gradient at the logits: w (diag(p) - p p^T) dz.
at::Tensor curvature_at_logits(const GcnTape& tape, const at::Tensor& change, int64_t b) {
  const at::Tensor p = tape.probabilities.unsqueeze(1);
  at::Tensor weighted = change.view({change.size(0), b, p.size(2)}) * p;
  weighted = weighted - p * weighted.sum({2}, true);
  return (weighted * tape.loss_weights.view({change.size(0), 1, 1})).view({change.size(0), change.size(1)});
}

// How z_l and s_l move along each direction. `moved_inputs` receives ds_l [r_l, b * h_{l-1}] for l >= 2.
at::Tensor forward(const GcnTape& tape, const std::vector<Direction>& direction, int64_t b,
                   std::vector<at::Tensor>& moved_inputs) {
  const int64_t n_layers = tape.n_layers();
  moved_inputs.resize(n_layers);
  at::Tensor moved;  // dz_l, then d relu(z_l) [r_l, b * h_l]
  for (int64_t l = 0; l < n_layers; ++l) {
    const at::Tensor weight = side_by_side(direction[l].weight);
    if (l == 0) {
      moved = inputs_times(tape, weight);
    } else {
      moved_inputs[l] = propagate(tape.blocks[l - 1], moved);
      moved = times(moved_inputs[l], b, tape.weights[l]).add_(at::mm(tape.aggregated[l - 1], weight));
    }
    moved.add_(direction[l].bias.reshape({1, moved.size(1)}));
    if (l + 1 < n_layers) apply_mask(moved, tape.masks[l], b);
  }
  return moved;
}

void check_vectors(const GcnTape& tape, const at::Tensor& vectors, const char* op) {
  TORCH_CHECK_VALUE(vectors.dim() == 2 && vectors.size(1) == tape.n_parameters(), op, ": vectors must be [b, ",
                    tape.n_parameters(), "], got ", vectors.sizes());
}

}  // namespace

int64_t GcnTape::n_parameters() const {
  int64_t total = 0;
  for (const at::Tensor& weight : weights) total += (weight.size(0) + 1) * weight.size(1);
  return total;
}

at::Tensor move_logits(const GcnTape& tape, const at::Tensor& vectors) {
  check_vectors(tape, vectors, "move_logits");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> moved_inputs;
  return forward(tape, split(tape, vectors), vectors.size(0), moved_inputs);
}

at::Tensor hessian_product(const GcnTape& tape, const at::Tensor& vectors, Curvature curvature, double damping) {
  check_vectors(tape, vectors, "hessian_product");
  const at::NoGradGuard no_grad;  // the derivative would need the derivative of the tape
  const int64_t b = vectors.size(0), n_layers = tape.n_layers();
  const auto direction = split(tape, vectors);
  const bool exact = curvature == Curvature::kExact;
  std::vector<at::Tensor> moved_inputs;
  at::Tensor delta = curvature_at_logits(tape, forward(tape, direction, b, moved_inputs), b);

  std::vector<at::Tensor> parts(2 * n_layers);  // how the gradient of every layer moves
  for (int64_t l = n_layers - 1; l >= 0; --l) {
    at::Tensor gradient = l == 0 ? inputs_t_times(tape, delta) : at::mm(tape.aggregated[l - 1].t(), delta);
    const int64_t d = tape.weights[l].size(0), h = tape.weights[l].size(1);
    gradient = one_per_row(gradient, b, h);
    if (exact && l > 0) gradient.add_(at::mm(moved_inputs[l].t(), tape.deltas[l]).view({b, d * h}));
    parts[2 * l] = gradient;
    parts[2 * l + 1] = delta.sum({0}).view({b, h});
    if (l == 0) break;
    at::Tensor back = times(delta, b, tape.weights[l].t());
    if (exact) back.add_(at::mm(tape.deltas[l], side_by_side(direction[l].weight.transpose(1, 2))));
    delta = propagate(tape.blocks_t[l - 1], back);
    apply_mask(delta, tape.masks[l - 1], b);
  }
  return at::cat(parts, 1).add_(vectors, damping);
}

}  // namespace calirare
