// Cuts rows into parts of nearly equal work.
#pragma once
#include <cstdint>
#include <vector>

namespace calirare {

// Returns parts + 1 row numbers from 0 to n_rows; work of a part = its entries + its rows. indptr is sorted, so each
// cut is a binary search.
inline std::vector<int64_t> balanced_cuts(const int64_t* indptr, int64_t n_rows, int64_t parts) {
  std::vector<int64_t> cuts(parts + 1, 0);
  const int64_t total = indptr[n_rows] - indptr[0] + n_rows;
  for (int64_t part = 1; part < parts; ++part) {
    const int64_t wanted = total / parts * part + total % parts * part / parts;
    int64_t low = cuts[part - 1], high = n_rows;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (indptr[middle] - indptr[0] + middle < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    cuts[part] = low;
  }
  cuts[parts] = n_rows;
  return cuts;
}

}  // namespace calirare
