// community_order: an order of a graph's nodes in which neighbours stand near each other.
#pragma once
#include <cstdint>

namespace calirare {

// Writes a permutation of the nodes into `order` [n]: communities one after the other, communities within communities
// likewise. Nodes, fewest neighbours first, join the neighbour that gains the most modularity (Arai et al. 2016,
// "Rabbit Order", without its parallel part); the tree of joins is then read from the top. Needs no symmetry to be
// correct.
//   indptr   [n + 1], indices [nnz] in [0, n) (not checked)
//   most_visits  stop joining after so many looks at an edge: a graph without communities costs no more than that
// Takes some 60 bytes per node and up to 16 per look at an edge of its own.
void community_order(const int64_t* indptr, const int32_t* indices, int64_t n, int64_t most_visits, int64_t* order);

}  // namespace calirare
