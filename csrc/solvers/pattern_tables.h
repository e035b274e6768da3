// What rows with one pattern of active units multiply their inputs with.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "dispatch.h"
#include "loo_messages.h"
#include "unit_patterns.h"

namespace calirare {

constexpr int64_t kPieceRows = 128;        // rows of one product: they and their results stay in the L2 cache
constexpr int64_t kTableBytes = 16 << 20;  // matrices of patterns held at once
constexpr double kCallCost = 8.0;          // of a small product, in rows of a dense one; measured

// w2_j where unit j of the group belongs to the pattern, else 0: [patterns, units].
template <typename T>
at::Tensor pattern_weights(const PatternGroup& group, int64_t first, int64_t size, const at::Tensor& contrast) {
  at::Tensor weights = at::zeros({size, group.n_units}, contrast.options());
  T* to = weights.mutable_data_ptr<T>();
  const T* from = contrast.const_data_ptr<T>() + group.first_unit;
  for (int64_t p = 0; p < size; ++p) {
    for (int64_t j = 0; j < group.n_units; ++j) {
      if (group.pattern[first + p] >> j & 1u) to[p * group.n_units + j] = from[j];
    }
  }
  return weights;
}

// Matrices of patterns, sum_j w2_j dW1[:, :, j] over the pattern's units and the bias's row, [d + 1, s]: `batch` of
// them at once by one product from dense directions.
template <typename T>
struct DenseTables {
  const LooDirections& directions;
  at::Tensor tables;
  int64_t first = 0;

  explicit DenseTables(const LooDirections& directions_) : directions(directions_) {}
  int64_t d() const { return directions.first.size(0) - 1; }
  int64_t s() const { return directions.first.size(1); }
  int64_t batch() const { return kTableBytes / int64_t((d() + 1) * s() * sizeof(T)); }
  // Measured: a unit of a pattern costs two rows of a dense product; a number of it as much as half an entry.
  PatternCost cost(double row_entries, bool sparse) const {
    return {kCallCost, sparse ? 0.5 * double(d() + 1) / row_entries : 2.0, kNever};
  }

  void prepare(const PatternGroup& group, int64_t first_, int64_t size) {
    const int64_t h = directions.first.size(2);
    const at::Tensor units = directions.first.view({(d() + 1) * s(), h}).narrow(1, group.first_unit, group.n_units).t();
    first = first_;
    tables = at::mm(pattern_weights<T>(group, first, size, directions.contrast), units).view({size, d() + 1, s()});
  }
  // One per thread.
  struct Reader {
    const DenseTables& all;
    at::Tensor products, table;
    at::Tensor factor(const PatternGroup&, int64_t pattern) {
      table = all.tables.select(0, pattern - all.first);
      return table.narrow(0, 0, all.d());
    }
    bool finishes(const PatternGroup&, int64_t) const { return false; }
    void add(const PatternGroup&, int64_t, const T* sums, T* out) const {
      const int64_t s = all.s();
      const T* bias = table.const_data_ptr<T>() + all.d() * s;
      for (int64_t i = 0; i < s; ++i) out[i] += sums[i] + bias[i];
    }
  };
  Reader reader() const { return {*this, {}, {}}; }
};

// The same from factors, one at a time: with c_e = sum_j w2_j delta[e, j] column i is the sum of c_e inputs[nodes[e],
// :]. Rows of a rare pattern are not worth a matrix: they take their products with all rows of the factors' inputs
// first (the Gram form) and add c_e times those.
template <typename T>
struct FactoredTables {
  const LooDirections& directions;
  const DirectionFactors& factors;
  double added = 0;  // numbers added to a matrix
  PatternCost costs{0, 0, kNever};

