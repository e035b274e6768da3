// What a kernel source includes: the CUDA runtime under nvcc, the thread-block emulator of csrc/tests under g++.
// Both give: launch(kernel, grid, block, stream, arguments...), CALIRARE_CHECK_LAUNCH("kernel"), and
// CALIRARE_SHARED(type, name, count), an uninitialised array shared by the threads of a block.
#pragma once
#include <cstdint>

#include "../core/host_device.h"

#if defined(__CUDACC__)
#include "launch.cuh"
#else
#include "emulator.h"
#endif

namespace calirare {

constexpr int kWarp = 32;
constexpr unsigned kFullMask = 0xffffffffu;

// What a grid may be at most; the kernels loop over what is left, so tests can set smaller limits.
struct GridLimits {
  int64_t x = 0x7fffffff, y = 0xffff;
};

CALIRARE_HD int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline unsigned grid_size(int64_t wanted, int64_t limit) { return unsigned(wanted < limit ? wanted : limit); }

// kSize neighbouring elements that move as one access.
template <typename T, int kSize>
struct alignas(sizeof(T) * kSize) Pack {
  T at[kSize];
};

template <int kSize, typename T>
__device__ inline Pack<T, kSize> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kSize>*>(from);
}
template <typename T, int kSize>
__device__ inline void store_pack(T* to, const Pack<T, kSize>& pack) {
  *reinterpret_cast<Pack<T, kSize>*>(to) = pack;
}

// Does every row start where a pack of kSize elements may start?
template <int kSize, typename T>
bool packs_fit(const T* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % (sizeof(T) * kSize) == 0 && stride % kSize == 0;
}

}  // namespace calirare
