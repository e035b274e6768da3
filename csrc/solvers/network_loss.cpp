#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "network_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "../ops/network_passes.h"
#include "dispatch.h"

namespace calirare {
namespace {

struct Layer {
  at::Tensor weight, bias;  // [b, d, h], [b, h]: views of the parameters
};

std::vector<Layer> layers_of(const NetworkField& field, const at::Tensor& parameters) {
  std::vector<Layer> layers;
  int64_t start = 0;
  for (const auto& [d, h] : field.widths) {
    const int64_t b = parameters.size(0), p = parameters.size(1), first = parameters.storage_offset() + start;
    layers.push_back({at::as_strided(parameters, {b, d, h}, {p, h, 1}, first),
                      at::as_strided(parameters, {b, h}, {p, 1}, first + d * h)});
    start += (d + 1) * h;
  }
  return layers;
}

at::Tensor turned(const Layer& layer) { return layer.weight.transpose(1, 2).contiguous(); }

at::Tensor in_order(const std::vector<Factor>& factors, at::Tensor x) {
  for (const Factor& factor : factors) x = factor(x);
  return x;
}

at::Tensor scratch(const at::Tensor& like, at::IntArrayRef shape, at::ScalarType dtype) {
  return at::empty(shape, like.options().dtype(dtype));
}

// Writes sums [b, n, m], `from` lying `stride` apart, into a gradient [b, m, n] whose networks lie a stride apart.
template <typename T>
void put(const double* from, int64_t stride, int64_t n, int64_t m, const at::Tensor& into) {
  T* to = into.mutable_data_ptr<T>();
  for (int64_t i = 0; i < into.size(0); ++i) {
    for (int64_t j = 0; j < m; ++j) {
      for (int64_t c = 0; c < n; ++c) to[i * into.stride(0) + j * n + c] = T(from[i * stride + c * m + j]);
    }
  }
}

// How a step goes by: kernels of one pass each on the CPU, torch's operators else.
struct Passes {
  int64_t b;
  bool composed;

  // z [r, b h] becomes the hidden states; returns the messages [r, b k] for `weight` [b, k, h].
  at::Tensor hidden(at::Tensor& z, const at::Tensor& bias, const std::optional<at::Tensor>& keep,
                    const at::Tensor& weight) const {
    const int64_t r = z.size(0), k = weight.size(1), h = weight.size(2);
    TORCH_CHECK_VALUE(!keep || (keep->size(0) == r && keep->size(1) == h), "network_loss: factors must be [", r, ", ",
                      h, "], got ", keep->sizes());
    if (composed) {
      at::Tensor units = z.view({r, b, h}).add_(bias).relu_();
      if (keep) units.mul_(keep->unsqueeze(1));
      return at::bmm(units.transpose(0, 1), weight.transpose(1, 2)).transpose(0, 1).reshape({r, b * k});
    }
    at::Tensor out = scratch(z, {r, b * k}, z.scalar_type());
    const at::Tensor bias_row = bias.contiguous();
    by_dtype(z, "network_loss", [&](auto zero) {
      using T = decltype(zero);
      hidden_cpu(torch_pool(),
                 HiddenTask<T>{view_out<T>(z), bias_row.const_data_ptr<T>(), keep ? keep->const_data_ptr<T>() : nullptr,
                               weight.const_data_ptr<T>(), view_out<T>(out), b, h, k});
    });
    return out;
  }