  FactoredTables(const LooDirections& directions_, const DirectionFactors& factors_)
      : directions(directions_), factors(factors_) {
    const int64_t* indptr = factors.inputs.indptr.const_data_ptr<int64_t>();
    const int32_t* nodes = factors.nodes.const_data_ptr<int32_t>();
    for (int64_t e = 0; e < factors.nodes.numel(); ++e) added += double(indptr[nodes[e] + 1] - indptr[nodes[e]]);
  }
  int64_t d() const { return factors.inputs.n_cols; }
  int64_t s() const { return factors.entry_ptr.numel() - 1; }
  int64_t batch() const { return int64_t(1) << 40; }
  // Measured, in multiply-adds of a row: 20 for a number added to a matrix, a quarter for one set to zero, 3 for each
  // unit of an entry.
  PatternCost cost(double row_entries, bool) {
    const double row = row_entries * double(s()), h = double(factors.delta.size(1));
    costs = {kCallCost + (20.0 * added + 0.25 * double((d() + 1) * s())) / row, 0.0, kNever};
    const double gram = row_entries * double(factors.inputs.n_rows()) + 3.0 * h * double(factors.nodes.numel());
    if (factors.seen.defined()) costs.row_alone = 1.0 + gram / row;
    return costs;
  }
  void prepare(const PatternGroup&, int64_t, int64_t) {}

  struct Reader {
    const FactoredTables& all;
    at::Tensor products, table;  // [piece, rows of the factors], [d + 1, s]
    std::vector<T> weight;       // c
    int64_t filled = -1;         // pattern of the table

    bool finishes(const PatternGroup& group, int64_t pattern) const {
      return all.costs.alone(group.start[pattern + 1] - group.start[pattern], group.n_units);
    }
    at::Tensor factor(const PatternGroup& group, int64_t pattern) {
      weigh(group, group.pattern[pattern]);
      if (finishes(group, pattern)) return all.factors.seen;
      if (pattern != filled) fill();
      filled = pattern;
      return table.narrow(0, 0, all.d());
    }
    void weigh(const PatternGroup& group, uint32_t pattern) {
      const int64_t h = all.factors.delta.size(1);
      const T* contrast = all.directions.contrast.const_data_ptr<T>() + group.first_unit;
      const T* delta = all.factors.delta.const_data_ptr<T>() + group.first_unit;
      std::vector<T> active(group.n_units);
      for (int64_t j = 0; j < group.n_units; ++j) active[j] = (pattern >> j & 1u) ? contrast[j] : T(0);
      for (size_t e = 0; e < weight.size(); ++e) {
        T sum = 0;
        for (int64_t j = 0; j < group.n_units; ++j) sum += active[j] * delta[int64_t(e) * h + j];
        weight[e] = sum;
      }
    }
    // Calls body(direction, row of the factors, weight) for every entry.
    template <typename Body>
    void for_entries(Body body) const {
      const int64_t* entry_ptr = all.factors.entry_ptr.const_data_ptr<int64_t>();
      const int32_t* nodes = all.factors.nodes.const_data_ptr<int32_t>();
      for (int64_t i = 0; i < all.s(); ++i) {
        for (int64_t e = entry_ptr[i]; e < entry_ptr[i + 1]; ++e) body(i, int64_t(nodes[e]), weight[e]);
      }
    }
    void fill() {
      const int64_t s = all.s(), d = all.d();
      const CsrView<T> a = view<T>(all.factors.inputs);
      T* to = table.mutable_data_ptr<T>();
      std::fill_n(to, (d + 1) * s, T(0));
      for_entries([&](int64_t i, int64_t node, T c) {
        to[d * s + i] += c;
        for (int64_t k = a.indptr[node]; k < a.indptr[node + 1]; ++k) to[a.indices[k] * s + i] += a.values[k] * c;
      });
    }
    void add(const PatternGroup& group, int64_t pattern, const T* sums, T* out) const {
      if (finishes(group, pattern)) {
        for_entries([&](int64_t i, int64_t node, T c) { out[i] += c * (sums[node] + T(1)); });
        return;
      }
      const int64_t s = all.s();
      const T* bias = table.const_data_ptr<T>() + all.d() * s;
      for (int64_t i = 0; i < s; ++i) out[i] += sums[i] + bias[i];
    }
  };
  Reader reader() const {
    const at::TensorOptions options = factors.delta.options();
    return {*this, at::empty({kPieceRows, factors.seen.defined() ? factors.inputs.n_rows() : 0}, options),
            at::empty({d() + 1, s()}, options), std::vector<T>(factors.nodes.numel()), -1};
  }
};

}  // namespace calirare
