#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "propagate_layouts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "../ops/propagate_tiles.h"
#include "dispatch.h"

namespace calirare {
namespace {

template <typename T>
TilesView<T> view(const TileTensors& a) {
  return {a.starts.const_data_ptr<int64_t>(),
          a.rows.const_data_ptr<int32_t>(),
          a.columns.const_data_ptr<int32_t>(),
          a.values.const_data_ptr<T>(),
          a.starts.numel() - 1,
          a.tile_rows};
}

void check_product(const at::Tensor& values, int64_t n_rows, int64_t n_cols, const at::Tensor& x,
                   const at::Tensor& out) {
  const char* op = "propagate";
  TORCH_CHECK_VALUE(values.is_cpu(), op, ": layouts are for the CPU");
  check_rows(x, op, "x");
  check_rows(out, op, "out");
  check_same(x, values, op, "x");
  check_same(out, values, op, "out");
  TORCH_CHECK_VALUE(x.size(0) == n_cols, op, ": x must have ", n_cols, " rows, got ", x.size(0));
  TORCH_CHECK_VALUE(out.size(0) == n_rows && out.size(1) == x.size(1), op, ": out must be [", n_rows, ", ", x.size(1),
                    "], got ", out.sizes());
}

}  // namespace

TileTensors cut_tiles(const CsrTensors& a, int64_t tile_rows) {
  const char* op = "cut_tiles";
  check_csr(a, op);
  TORCH_CHECK_VALUE(a.values.is_cpu() && tile_rows > 0 && tile_rows <= INT32_MAX, op,
                    ": a must be on the CPU and tile_rows in [1, 2^31), got ", tile_rows);
  const int64_t tiles = (a.n_rows() + tile_rows - 1) / tile_rows;
  TileTensors out{at::empty({tiles + 1}, a.indptr.options()),
                  at::empty_like(a.indices),
                  at::empty_like(a.indices),
                  at::empty_like(a.values),
                  a.n_rows(),
                  a.n_cols,
                  tile_rows};
  by_dtype(a.values, op, [&](auto zero) {
    using T = decltype(zero);
    cut_tiles(view<T>(a), a.n_cols, tile_rows,
              {out.starts.mutable_data_ptr<int64_t>(), out.rows.mutable_data_ptr<int32_t>(),
               out.columns.mutable_data_ptr<int32_t>(), out.values.mutable_data_ptr<T>()});
  });
  return out;
}

void propagate_tiles_out(const TileTensors& a, const at::Tensor& x, at::Tensor& out) {
  check_product(a.values, a.n_rows, a.n_cols, x, out);
  by_dtype(x, "propagate", [&](auto zero) {
    using T = decltype(zero);
    propagate_tiles_cpu(torch_pool(), view<T>(a), view<T>(x), view_out<T>(out));
  });
}

}  // namespace calirare