  // z [m, b k] becomes the gradient at the logits; returns losses [b] and writes the biases' gradients [b, k].
  at::Tensor logits(at::Tensor& z, const at::Tensor& bias, const NetworkLabels& labels, const at::Tensor& into) const {
    const int64_t m = z.size(0), k = z.size(1) / b, n_sums = b * (k + 1);
    if (composed) {
      at::Tensor rows = z.view({m, b, k});
      const at::Tensor own = rows.add_(bias).log_softmax(2), share = labels.weights.t().unsqueeze(2);
      const at::Tensor right = at::one_hot(labels.targets, k).to(z.scalar_type()).unsqueeze(1);
      const at::Tensor out = share == 0, none = at::zeros_like(share);  // left out, whatever its logits are
      rows.copy_(at::where(out, none, share * (own.exp() - right)));
      into.copy_(rows.sum(at::IntArrayRef{0}));
      return -at::where(out, none, share * right * own).sum(at::IntArrayRef{0, 2}).to(at::kDouble);
    }
    at::Tensor sums = scratch(z, {n_sums}, at::kDouble);
    at::Tensor partial = scratch(z, {network_chunks(m, n_sums), n_sums}, at::kDouble);
    const at::Tensor bias_row = bias.contiguous();
    by_dtype(z, "network_loss", [&](auto zero) {
      using T = decltype(zero);
      logits_cpu(torch_pool(),
                 LogitsTask<T>{view_out<T>(z), bias_row.const_data_ptr<T>(), labels.targets.const_data_ptr<int64_t>(),
                               labels.weights.const_data_ptr<T>(), partial.mutable_data_ptr<double>(),
                               sums.mutable_data_ptr<double>(), b, k});
      put<T>(sums.const_data_ptr<double>() + b, k, 1, k, into);
    });
    return sums.narrow(0, 0, b);
  }

