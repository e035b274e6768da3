// Vectors for loads and stores of any alignment.
#pragma once
#include <type_traits>

#include "clones.h"

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

// kLanes neighbouring elements, as numbers of type N. Lane by lane: GCC 12 makes one instruction of the loop, and four
// of
// __builtin_convertvector to a wider type.
template <typename N, int kLanes, typename T>
CALIRARE_INLINE typename Vector<N, kLanes>::type load_as(const T* from) {
  if constexpr (std::is_same_v<N, T> || kLanes == 1) {
    return *reinterpret_cast<const typename Vector<T, kLanes>::type*>(from);
  } else {
    typename Vector<N, kLanes>::type numbers;
#pragma GCC unroll 16
    for (int l = 0; l < kLanes; ++l) numbers[l] = N(from[l]);
    return numbers;
  }
}

// The other way: each number is rounded to what `to` holds.
template <int kLanes, typename T, typename V>
CALIRARE_INLINE void store_as(T* to, V numbers) {
  using Stored = typename Vector<T, kLanes>::type;
  if constexpr (sizeof(V) == sizeof(Stored)) {
    *reinterpret_cast<Stored*>(to) = numbers;
  } else if constexpr (kLanes == 1) {
    *to = T(numbers);
  } else {
    *reinterpret_cast<Stored*>(to) = __builtin_convertvector(numbers, Stored);
  }
}

constexpr int kLineBytes = 64;

}  // namespace calirare
