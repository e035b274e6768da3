// masked_gram: the first layer's share of the kernel of a two-layer ReLU network, one propagation still to come.
#pragma once
#include <cstdint>

#include "../core/parallel.h"
#include "../core/views.h"

namespace calirare {

// out[u, i] = sum over entries (i, w) of A of A_iw products[w, u] sum_j mask[w, j] scaled[u, j]
//   a         [m, r_R], the labelled nodes' neighbours
//   products  in panels of kPanelBytes: column u at panels[u / w][:, u % w], each panel [r_R, w] in one piece, padded
//   mask      [r_R, h], 1 for an active unit and 0 else, rows `stride` apart
//   scaled    [r, h], rows `stride` apart
//   out       [r, m], rows `stride` apart; must not overlap the others
// Sums over j and over entries run in order, in T. The twin allocates, for each thread, (m + h) numbers for each row u
// of a panel. CPU only: a GPU does better with a product, a multiplication and a propagation.
constexpr int64_t kPanelBytes = 256;  // of a row of a panel

template <typename T>
struct MaskedGramTask {
  CsrView<T> a;
  const T* panels;
  MatrixView<const T> mask, scaled;
  MatrixView<T> out;
};

void masked_gram_cpu(const Parallel& parallel, const MaskedGramTask<float>& task);
void masked_gram_cpu(const Parallel& parallel, const MaskedGramTask<double>& task);

}  // namespace calirare
