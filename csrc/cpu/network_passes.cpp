// Vectors are passed between functions that are always inlined: how they would be passed otherwise does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "../ops/network_passes.h"

#include <algorithm>
#include <cstring>

#include "clones.h"
#include "vector.h"

namespace calirare {
namespace {

constexpr int64_t kChunkRows = 512, kMostChunks = 64;
constexpr int64_t kMostPartial = 1 << 22;  // numbers of all chunks together

struct Range {
  int64_t first, last;
};

Range chunk_of(int64_t n_rows, int64_t chunks, int64_t chunk) {
  return {n_rows * chunk / chunks, n_rows * (chunk + 1) / chunks};
}

template <typename V, typename T>
CALIRARE_INLINE V load(const T* from) {
  return *reinterpret_cast<const V*>(from);
}

// The sum over lanes: halves are added until one is left.
template <typename T, int kLanes>
CALIRARE_INLINE T over_lanes(typename Vector<T, kLanes>::type v) {
  if constexpr (kLanes == 2) {
    return v[0] + v[1];
  } else {
    using Half = typename Vector<T, kLanes / 2>::type;
    Half low, high;
    std::memcpy(&low, &v, sizeof(Half));
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof(Half), sizeof(Half));
    return over_lanes<T, kLanes / 2>(low + high);
  }
}

// Messages of one network's row to `kK` units of the next layer; kMake: from products, which become hidden states.
template <typename T, int kLanes, int kK, bool kMake>
CALIRARE_INLINE void messages_of(T* z, const T* bias, const T* keep, const T* weight, int64_t h, T* out) {
  using V = typename Vector<T, kLanes>::type;
  V sums[kK] = {};
  int64_t j = 0;
  for (; j + kLanes <= h; j += kLanes) {
    V units = load<V>(z + j);
    if constexpr (kMake) {
      units += load<V>(bias + j);
      units = units < T(0) ? V{} : units;
      if (keep != nullptr) units *= load<V>(keep + j);
      *reinterpret_cast<V*>(z + j) = units;
    }
#pragma GCC unroll 4
    for (int c = 0; c < kK; ++c) sums[c] += units * load<V>(weight + c * h + j);
  }
#pragma GCC unroll 4
  for (int c = 0; c < kK; ++c) out[c] = over_lanes<T, kLanes>(sums[c]);
  for (; j < h; ++j) {
    if constexpr (kMake) z[j] = relu(z[j] + bias[j]) * (keep == nullptr ? T(1) : keep[j]);
    for (int c = 0; c < kK; ++c) out[c] += z[j] * weight[c * h + j];
  }
}

template <typename T, int kLanes>
CALIRARE_INLINE void hidden_rows(const HiddenTask<T>& t, Range rows) {
  for (int64_t r = rows.first; r < rows.last; ++r) {
    const T* keep = t.keep == nullptr ? nullptr : t.keep + r * t.h;
    for (int64_t i = 0; i < t.b; ++i) {
      T *z = t.z.data + r * t.z.stride + i * t.h, *out = t.out.data + r * t.out.stride + i * t.k;
      const T *bias = t.bias + i * t.h, *weight = t.weight + i * t.k * t.h;
      if (t.k == 1) {
        messages_of<T, kLanes, 1, true>(z, bias, keep, weight, t.h, out);
        continue;
      }
      messages_of<T, kLanes, 2, true>(z, bias, keep, weight, t.h, out);
      int64_t c = 2;
      for (; c + 2 <= t.k; c += 2) messages_of<T, kLanes, 2, false>(z, bias, keep, weight + c * t.h, t.h, out + c);
      if (c < t.k) messages_of<T, kLanes, 1, false>(z, bias, keep, weight + c * t.h, t.h, out + c);
    }
  }
}

template <typename T>
CALIRARE_INLINE void logits_rows(const LogitsTask<T>& t, Range rows, double* sums) {
  const int64_t m = t.z.n_rows;
  std::fill_n(sums, t.b * (t.k + 1), 0.0);
  for (int64_t r = rows.first; r < rows.last; ++r) {
    for (int64_t i = 0; i < t.b; ++i) {
      T* z = t.z.data + r * t.z.stride + i * t.k;
      const T weight = t.weights[i * m + r];
      if (weight == T(0)) {
        std::fill_n(z, t.k, T(0));
        continue;
      }
      for (int64_t c = 0; c < t.k; ++c) z[c] += t.bias[i * t.k + c];
      sums[i] += softmax_gradient(z, t.k, t.targets[r], weight);
      for (int64_t c = 0; c < t.k; ++c) sums[t.b + i * t.k + c] += double(z[c]);
    }
  }
}

// The gradient at some units of one network, over a range of rows, from `kK` next units; sums stay in registers.
template <typename T, int kLanes, int kK>
CALIRARE_INLINE void hidden_gradient_tile(const HiddenGradientTask<T>& t, Range rows, int64_t i, int64_t j, T* sums) {
  using V = typename Vector<T, kLanes>::type;
  const T *weight = t.weight + i * t.k * t.h + j, *back = t.back.data + i * t.k;
  T *hidden = t.hidden.data + i * t.h + j, *into = sums + i * (t.k + 1) * t.h + j;
  V from[kK], turned[kK] = {}, bias = {};
#pragma GCC unroll 4
  for (int c = 0; c < kK; ++c) from[c] = load<V>(weight + c * t.h);
  for (int64_t r = rows.first; r < rows.last; ++r) {
    V* units = reinterpret_cast<V*>(hidden + r * t.hidden.stride);
    const V on = *units;
    V arrives = {};
#pragma GCC unroll 4
    for (int c = 0; c < kK; ++c) {
      arrives += back[r * t.back.stride + c] * from[c];
      turned[c] += back[r * t.back.stride + c] * on;
    }
    const V gradient = on <= T(0) ? V{} : t.scale * arrives;
    *units = gradient;
    bias += gradient;
  }
#pragma GCC unroll 4
  for (int c = 0; c < kK; ++c) *reinterpret_cast<V*>(into + c * t.h) = turned[c];
  *reinterpret_cast<V*>(into + t.k * t.h) = bias;
}

// The same for any number of next units, whose sums are kept in memory.
template <typename T, int kLanes>
CALIRARE_INLINE void hidden_gradient_wide(const HiddenGradientTask<T>& t, Range rows, int64_t i, int64_t j, T* sums) {
  using V = typename Vector<T, kLanes>::type;
  const T *weight = t.weight + i * t.k * t.h + j, *back = t.back.data + i * t.k;
  T *hidden = t.hidden.data + i * t.h + j, *into = sums + i * (t.k + 1) * t.h + j;
  for (int64_t c = 0; c <= t.k; ++c) *reinterpret_cast<V*>(into + c * t.h) = V{};
  for (int64_t r = rows.first; r < rows.last; ++r) {
    V* units = reinterpret_cast<V*>(hidden + r * t.hidden.stride);
    const V on = *units;
    V arrives = {};
    for (int64_t c = 0; c < t.k; ++c) {
      arrives += back[r * t.back.stride + c] * load<V>(weight + c * t.h);
      *reinterpret_cast<V*>(into + c * t.h) += back[r * t.back.stride + c] * on;
    }
    const V gradient = on <= T(0) ? V{} : t.scale * arrives;
    *units = gradient;
    *reinterpret_cast<V*>(into + t.k * t.h) += gradient;
  }
}

template <typename T, int kLanes>
CALIRARE_INLINE void hidden_gradient_units(const HiddenGradientTask<T>& t, Range rows, int64_t i, int64_t j, T* sums) {
  switch (t.k) {
    case 1:
      return hidden_gradient_tile<T, kLanes, 1>(t, rows, i, j, sums);
    case 2:
      return hidden_gradient_tile<T, kLanes, 2>(t, rows, i, j, sums);
    case 3:
      return hidden_gradient_tile<T, kLanes, 3>(t, rows, i, j, sums);
    default:
      return hidden_gradient_wide<T, kLanes>(t, rows, i, j, sums);
  }
}

template <typename T, int kLanes>
CALIRARE_INLINE void hidden_gradient_rows(const HiddenGradientTask<T>& t, Range rows, T* sums) {
  for (int64_t i = 0; i < t.b; ++i) {
    int64_t j = 0;
    for (; j + kLanes <= t.h; j += kLanes) hidden_gradient_units<T, kLanes>(t, rows, i, j, sums);
    for (; j < t.h; ++j) hidden_gradient_units<T, 1>(t, rows, i, j, sums);
  }
}

template <typename T>
CALIRARE_INLINE void adam_range(const AdamTask<T>& t, Range range) {
  T* __restrict theta = t.theta, * __restrict first = t.first, * __restrict second = t.second;
  const T* __restrict gradient = t.gradient;
  const AdamStep<T> step = t.step;
  for (int64_t i = range.first; i < range.last; ++i) step(theta[i], gradient[i], first[i], second[i]);
}

template <typename T>
CALIRARE_INLINE void dropout_rows(const DropoutTask<T>& t, Range rows) {
  const uint32_t dropped = uint32_t(t.probability * 4294967296.0);  // of 2^32 words
  const T factor = T(1 / (1 - t.probability));
  for (int64_t r = rows.first; r < rows.last; ++r) {
    const uint64_t words = dropout_row_words(t.key, uint64_t(r));
    T* __restrict out = t.out.data + r * t.out.stride;
    for (int64_t u = 0; u < t.out.n_cols; ++u) out[u] = dropout_bits(words, uint32_t(u)) < dropped ? T(0) : factor;
  }
}

// target_clones does not take templates, hence plain functions.
CALIRARE_CLONES void rows_of(const HiddenTask<float>& t, Range rows) { hidden_rows<float, 8>(t, rows); }
CALIRARE_CLONES void rows_of(const HiddenTask<double>& t, Range rows) { hidden_rows<double, 4>(t, rows); }
CALIRARE_CLONES void rows_of(const LogitsTask<float>& t, Range rows, double* sums) { logits_rows(t, rows, sums); }
CALIRARE_CLONES void rows_of(const LogitsTask<double>& t, Range rows, double* sums) { logits_rows(t, rows, sums); }
CALIRARE_CLONES void rows_of(const HiddenGradientTask<float>& t, Range rows, float* sums) {
  hidden_gradient_rows<float, 8>(t, rows, sums);
}
CALIRARE_CLONES void rows_of(const HiddenGradientTask<double>& t, Range rows, double* sums) {
  hidden_gradient_rows<double, 4>(t, rows, sums);
}
CALIRARE_CLONES void rows_of(const DropoutTask<float>& t, Range rows) { dropout_rows(t, rows); }
CALIRARE_CLONES void rows_of(const DropoutTask<double>& t, Range rows) { dropout_rows(t, rows); }
CALIRARE_CLONES void range_of(const AdamTask<float>& t, Range range) { adam_range(t, range); }
CALIRARE_CLONES void range_of(const AdamTask<double>& t, Range range) { adam_range(t, range); }

// Sums of every chunk of rows, then their total in double.
template <typename Task, typename T>
void summed(const Parallel& parallel, const Task& t, int64_t n_rows, int64_t n_sums, T* partial, double* sums) {
  const int64_t chunks = network_chunks(n_rows, n_sums);
  parallel.run(chunks, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) rows_of(t, chunk_of(n_rows, chunks, c), partial + c * n_sums);
  });
  std::fill_n(sums, n_sums, 0.0);
  for (int64_t c = 0; c < chunks; ++c) {
    for (int64_t i = 0; i < n_sums; ++i) sums[i] += double(partial[c * n_sums + i]);
  }
}

