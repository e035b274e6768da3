#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "loo_messages.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "../ops/masked_sum.h"
#include "../ops/propagate.h"
#include "dispatch.h"
#include "pattern_tables.h"
#include "unit_patterns.h"

namespace calirare {
namespace {

const char* const kOp = "loo_messages";
constexpr int64_t kBlockRows = 1 << 16;      // rows grouped by pattern together
constexpr int64_t kProductBytes = 64 << 20;  // CUDA: the product with all directions

at::Tensor rows_of(const at::Tensor& x, int64_t start, int64_t size) { return x.narrow(0, start, size); }
CsrTensors rows_of(const CsrTensors& x, int64_t start, int64_t size) {
  return {x.indptr.narrow(0, start, size + 1), x.indices, x.values, x.n_cols};
}
int64_t n_rows(const at::Tensor& x) { return x.size(0); }
int64_t n_rows(const CsrTensors& x) { return x.n_rows(); }

// The product of some rows of a block, given by number, with x [d, s]; scratch is kept from piece to piece.
struct DensePiece {
  const at::Tensor& inputs;
  at::Tensor gathered;
  explicit DensePiece(const at::Tensor& inputs_)
      : inputs(inputs_), gathered(at::empty({kPieceRows, inputs_.size(1)}, inputs_.options())) {}

  template <typename T>
  void product(const int32_t* order, int64_t size, const at::Tensor& x, at::Tensor& out) {
    const int64_t d = inputs.size(1), stride = inputs.stride(0);
    const T* from = inputs.const_data_ptr<T>();
    T* to = gathered.mutable_data_ptr<T>();
    for (int64_t k = 0; k < size; ++k) std::copy_n(from + order[k] * stride, d, to + k * d);
    at::Tensor result = out.narrow(0, 0, size);
    at::mm_out(result, gathered.narrow(0, 0, size), x);
  }
};
struct SparsePiece {
  const CsrTensors& inputs;
  std::vector<int64_t> indptr;
  std::vector<int32_t> indices;
  std::vector<char> values;
  explicit SparsePiece(const CsrTensors& inputs_) : inputs(inputs_), indptr(kPieceRows + 1, 0) {}

  template <typename T>
  void product(const int32_t* order, int64_t size, const at::Tensor& x, at::Tensor& out) {
    const CsrView<T> a = view<T>(inputs);
    for (int64_t k = 0; k < size; ++k) indptr[k + 1] = indptr[k] + a.indptr[order[k] + 1] - a.indptr[order[k]];
    indices.resize(indptr[size]);
    values.resize(indptr[size] * sizeof(T));
    T* value = reinterpret_cast<T*>(values.data());
    for (int64_t k = 0; k < size; ++k) {
      const int64_t begin = a.indptr[order[k]], entries = indptr[k + 1] - indptr[k];
      std::copy_n(a.indices + begin, entries, indices.data() + indptr[k]);
      std::copy_n(a.values + begin, entries, value + indptr[k]);
    }
    const Parallel alone{1, [](int64_t n, const RangeBody& body) { body(0, n); }};
    MatrixView<T> result = view_out<T>(out);
    result.n_rows = size;
    propagate_cpu(alone, CsrView<T>{indptr.data(), indices.data(), value, size}, view<T>(x), result);
  }
};
DensePiece piece_of(const at::Tensor& inputs) { return DensePiece(inputs); }
SparsePiece piece_of(const CsrTensors& inputs) { return SparsePiece(inputs); }

// Some rows with one pattern.
struct Piece {
  int64_t pattern, first, size;
};

std::vector<Piece> cut(const PatternGroup& group, int64_t first, int64_t size) {
  std::vector<Piece> pieces;
  for (int64_t p = 0; p < size; ++p) {
    if (group.pattern[first + p] == 0) continue;  // nobody is active: nothing changes
    for (int64_t at = group.start[first + p]; at < group.start[first + p + 1]; at += kPieceRows) {
      pieces.push_back({first + p, at, std::min(kPieceRows, group.start[first + p + 1] - at)});
    }
  }
  return pieces;
}

// Runs body(first piece, last piece) over the pool, pieces cut where the work of a row and of a call are balanced.
template <typename Body>
void spread(const std::vector<Piece>& pieces, Body body) {
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), int64_t(pieces.size()));
  std::vector<double> before(pieces.size() + 1, 0);
  for (size_t k = 0; k < pieces.size(); ++k) before[k + 1] = before[k] + kCallCost + double(pieces[k].size);
  over_pool(0, parts, 1, [&](int64_t begin, int64_t end) {
    const auto place = [&](int64_t part) {
      return std::lower_bound(before.begin(), before.end(), before.back() * double(part) / double(parts)) -
             before.begin();
    };
    body(place(begin), end == parts ? int64_t(pieces.size()) : place(end));
  });
}

