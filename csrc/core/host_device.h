// Marks code that runs on the CPU and, when nvcc compiles it, on the GPU too.
#pragma once
#if defined(__CUDACC__)
#define CALIRARE_HD __host__ __device__ __forceinline__
#else
#define CALIRARE_HD inline
#endif
