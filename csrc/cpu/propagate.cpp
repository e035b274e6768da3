// Vectors are passed between functions that are always inlined: how they would be passed otherwise does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "../ops/propagate.h"

#include "row_tiles.h"

namespace calirare {
namespace {

constexpr int64_t kStreamBytes = 1 << 12;  // rows at least this long are read from end to end
constexpr int kBatch = 8;                  // of them at a time: a processor follows that many streams

// `count` entries added to a row of `vectors` vectors in one sweep: each row of X is one stream.
template <typename T, int kBytes, int kCount>
CALIRARE_INLINE void stream_batch(const int32_t* indices, const T* values, MatrixView<const T> x, T* to,
                                  int64_t vectors, bool first) {
  constexpr int kLanes = kBytes / sizeof(T);
  using V = typename Vector<T, kLanes>::type;
  const T* from[kCount];
  T weight[kCount];
#pragma GCC unroll 8
  for (int k = 0; k < kCount; ++k) {
    from[k] = x.data + int64_t(indices[k]) * x.stride;
    weight[k] = values[k];
  }
  for (int64_t c = 0; c < vectors * kLanes; c += kLanes) {
    V sum = first ? V{} : *reinterpret_cast<const V*>(to + c);
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) sum = propagate_term(sum, weight[k], *reinterpret_cast<const V*>(from[k] + c));
    *reinterpret_cast<V*>(to + c) = sum;
  }
}

// The first `vectors` vectors of one row: entries in batches of nearly equal size, at most kBatch.
template <typename T, int kBytes>
CALIRARE_INLINE void stream_row(CsrView<T> a, int64_t row, MatrixView<const T> x, T* to, int64_t vectors) {
  const int64_t begin = a.indptr[row], count = a.indptr[row + 1] - begin;
  if (count == 0) std::fill_n(to, vectors * int64_t(kBytes / sizeof(T)), T(0));
  const int64_t batches = (count + kBatch - 1) / kBatch;
  for (int64_t b = 0, done = 0; b < batches; ++b) {
    const int64_t size = (count - done + batches - b - 1) / (batches - b);
    const int32_t* indices = a.indices + begin + done;
    const T* values = a.values + begin + done;
    const bool first = b == 0;
    switch (size) {
      case 1:
        stream_batch<T, kBytes, 1>(indices, values, x, to, vectors, first);
        break;
      case 2:
        stream_batch<T, kBytes, 2>(indices, values, x, to, vectors, first);
        break;
      case 3:
        stream_batch<T, kBytes, 3>(indices, values, x, to, vectors, first);
        break;
      case 4:
        stream_batch<T, kBytes, 4>(indices, values, x, to, vectors, first);
        break;
      case 5:
        stream_batch<T, kBytes, 5>(indices, values, x, to, vectors, first);
        break;
      case 6:
        stream_batch<T, kBytes, 6>(indices, values, x, to, vectors, first);
        break;
      case 7:
        stream_batch<T, kBytes, 7>(indices, values, x, to, vectors, first);
        break;
      default:
        stream_batch<T, kBytes, 8>(indices, values, x, to, vectors, first);
    }
    done += size;
  }
}

// Wide rows: first .. stop.
template <typename T, int kBytes>
CALIRARE_INLINE void streams_of(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop) {
  constexpr int kLanes = kBytes / sizeof(T);
  const int64_t vectors = out.view.n_cols / kLanes;
  for (int64_t r = first; r < stop; ++r) {
    stream_row<T, kBytes>(a, r, x, out.row(r), vectors);
    rest_of<PropagateSum<T>, kBytes, false>(a, x, out, r, r + 1, 0, vectors * kLanes);
  }
}

template <typename T, int kBytes>
CALIRARE_INLINE void propagate_rows(CsrView<T> a, MatrixView<const T> x, Target<T> out, int64_t first, int64_t stop) {
  if (out.view.n_cols * int64_t(sizeof(T)) >= kStreamBytes) {
    streams_of<T, kBytes>(a, x, out, first, stop);
  } else {
    any_rows<PropagateSum<T>, kBytes>(a, x, out, first, stop);
  }
}

// target_clones does not take templates, hence plain functions. Vectors are as long as the processor's registers: GCC
// keeps longer ones on the stack, ten times slower. The sums are the same.
CALIRARE_CLONES void rows_f32_64(CsrView<float> a, MatrixView<const float> x, Target<float> out, int64_t first,
                                 int64_t stop) {
  propagate_rows<float, 64>(a, x, out, first, stop);
}
CALIRARE_CLONES void rows_f64_64(CsrView<double> a, MatrixView<const double> x, Target<double> out, int64_t first,
                                 int64_t stop) {
  propagate_rows<double, 64>(a, x, out, first, stop);
}
CALIRARE_CLONES void rows_f32_32(CsrView<float> a, MatrixView<const float> x, Target<float> out, int64_t first,
                                 int64_t stop) {
  propagate_rows<float, 32>(a, x, out, first, stop);
}
CALIRARE_CLONES void rows_f64_32(CsrView<double> a, MatrixView<const double> x, Target<double> out, int64_t first,
                                 int64_t stop) {
  propagate_rows<double, 32>(a, x, out, first, stop);
}

}  // namespace

void propagate_cpu(const Parallel& parallel, CsrView<float> a, MatrixView<const float> x, MatrixView<float> out) {
  spread(parallel, a, x, target_of(out), long_vectors() ? rows_f32_64 : rows_f32_32);
}

void propagate_cpu(const Parallel& parallel, CsrView<double> a, MatrixView<const double> x, MatrixView<double> out) {
  spread(parallel, a, x, target_of(out), long_vectors() ? rows_f64_64 : rows_f64_32);
}

}  // namespace calirare
