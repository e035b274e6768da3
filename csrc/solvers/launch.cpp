#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "launch.h"

#include <ATen/ops/empty.h>

#include "../ops/block_cg.h"
#include "../ops/jackknife_interval.h"
#include "../ops/masked_sum.h"
#include "../ops/message_interval.h"
#include "../ops/neighbour_means.h"
#include "../ops/node_gradients.h"
#include "../ops/propagate.h"
#include "dispatch.h"

namespace calirare {
namespace {

template <typename Inputs>
void node_gradients_any(const at::Tensor& entry_ptr, const at::Tensor& nodes, const at::Tensor& delta, Inputs&& inputs,
                        at::Tensor& out) {
  const char* op = "node_gradients";
  TORCH_CHECK_TYPE(entry_ptr.scalar_type() == at::kLong && nodes.scalar_type() == at::kInt, op,
                   ": entry_ptr must be int64 and nodes int32");
  TORCH_CHECK_VALUE(delta.dim() == 2 && delta.is_contiguous() && nodes.numel() == delta.size(0), op,
                    ": delta must be contiguous with one row per entry");
  check_rows(out, op, "out");
  check_same(out, delta, op, "out");
  TORCH_CHECK_VALUE(out.size(0) == entry_ptr.numel() - 1, op, ": out must have one row per node");
  by_dtype(delta, op, [&](auto zero) {
    using T = decltype(zero);
    const GradientFactors<T> factors{entry_ptr.const_data_ptr<int64_t>(), nodes.const_data_ptr<int32_t>(),
                                     delta.const_data_ptr<T>(), out.size(0), delta.size(1)};
    by_device(
        delta, op, [&](const Parallel& pool) { node_gradients_cpu(pool, factors, view<T>(inputs), view_out<T>(out)); },
        [&](int device, void* stream) {
          node_gradients_cuda(device, stream, factors, view<T>(inputs), view_out<T>(out));
        });
  });
}

void check_samples(int64_t m, double q_lower, double q_upper, const char* op) {
  TORCH_CHECK_VALUE(m > 0 && m < (int64_t(1) << 31), op, ": scores must have between 1 and 2^31 - 1 columns, got ", m);
  TORCH_CHECK_VALUE(q_lower >= 0 && q_lower <= 1 && q_upper >= 0 && q_upper <= 1, op,
                    ": quantiles must be in [0, 1], got ", q_lower, " and ", q_upper);
}

void check_product(const CsrTensors& a, const at::Tensor& x, const at::Tensor& out, const char* op) {
  check_csr(a, op);
  check_rows(x, op, "x");
  check_rows(out, op, "out");
  check_same(x, a.values, op, "x");
  check_same(out, a.values, op, "out");
  TORCH_CHECK_VALUE(x.size(0) == a.n_cols, op, ": x must have ", a.n_cols, " rows, got ", x.size(0));
  TORCH_CHECK_VALUE(out.size(0) == a.n_rows() && out.size(1) == x.size(1), op, ": out must be [", a.n_rows(), ", ",
                    x.size(1), "], got ", out.sizes());
}

CgColumns columns_of(at::Tensor& state, const at::Tensor& x) {
  TORCH_CHECK_VALUE(state.numel() == x.size(0) * int64_t(sizeof(CgColumn)), "block_cg: state has the wrong size");
  return {reinterpret_cast<CgColumn*>(state.mutable_data_ptr<uint8_t>()), x.size(0), x.size(1)};
}

}  // namespace

void check_csr(const CsrTensors& a, const char* op) {
  TORCH_CHECK_TYPE(a.indptr.scalar_type() == at::kLong && a.indices.scalar_type() == at::kInt, op,
                   ": indptr must be int64 and indices int32, got ", a.indptr.scalar_type(), " and ",
                   a.indices.scalar_type());
  TORCH_CHECK_VALUE(a.indptr.is_contiguous() && a.indices.is_contiguous() && a.values.is_contiguous(), op,
                    ": the CSR tensors must be contiguous");
  TORCH_CHECK_VALUE(a.indptr.numel() > 0 && a.indices.numel() == a.values.numel(), op,
                    ": the CSR tensors do not fit together");
  TORCH_CHECK_VALUE(a.indptr.device() == a.values.device() && a.indices.device() == a.values.device(), op,
                    ": the CSR tensors must be on one device");
}

void propagate_out(const CsrTensors& a, const at::Tensor& x, at::Tensor& out) {
  const char* op = "propagate";
  check_product(a, x, out, op);
  by_dtype(x, op, [&](auto zero) {
    using T = decltype(zero);
    by_device(
        x, op, [&](const Parallel& pool) { propagate_cpu(pool, view<T>(a), view<T>(x), view_out<T>(out)); },
        [&](int device, void* stream) { propagate_cuda(device, stream, view<T>(a), view<T>(x), view_out<T>(out)); });
  });
}

void neighbour_means_out(const CsrTensors& a, const at::Tensor& x, at::Tensor& out) {
  const char* op = "neighbour_means";
  check_product(a, x, out, op);
  by_dtype(x, op, [&](auto zero) {
    using T = decltype(zero);
    by_device(
        x, op, [&](const Parallel& pool) { neighbour_means_cpu(pool, view<T>(a), view<T>(x), view_out<T>(out)); },
        [&](int device, void* stream) {
          neighbour_means_cuda(device, stream, view<T>(a), view<T>(x), view_out<T>(out));
        });
  });
}

at::Tensor propagate(const CsrTensors& a, const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() == 2, "propagate: x must be a matrix, got shape ", x.sizes());
  // One column of many vectors side by side is a view across them: h = 1 in gcn_hessian.
  const at::Tensor rows = x.size(1) <= 1 || x.stride(1) == 1 ? x : x.contiguous();
  at::Tensor out = at::empty({a.n_rows(), x.size(1)}, x.options());
  propagate_out(a, rows, out);
  return out;
}