  // hidden [r, b h] becomes the gradient at z; writes the gradients of the layer's weight and of the bias below.
  void hidden_gradient(at::Tensor& hidden, const at::Tensor& back, const at::Tensor& weight, double scale,
                       const at::Tensor& into_weight, const at::Tensor& into_bias) const {
    const int64_t r = hidden.size(0), k = weight.size(1), h = weight.size(2), n_sums = b * (k + 1) * h;
    if (composed) {
      at::Tensor units = hidden.view({r, b, h});
      const at::Tensor arrives = back.view({r, b, k}).transpose(0, 1);  // [b, r, k]
      into_weight.copy_(at::bmm(units.permute({1, 2, 0}), arrives));
      const at::Tensor gradient = at::bmm(arrives, weight).transpose(0, 1).mul(scale);
      units.copy_(at::where(units <= 0, at::zeros_like(units), gradient));
      into_bias.copy_(units.sum(at::IntArrayRef{0}));
      return;
    }
    at::Tensor sums = scratch(hidden, {b, k + 1, h}, at::kDouble);
    at::Tensor partial = scratch(hidden, {network_chunks(r, n_sums), n_sums}, hidden.scalar_type());
    by_dtype(hidden, "network_loss", [&](auto zero) {
      using T = decltype(zero);
      hidden_gradient_cpu(
          torch_pool(), HiddenGradientTask<T>{view_out<T>(hidden), view<T>(back), weight.const_data_ptr<T>(), T(scale),
                                              partial.mutable_data_ptr<T>(), sums.mutable_data_ptr<double>(), b, h, k});
      put<T>(sums.const_data_ptr<double>(), (k + 1) * h, k, h, into_weight);
      put<T>(sums.const_data_ptr<double>() + k * h, (k + 1) * h, 1, h, into_bias);
    });
  }
};

// The last layer's products; `hidden` receives every layer's states [r_l, b h_l], `turned_weights` the later weights.
at::Tensor forward(const NetworkField& field, const std::vector<Layer>& layers, const Passes& passes,
                   const Dropped& dropped, std::vector<at::Tensor>& hidden, std::vector<at::Tensor>& turned_weights) {
  const at::Tensor& first = layers[0].weight;
  at::Tensor z = in_order(field.inputs, first.permute({1, 0, 2}).reshape({first.size(1), -1}));
  for (size_t l = 1; l < layers.size(); ++l) {
    turned_weights.push_back(turned(layers[l]));
    std::optional<at::Tensor> keep;
    if (!dropped.factors.empty()) keep = dropped.factors[l - 1];
    // The narrow product first: the logits' layer then propagates k numbers per network, not h.
    const at::Tensor messages = passes.hidden(z, layers[l - 1].bias, keep, turned_weights.back());
    hidden.push_back(z);
    z = field.blocks[l - 1](messages);
  }
  return z;
}

void check_parameters(const NetworkField& field, const at::Tensor& x, const char* name) {
  const char* op = "network_loss";
  TORCH_CHECK_VALUE(x.dim() == 2 && x.size(1) == field.n_parameters() && x.is_contiguous(), op, ": ", name,
                    " must be contiguous, [b, ", field.n_parameters(), "], got ", x.sizes());
  TORCH_CHECK_VALUE(!field.inputs.empty() && !field.inputs_t.empty() &&
                        field.blocks.size() + 1 == field.widths.size() && field.blocks_t.size() == field.blocks.size(),
                    op, ": field must have inputs and a block for each layer after the first");
}

void check_labels(const NetworkField& field, const at::Tensor& parameters, const NetworkLabels& labels, int64_t m) {
  const char* op = "network_loss";
  const int64_t b = parameters.size(0), k = field.widths.back().second;
  check_same(labels.weights, parameters, op, "weights");
  TORCH_CHECK_VALUE(labels.weights.is_contiguous() && labels.weights.sizes() == at::IntArrayRef({b, m}), op,
                    ": weights must be contiguous, [", b, ", ", m, "], got ", labels.weights.sizes());
  const at::Tensor& targets = labels.targets;
  TORCH_CHECK_TYPE(targets.scalar_type() == at::kLong, op, ": targets must be int64, got ", targets.scalar_type());
  TORCH_CHECK_VALUE(targets.device() == parameters.device() && targets.is_contiguous() && targets.numel() == m, op,
                    ": targets must be contiguous with one entry per row");
  if (!targets.is_cpu()) return;  // torch's operators look themselves
  const int64_t* target = targets.const_data_ptr<int64_t>();
  const bool fits = std::all_of(target, target + m, [k](int64_t c) { return c >= 0 && c < k; });
  TORCH_CHECK_VALUE(fits, op, ": targets must be in [0, ", k, ")");
}

void check_dropped(const NetworkField& field, const at::Tensor& parameters, const Dropped& dropped) {
  if (dropped.factors.empty()) return;
  const char* op = "network_loss";
  TORCH_CHECK_VALUE(dropped.factors.size() == field.blocks.size(), op, ": factors must be one for each hidden layer");
  for (const at::Tensor& factors : dropped.factors) {
    check_same(factors, parameters, op, "factors");
    TORCH_CHECK_VALUE(factors.is_contiguous() && factors.dim() == 2, op, ": factors must be contiguous, [r, h]");
  }
}

void check_part(const at::Tensor& x, const at::Tensor& like, const char* op, const char* name) {
  check_same(x, like, op, name);
  TORCH_CHECK_VALUE(x.is_cpu() && x.is_contiguous() && x.numel() == like.numel(), op, ": ", name,
                    " must be on the CPU and contiguous with ", like.numel(), " numbers, got ", x.sizes());
}

}  // namespace

int64_t NetworkField::n_parameters() const {
  int64_t total = 0;
  for (const auto& [d, h] : widths) total += (d + 1) * h;
  return total;
}

at::Tensor Factor::operator()(const at::Tensor& x) const {
  if (dense.defined() && dense.stride(0) < dense.stride(1)) {  // X^T D as (D^T X)^T: a third of the time
    return at::mm(x.t(), dense.t()).t();
  }
  if (dense.defined()) return at::mm(dense, x);
  at::Tensor out = at::empty({tiles ? tiles->n_rows : rows.n_rows(), x.size(1)}, x.options());
  write(x, out);
  return out;
}

void Factor::write(const at::Tensor& x, at::Tensor& out) const {
  if (dense.defined()) {
    out.copy_((*this)(x));
    return;
  }
  const at::Tensor operand = x.size(1) <= 1 || x.stride(1) == 1 ? x : x.contiguous();
  if (tiles) {
    propagate_tiles_out(*tiles, operand, out);
  } else {
    propagate_out(rows, operand, out);
  }
}

at::Tensor network_products(const NetworkField& field, const at::Tensor& parameters) {
  check_parameters(field, parameters, "parameters");
  const at::AutoDispatchBelowADInplaceOrView plain;  // no derivative is tracked, nor asked for at every small step
  std::vector<at::Tensor> hidden, weights;
  const Passes passes{parameters.size(0), !parameters.is_cpu()};
  return forward(field, layers_of(field, parameters), passes, {}, hidden, weights);
}

at::Tensor network_loss(const NetworkField& field, const at::Tensor& parameters, const NetworkLabels& labels,
                        const Dropped& dropped, bool composed, at::Tensor& gradient) {
  check_parameters(field, parameters, "parameters");
  check_parameters(field, gradient, "gradient");
  check_same(gradient, parameters, "network_loss", "gradient");
  TORCH_CHECK_VALUE(gradient.size(0) == parameters.size(0), "network_loss: gradient must have a row for each network");
  check_dropped(field, parameters, dropped);
  const at::AutoDispatchBelowADInplaceOrView plain;
  const std::vector<Layer> layers = layers_of(field, parameters), into = layers_of(field, gradient);
  const Passes passes{parameters.size(0), composed || !parameters.is_cpu()};
  std::vector<at::Tensor> hidden, weights;
  at::Tensor delta = forward(field, layers, passes, dropped, hidden, weights);
  check_labels(field, parameters, labels, delta.size(0));
  const at::Tensor losses = passes.logits(delta, layers.back().bias, labels, into.back().bias);
  for (size_t l = layers.size() - 1; l > 0; --l) {
    const at::Tensor back = field.blocks_t[l - 1](delta);
    delta = hidden[l - 1];
    passes.hidden_gradient(delta, back, weights[l - 1], dropped.scale, into[l].weight, into[l - 1].bias);
  }
  for (size_t i = 0; i + 1 < field.inputs_t.size(); ++i) delta = field.inputs_t[i](delta);
  if (parameters.size(0) == 1) {  // where there is one network its gradient lies as the product does
    at::Tensor weight = into[0].weight.squeeze(0);
    field.inputs_t.back().write(delta, weight);
  } else {
    const at::Tensor product = field.inputs_t.back()(delta);
    into[0].weight.copy_(product.unflatten(1, {parameters.size(0), -1}).permute({1, 0, 2}));
  }
  return losses;
}

void adam_step(at::Tensor& theta, const at::Tensor& gradient, at::Tensor& first, at::Tensor& second,
               const AdamRates& rates) {
  const char* op = "adam_step";
  check_part(theta, theta, op, "theta");
  check_part(gradient, theta, op, "gradient");
  check_part(first, theta, op, "first");
  check_part(second, theta, op, "second");
  const at::NoGradGuard no_grad;
  by_dtype(theta, op, [&](auto zero) {
    using T = decltype(zero);
    const AdamStep<T> step{T(rates.weight_decay), T(rates.beta1), T(rates.beta2), T(rates.length * rates.scale),
                           T(rates.epsilon * rates.scale)};
    adam_cpu(torch_pool(), AdamTask<T>{theta.mutable_data_ptr<T>(), gradient.const_data_ptr<T>(),
                                       first.mutable_data_ptr<T>(), second.mutable_data_ptr<T>(), theta.numel(), step});
  });
}

void dropout_factors(at::Tensor& out, double probability, uint64_t key) {
  const char* op = "dropout_factors";
  check_part(out, out, op, "out");
  TORCH_CHECK_VALUE(out.dim() == 2, op, ": out must be [r, h], got ", out.sizes());
  by_dtype(out, op, [&](auto zero) {
    using T = decltype(zero);
    dropout_factors_cpu(torch_pool(), DropoutTask<T>{view_out<T>(out), probability, key});
  });
}

}  // namespace calirare
