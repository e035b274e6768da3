// Operators on torch tensors: picks the twin of the tensor's device. The caller has checked shapes and dtypes.
#pragma once
#include <ATen/core/Tensor.h>

namespace calirare {

// A CSR matrix as tensors (calirare_ext.Csr).
struct CsrTensors {
  at::Tensor indptr, indices, values;
  int64_t n_cols = 0;
  int64_t n_rows() const { return indptr.numel() - 1; }
};

// Checks what memory safety needs: dtypes, contiguity, one device.
void check_csr(const CsrTensors& a, const char* op);

at::Tensor propagate(const CsrTensors& a, const at::Tensor& x);  // x of any strides
void propagate_out(const CsrTensors& a, const at::Tensor& x, at::Tensor& out);
void neighbour_means_out(const CsrTensors& a, const at::Tensor& x, at::Tensor& out);

// Writes one layer's gradients into `out` [m, d * h + h], a column slice of [m, p].
void node_gradients_out(const at::Tensor& entry_ptr, const at::Tensor& nodes, const at::Tensor& delta,
                        const at::Tensor& inputs, at::Tensor& out);
void node_gradients_out(const at::Tensor& entry_ptr, const at::Tensor& nodes, const at::Tensor& delta,
                        const CsrTensors& inputs, at::Tensor& out);

struct IntervalTensors {
  at::Tensor ends, places;  // [n, 2], [n, 2, 2]
};
IntervalTensors jackknife_interval(const at::Tensor& scores, const at::Tensor& residuals, double q_lower,
                                   double q_upper);

// Scores f(v; theta_-i) of a graph's nodes from the changes of their neighbours' messages; see ops/message_interval.h.
struct MessageTensors {
  CsrTensors a;                        // [n, r]
  at::Tensor messages, logits, shift;  // [r, m], [n], [m]
  double scale = 1, bias = 0;
};
at::Tensor message_interval(const MessageTensors& scores, const at::Tensor& residuals, double q_lower,
                            double q_upper);  // [n, 2]

// out += the sum over active units; see ops/masked_sum.h.
void masked_sum_add(const at::Tensor& product, const at::Tensor& bias, const at::Tensor& z, const at::Tensor& weight,
                    at::Tensor& out);

// CG state lives in an opaque byte tensor of sizeof(CgColumn) per column.
void cg_descend(at::Tensor& state, const at::Tensor& p, const at::Tensor& ap, at::Tensor& x, at::Tensor& r);
void cg_redirect(at::Tensor& state, const at::Tensor& r, const at::Tensor& z, at::Tensor& p);

}  // namespace calirare