template <typename T>
void hidden_any(const Parallel& parallel, const HiddenTask<T>& t) {
  parallel.run(t.z.n_rows, [&](int64_t first, int64_t last) { rows_of(t, {first, last}); });
}

template <typename T>
void adam_any(const Parallel& parallel, const AdamTask<T>& t) {
  parallel.run(t.p, [&](int64_t first, int64_t last) { range_of(t, {first, last}); });
}

template <typename T>
void dropout_any(const Parallel& parallel, const DropoutTask<T>& t) {
  parallel.run(t.out.n_rows, [&](int64_t first, int64_t last) { rows_of(t, {first, last}); });
}

}  // namespace

int64_t network_chunks(int64_t n_rows, int64_t n_sums) {
  const int64_t fitting = std::max<int64_t>(kMostPartial / std::max<int64_t>(n_sums, 1), 1);
  return std::min({n_rows / kChunkRows + 1, kMostChunks, fitting});
}

void hidden_cpu(const Parallel& parallel, const HiddenTask<float>& task) { hidden_any(parallel, task); }
void hidden_cpu(const Parallel& parallel, const HiddenTask<double>& task) { hidden_any(parallel, task); }
void logits_cpu(const Parallel& parallel, const LogitsTask<float>& task) {
  summed(parallel, task, task.z.n_rows, task.b * (task.k + 1), task.partial, task.sums);
}
void logits_cpu(const Parallel& parallel, const LogitsTask<double>& task) {
  summed(parallel, task, task.z.n_rows, task.b * (task.k + 1), task.partial, task.sums);
}
void hidden_gradient_cpu(const Parallel& parallel, const HiddenGradientTask<float>& task) {
  summed(parallel, task, task.hidden.n_rows, task.b * (task.k + 1) * task.h, task.partial, task.sums);
}
void hidden_gradient_cpu(const Parallel& parallel, const HiddenGradientTask<double>& task) {
  summed(parallel, task, task.hidden.n_rows, task.b * (task.k + 1) * task.h, task.partial, task.sums);
}
void adam_cpu(const Parallel& parallel, const AdamTask<float>& task) { adam_any(parallel, task); }
void adam_cpu(const Parallel& parallel, const AdamTask<double>& task) { adam_any(parallel, task); }

void dropout_factors_cpu(const Parallel& parallel, const DropoutTask<float>& task) { dropout_any(parallel, task); }
void dropout_factors_cpu(const Parallel& parallel, const DropoutTask<double>& task) { dropout_any(parallel, task); }

}  // namespace calirare