// Adds what the first layer's change does to a block of rows, one group of units.
template <typename T, typename Inputs, typename Tables>
void add_group(const Inputs& inputs, const PatternGroup& group, Tables& tables, at::Tensor& out) {
  const int64_t s = tables.s(), n_patterns = int64_t(group.pattern.size());
  const int64_t batch = std::clamp<int64_t>(tables.batch(), 1, n_patterns), stride = out.stride(0);
  T* to = out.mutable_data_ptr<T>();
  for (int64_t first = 0; first < n_patterns; first += batch) {
    const int64_t size = std::min(batch, n_patterns - first);
    tables.prepare(group, first, size);
    const std::vector<Piece> pieces = cut(group, first, size);
    spread(pieces, [&](int64_t begin, int64_t end) {
      const at::NoGradGuard no_grad;  // a property of the thread
      auto piece = piece_of(inputs);
      auto reader = tables.reader();
      at::Tensor result = at::empty({kPieceRows, s}, out.options());
      for (int64_t k = begin; k < end; ++k) {
        const int32_t* order = group.order.data() + pieces[k].first;
        const at::Tensor factor = reader.factor(group, pieces[k].pattern);
        at::Tensor& sums = reader.finishes(group, pieces[k].pattern) ? reader.products : result;
        piece.template product<T>(order, pieces[k].size, factor, sums);
        for (int64_t u = 0; u < pieces[k].size; ++u) {
          reader.add(group, pieces[k].pattern, sums.const_data_ptr<T>() + u * sums.size(1), to + order[u] * stride);
        }
      }
    });
  }
}

double row_entries(const at::Tensor& inputs) { return double(inputs.size(1)); }
double row_entries(const CsrTensors& inputs) {
  const int64_t *indptr = inputs.indptr.const_data_ptr<int64_t>(), r = inputs.n_rows();
  return std::max(1.0, double(indptr[r] - indptr[0]) / double(std::max<int64_t>(r, 1)));
}

template <typename T, typename Inputs, typename Tables>
void add_groups(const Inputs& inputs, const at::Tensor& z, Tables tables, at::Tensor& out) {
  const PatternCost cost = tables.cost(row_entries(inputs), std::is_same_v<Inputs, CsrTensors>);
  for (const PatternGroup& group : group_patterns(z, cost)) {
    add_group<T>(inputs, group, tables, out);
  }
}

template <typename Inputs>
void first_layer_cpu(const Inputs& inputs, const at::Tensor& z, const LooDirections& directions,
                     const DirectionFactors* factors, at::Tensor& out) {
  by_dtype(z, kOp, [&](auto zero) {
    using T = decltype(zero);
    if (factors) {
      if constexpr (!std::is_same_v<Inputs, at::Tensor>) {
        add_groups<T>(inputs, z, FactoredTables<T>(directions, *factors), out);
      }
    } else {
      add_groups<T>(inputs, z, DenseTables<T>(directions), out);
    }
  });
}

at::Tensor product(const at::Tensor& inputs, const at::Tensor& x) { return at::mm(inputs, x); }
at::Tensor product(const CsrTensors& inputs, const at::Tensor& x) { return propagate(inputs, x); }

template <typename Inputs>
void first_layer_cuda(const Inputs& inputs, const at::Tensor& z, const LooDirections& directions, at::Tensor& out) {
  const int64_t d = directions.first.size(0) - 1, wide = directions.first.size(1) * directions.first.size(2);
  const at::Tensor all = directions.first.view({d + 1, wide}), bias = all.select(0, d);
  const int64_t step = std::max<int64_t>(1, kProductBytes / int64_t(wide * z.element_size()));
  for (int64_t start = 0; start < z.size(0); start += step) {
    const int64_t size = std::min(step, z.size(0) - start);
    at::Tensor target = out.narrow(0, start, size);
    masked_sum_add(product(rows_of(inputs, start, size), all.narrow(0, 0, d)), bias, z.narrow(0, start, size),
                   directions.contrast, target);
  }
}

template <typename Inputs>
void messages(const Inputs& inputs, const at::Tensor& z, const LooDirections& directions,
              const DirectionFactors* factors, at::Tensor& out) {
  const at::NoGradGuard no_grad;
  if (directions.second.numel() == 0) {  // no direction or no unit: nothing moves
    out.zero_();
    return;
  }
  const bool mixed = directions.mix.defined();
  const int64_t r = n_rows(inputs), s = directions.second.size(1);
  at::Tensor scratch;
  if (mixed) scratch = at::empty({std::min(r, kBlockRows), s}, z.options());
  for (int64_t start = 0; start < r; start += kBlockRows) {
    const int64_t size = std::min(kBlockRows, r - start);
    const at::Tensor block_z = z.narrow(0, start, size);
    at::Tensor block = out.narrow(0, start, size), target = mixed ? scratch.narrow(0, 0, size) : block;
    at::mm_out(target, at::clamp_min(block_z, 0), directions.second);
    if (z.is_cpu()) {
      first_layer_cpu(rows_of(inputs, start, size), block_z, directions, factors, target);
    } else {
      first_layer_cuda(rows_of(inputs, start, size), block_z, directions, target);
    }
    if (mixed) at::mm_out(block, target, directions.mix);
  }
}

