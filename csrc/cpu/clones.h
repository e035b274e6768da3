// Compiles a function for AVX-512, AVX2 and the plain target; the loader picks one. It does not take templates. With
// CALIRARE_ONE_CLONE for the plain target alone: the same sums, in a third of the time to compile.
#pragma once

#if defined(__x86_64__) && !defined(CALIRARE_ONE_CLONE)
#define CALIRARE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CALIRARE_CLONES
#endif

namespace calirare {

// Whether the processor has registers of 64 bytes.
inline bool long_vectors() {
#if defined(__x86_64__)
  static const bool found = __builtin_cpu_supports("avx512f");
  return found;
#else
  return false;
#endif
}

}  // namespace calirare

#define CALIRARE_INLINE inline __attribute__((always_inline))