void node_gradients_out(const at::Tensor& entry_ptr, const at::Tensor& nodes, const at::Tensor& delta,
                        const at::Tensor& inputs, at::Tensor& out) {
  check_rows(inputs, "node_gradients", "inputs");
  check_same(inputs, delta, "node_gradients", "inputs");
  TORCH_CHECK_VALUE(out.size(1) == (inputs.size(1) + 1) * delta.size(1),
                    "node_gradients: out must have (d + 1) h = ", (inputs.size(1) + 1) * delta.size(1),
                    " columns, got ", out.size(1));
  node_gradients_any(entry_ptr, nodes, delta, inputs, out);
}

void node_gradients_out(const at::Tensor& entry_ptr, const at::Tensor& nodes, const at::Tensor& delta,
                        const CsrTensors& inputs, at::Tensor& out) {
  check_csr(inputs, "node_gradients");
  check_same(inputs.values, delta, "node_gradients", "inputs");
  TORCH_CHECK_VALUE(out.size(1) == (inputs.n_cols + 1) * delta.size(1),
                    "node_gradients: out must have (d + 1) h = ", (inputs.n_cols + 1) * delta.size(1), " columns, got ",
                    out.size(1));
  node_gradients_any(entry_ptr, nodes, delta, inputs, out);
}

IntervalTensors jackknife_interval(const at::Tensor& scores, const at::Tensor& residuals, double q_lower,
                                   double q_upper) {
  const char* op = "jackknife_interval";
  check_rows(scores, op, "scores");
  check_same(residuals, scores, op, "residuals");
  TORCH_CHECK_VALUE(residuals.is_contiguous() && residuals.numel() == scores.size(1), op,
                    ": residuals must have one entry per column of scores");
  check_samples(scores.size(1), q_lower, q_upper, op);
  const int64_t n = scores.size(0);
  IntervalTensors result{at::empty({n, 2}, scores.options()), at::empty({n, 2, 2}, scores.options().dtype(at::kInt))};
  const double q[2] = {q_lower, q_upper};
  by_dtype(scores, op, [&](auto zero) {
    using T = decltype(zero);
    T* ends = result.ends.mutable_data_ptr<T>();
    int32_t* places = result.places.mutable_data_ptr<int32_t>();
    const T* r = residuals.const_data_ptr<T>();
    by_device(
        scores, op, [&](const Parallel& pool) { jackknife_interval_cpu(pool, view<T>(scores), r, q, ends, places); },
        [&](int device, void* stream) {
          jackknife_interval_cuda(device, stream, view<T>(scores), r, q, ends, places);
        });
  });
  return result;
}

