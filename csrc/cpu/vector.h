// Vectors for loads and stores of any alignment.
#pragma once

namespace calirare {

// kLanes neighbouring elements.
template <typename T, int kLanes>
struct Vector {
  typedef T type __attribute__((vector_size(kLanes * sizeof(T)), aligned(alignof(T)), may_alias));
};
template <typename T>
struct Vector<T, 1> {
  typedef T type;
};

constexpr int kLineBytes = 64;

}  // namespace calirare
