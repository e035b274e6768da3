// Marks code that runs on the CPU and, when nvcc compiles it, on the GPU too.
#pragma once
#if defined(__CUDACC__)
#define CALIRARE_HD __host__ __device__ __forceinline__
#else
#define CALIRARE_HD inline
#endif

// Inlined wherever it stands: on the CPU a number may be a vector of them, whose instructions depend on the caller.
#if defined(__CUDACC__)
#define CALIRARE_INLINED CALIRARE_HD
#else
#define CALIRARE_INLINED inline __attribute__((always_inline))
#endif