at::Tensor message_interval(const MessageTensors& t, const at::Tensor& residuals, double q_lower, double q_upper) {
  const char* op = "message_interval";
  check_csr(t.a, op);
  check_rows(t.messages, op, "messages");
  const int64_t n = t.a.n_rows(), m = t.messages.size(1);
  for (const auto& [x, name, size] :
       {std::tuple(t.logits, "logits", n), std::tuple(t.shift, "shift", m), std::tuple(residuals, "residuals", m)}) {
    check_same(x, t.a.values, op, name);
    TORCH_CHECK_VALUE(x.is_contiguous() && x.numel() == size, op, ": ", name, " must be contiguous [", size, "], got ",
                      x.sizes());
  }
  check_same(t.messages, t.a.values, op, "messages");
  TORCH_CHECK_VALUE(t.messages.size(0) == t.a.n_cols, op, ": messages must have ", t.a.n_cols, " rows, got ",
                    t.messages.size(0));
  check_samples(m, q_lower, q_upper, op);
  at::Tensor ends = at::empty({n, 2}, residuals.options());
  const double q[2] = {q_lower, q_upper};
  by_dtype(residuals, op, [&](auto zero) {
    using T = decltype(zero);
    const MessageScores<T> scores{
        view<T>(t.a), view<T>(t.messages), t.logits.const_data_ptr<T>(), t.shift.const_data_ptr<T>(), T(t.scale),
        T(t.bias)};
    const T* r = residuals.const_data_ptr<T>();
    T* out = ends.mutable_data_ptr<T>();
    by_device(
        residuals, op, [&](const Parallel& pool) { message_interval_cpu(pool, scores, r, q, out); },
        [&](int device, void* stream) {
          const int64_t rows = message_interval_scratch_rows(n, m, sizeof(T));
          at::Tensor scratch = at::empty({rows, m}, residuals.options());
          message_interval_cuda(device, stream, scores, r, q, out, scratch.mutable_data_ptr<T>(), rows);
        });
  });
  return ends;
}

void masked_sum_add(const at::Tensor& product, const at::Tensor& bias, const at::Tensor& z, const at::Tensor& weight,
                    at::Tensor& out) {
  const char* op = "masked_sum";
  const int64_t n = out.size(0), s = out.size(1), h = weight.numel();
  for (const auto& [x, name, width] :
       {std::tuple(product, "product", s * h), std::tuple(z, "z", h), std::tuple(out, "out", s)}) {
    check_rows(x, op, name);
    check_same(x, out, op, name);
    TORCH_CHECK_VALUE(x.size(0) == n && x.size(1) == width, op, ": ", name, " must be [", n, ", ", width, "], got ",
                      x.sizes());
  }
  check_same(bias, out, op, "bias");
  check_same(weight, out, op, "weight");
  TORCH_CHECK_VALUE(bias.is_contiguous() && bias.numel() == s * h && weight.is_contiguous(), op,
                    ": bias and weight must be contiguous [", s * h, "] and [", h, "]");
  by_dtype(out, op, [&](auto zero) {
    using T = decltype(zero);
    const MaskedSumTask<T> task{view<T>(product), bias.const_data_ptr<T>(), view<T>(z), weight.const_data_ptr<T>(),
                                view_out<T>(out)};
    by_device(
        out, op, [&](const Parallel& pool) { masked_sum_cpu(pool, task); },
        [&](int device, void* stream) { masked_sum_cuda(device, stream, task); });
  });
}

void cg_descend(at::Tensor& state, const at::Tensor& p, const at::Tensor& ap, at::Tensor& x, at::Tensor& r) {
  by_dtype(p, "block_cg", [&](auto zero) {
    using T = decltype(zero);
    const CgColumns columns = columns_of(state, p);
    const T *p_data = p.const_data_ptr<T>(), *ap_data = ap.const_data_ptr<T>();
    T *x_data = x.mutable_data_ptr<T>(), *r_data = r.mutable_data_ptr<T>();
    by_device(
        p, "block_cg", [&](const Parallel& pool) { cg_descend_cpu(pool, columns, p_data, ap_data, x_data, r_data); },
        [&](int device, void* stream) { cg_descend_cuda(device, stream, columns, p_data, ap_data, x_data, r_data); });
  });
}

void cg_redirect(at::Tensor& state, const at::Tensor& r, const at::Tensor& z, at::Tensor& p) {
  by_dtype(p, "block_cg", [&](auto zero) {
    using T = decltype(zero);
    const CgColumns columns = columns_of(state, p);
    const T *r_data = r.const_data_ptr<T>(), *z_data = z.const_data_ptr<T>();
    T* p_data = p.mutable_data_ptr<T>();
    by_device(
        p, "block_cg", [&](const Parallel& pool) { cg_redirect_cpu(pool, columns, r_data, z_data, p_data); },
        [&](int device, void* stream) { cg_redirect_cuda(device, stream, columns, r_data, z_data, p_data); });
  });
}

}  // namespace calirare
