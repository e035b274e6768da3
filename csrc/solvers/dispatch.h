// From torch tensors to the twins: views, checks that memory safety needs, and the choice of dtype and device.
#pragma once
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>

#include "../core/parallel.h"
#include "../core/views.h"
#include "launch.h"
#include "pool.h"

namespace calirare {

inline Parallel torch_pool() {
  return {at::get_num_threads(), [](int64_t size, const RangeBody& body) { over_pool(0, size, 1, body); }};
}

// torch's current stream as the driver's handle, without any CUDA header.
inline void* current_stream(const at::Device& device) {
  return at::accelerator::getCurrentStream(device.index()).native_handle();
}

template <typename T>
CsrView<T> view(const CsrTensors& a) {
  return {a.indptr.const_data_ptr<int64_t>(), a.indices.const_data_ptr<int32_t>(), a.values.const_data_ptr<T>(),
          a.n_rows()};
}
template <typename T>
MatrixView<const T> view(const at::Tensor& x) {
  return {x.const_data_ptr<T>(), x.size(0), x.size(1), x.stride(0)};
}
template <typename T>
MatrixView<T> view_out(at::Tensor& x) {
  return {x.mutable_data_ptr<T>(), x.size(0), x.size(1), x.stride(0)};
}

// Calls body with a float or a double, the dtype of `like`.
template <typename Body>
void by_dtype(const at::Tensor& like, const char* op, Body body) {
  if (like.scalar_type() == at::kFloat) {
    body(float());
  } else if (like.scalar_type() == at::kDouble) {
    body(double());
  } else {
    TORCH_CHECK_TYPE(false, op, ": dtype must be float32 or float64, got ", like.scalar_type());
  }
}

inline void check_same(const at::Tensor& x, const at::Tensor& like, const char* op, const char* name) {
  TORCH_CHECK_TYPE(x.scalar_type() == like.scalar_type(), op, ": ", name, " must be ", like.scalar_type(), ", got ",
                   x.scalar_type());
  TORCH_CHECK_VALUE(x.device() == like.device(), op, ": ", name, " must be on ", like.device(), ", got ", x.device());
}

// The strides of an empty tensor are no one's business: contiguous() leaves them as they are.
inline void check_rows(const at::Tensor& x, const char* op, const char* name) {
  TORCH_CHECK_VALUE(x.dim() == 2 && (x.size(1) <= 1 || x.stride(1) == 1 || x.numel() == 0), op, ": ", name,
                    " must be a matrix with contiguous rows");
}

inline void check_device(const at::Tensor& x, const char* op) {
  TORCH_CHECK_VALUE(x.is_cpu() || x.is_cuda(), op, ": device must be cpu or cuda, got ", x.device());
}

// Runs `cpu(pool)` or `cuda(device, stream)` by the device of x.
template <typename Cpu, typename Cuda>
void by_device(const at::Tensor& x, const char* op, Cpu cpu, Cuda cuda) {
  check_device(x, op);
  const c10::OptionalDeviceGuard guard(x.device());
  if (x.is_cpu()) {
    cpu(torch_pool());
  } else {
    cuda(int(x.device().index()), current_stream(x.device()));
  }
}

}  // namespace calirare