// What memory safety needs, the first layer's directions aside.
void check(const at::Tensor& z, const LooDirections& directions, int64_t r, const at::Tensor& out) {
  const at::Tensor &second = directions.second, &contrast = directions.contrast;
  check_device(z, kOp);
  check_rows(z, kOp, "z");
  check_rows(out, kOp, "out");
  TORCH_CHECK_VALUE(second.dim() == 2 && second.size(0) == z.size(1), kOp, ": second must be [", z.size(1),
                    ", s], got ", second.sizes());
  for (const auto& [x, name] : {std::pair(second, "second"), std::pair(contrast, "contrast"), std::pair(out, "out")}) {
    check_same(x, z, kOp, name);
  }
  TORCH_CHECK_VALUE(z.size(0) == r, kOp, ": z must have ", r, " rows, got ", z.size(0));
  TORCH_CHECK_VALUE(contrast.is_contiguous() && contrast.numel() == z.size(1), kOp, ": contrast must be contiguous [",
                    z.size(1), "]");
  int64_t m = second.size(1);
  if (directions.mix.defined()) {
    check_same(directions.mix, z, kOp, "mix");
    TORCH_CHECK_VALUE(directions.mix.dim() == 2 && directions.mix.size(0) == m, kOp, ": mix must have ", m, " rows");
    m = directions.mix.size(1);
  }
  TORCH_CHECK_VALUE(out.size(0) == r && out.size(1) == m, kOp, ": out must be [", r, ", ", m, "], got ", out.sizes());
}

void check_first(const LooDirections& directions, const at::Tensor& z, int64_t d) {
  const at::Tensor& first = directions.first;
  check_same(first, z, kOp, "first");
  const bool fits = first.dim() == 3 && first.is_contiguous() && first.size(0) == d + 1 &&
                    first.size(1) == directions.second.size(1) && first.size(2) == z.size(1);
  TORCH_CHECK_VALUE(fits, kOp, ": first must be contiguous [", d + 1, ", ", directions.second.size(1), ", ", z.size(1),
                    "], got ", first.sizes());
}

void check_factors(const LooDirections& directions, const DirectionFactors& factors, const at::Tensor& z, int64_t d) {
  TORCH_CHECK_VALUE(z.is_cpu(), kOp, ": factors are for the CPU, got ", z.device());
  check_csr(factors.inputs, kOp);
  check_same(factors.inputs.values, z, kOp, "factors");
  check_same(factors.delta, z, kOp, "delta");
  TORCH_CHECK_TYPE(factors.entry_ptr.scalar_type() == at::kLong && factors.nodes.scalar_type() == at::kInt, kOp,
                   ": entry_ptr must be int64 and nodes int32");
  const int64_t n_entries = factors.nodes.numel();
  const bool fits = factors.entry_ptr.is_contiguous() && factors.nodes.is_contiguous() &&
                    factors.delta.is_contiguous() && factors.delta.dim() == 2 && factors.delta.size(0) == n_entries &&
                    factors.delta.size(1) == z.size(1) && factors.inputs.n_cols == d &&
                    factors.entry_ptr.numel() == directions.second.size(1) + 1;
  TORCH_CHECK_VALUE(fits, kOp, ": the factors do not fit the directions or the inputs");
  if (!factors.seen.defined()) return;
  check_same(factors.seen, z, kOp, "seen");
  TORCH_CHECK_VALUE(factors.seen.is_contiguous() && factors.seen.dim() == 2 && factors.seen.size(0) == d &&
                        factors.seen.size(1) == factors.inputs.n_rows(),
                    kOp, ": seen must be contiguous [", d, ", ", factors.inputs.n_rows(), "], got ",
                    factors.seen.sizes());
}

}  // namespace

void loo_messages_out(const at::Tensor& inputs, const at::Tensor& z, const LooDirections& directions, at::Tensor& out) {
  check_rows(inputs, kOp, "inputs");
  check_same(inputs, z, kOp, "inputs");
  check(z, directions, inputs.size(0), out);
  check_first(directions, z, inputs.size(1));
  messages(inputs, z, directions, nullptr, out);
}

void loo_messages_out(const CsrTensors& inputs, const at::Tensor& z, const LooDirections& directions, at::Tensor& out) {
  check_csr(inputs, kOp);
  check_same(inputs.values, z, kOp, "inputs");
  check(z, directions, inputs.n_rows(), out);
  check_first(directions, z, inputs.n_cols);
  messages(inputs, z, directions, nullptr, out);
}

void loo_messages_out(const CsrTensors& inputs, const at::Tensor& z, const LooDirections& directions,
                      const DirectionFactors& factors, at::Tensor& out) {
  check_csr(inputs, kOp);
  check_same(inputs.values, z, kOp, "inputs");
  check(z, directions, inputs.n_rows(), out);
  check_factors(directions, factors, z, inputs.n_cols);
  messages(inputs, z, directions, &factors, out);
}

}  // namespace calirare
