// Plain pointers with their shapes: what the kernels see of a matrix.
#pragma once
#include <cstdint>

namespace calirare {

// Compressed sparse rows: entries of row r are indptr[r] .. indptr[r + 1]. No ownership.
template <typename T>
struct CsrView {
  const int64_t* indptr;   // [n_rows + 1]
  const int32_t* indices;  // [nnz]
  const T* values;         // [nnz]
  int64_t n_rows;
};

// Row-major matrix whose rows start `stride` elements apart. No ownership.
template <typename T>
struct MatrixView {
  T* data;
  int64_t n_rows, n_cols, stride;
};

}  // namespace calirare
