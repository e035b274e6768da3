// The link of the fused jackknife: from the change of a logit to a probability. Built from + - * / and the bits of a
// number alone, so that it vectorises, and so that twins agree.
#pragma once
#include <cstdint>
#include <cstring>

#include "host_device.h"
#include "views.h"

namespace calirare {

// What the scores f(v; theta_-i) of a graph's nodes are made of:
//   f = sigma(scale (logits[v] + shift[i] + sum over entries e of row v of a.values[e] messages[a.indices[e], i]) +
//   bias)
template <typename T>
struct MessageScores {
  CsrView<T> a;                  // [n, r]
  MatrixView<const T> messages;  // [r, m]
  const T *logits, *shift;       // [n], [m]
  T scale, bias;
};

template <typename T>
struct ExponentialParts;
template <>
struct ExponentialParts<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23, kExponentBias = 127, kTerms = 7;
  static constexpr float kLimit = 87.0f, kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
};
template <>
struct ExponentialParts<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52, kExponentBias = 1023, kTerms = 13;
  static constexpr double kLimit = 708.0, kMagic = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kLn2High = 6.93145751953125e-1, kLn2Low = 1.42860682030941723212e-6;
};

// e^x for |x| <= kLimit, to about one unit in the last place; beyond it the value at the limit. NaN gives NaN.
// x = k ln 2 + r, |r| <= ln 2 / 2, and e^r by its Taylor polynomial, whose remainder is below a tenth of a unit.
// N is T, or a vector of T; B the unsigned integers of its size.
template <typename T, typename N = T, typename B = typename ExponentialParts<T>::Bits>
CALIRARE_INLINED N exponential(N x) {
  using Parts = ExponentialParts<T>;
  using Bits = typename Parts::Bits;
  const N most = N{} + Parts::kLimit, least = N{} - Parts::kLimit, magic = N{} + Parts::kMagic;
  x = x > most ? most : x;
  x = x < least ? least : x;
  const N shifted = x * T(1.44269504088896340736) + magic, whole = shifted - magic;
  const N r = (x - whole * Parts::kLn2High) - whole * Parts::kLn2Low;
  N sum = N{} + T(1);
#if defined(__CUDA_ARCH__)
#pragma unroll
#elif !defined(__CUDACC__)  // nvcc's pass for the host knows neither
#pragma GCC unroll 16
#endif
  for (int k = Parts::kTerms; k > 0; --k) sum = T(1) + sum * (r * (T(1) / T(k)));
  B power_bits, magic_bits;
  memcpy(&power_bits, &shifted, sizeof power_bits);
  memcpy(&magic_bits, &magic, sizeof magic_bits);
  power_bits = (power_bits - magic_bits + Bits(Parts::kExponentBias)) << Parts::kMantissa;
  N power;
  memcpy(&power, &power_bits, sizeof power);
  return sum * power;
}

// sigma(x) = 1 / (1 + e^-x); below -kLimit it stays at its value there, less than 2e-38 or 4e-308.
template <typename T, typename N = T, typename B = typename ExponentialParts<T>::Bits>
CALIRARE_INLINED N logistic(N x) {
  return T(1) / (T(1) + exponential<T, N, B>(-x));
}

// One score from the propagated change of its logit.
template <typename T, typename N = T, typename B = typename ExponentialParts<T>::Bits>
CALIRARE_INLINED N message_score(N moved, T shift, N logit, T scale, T bias) {
  return logistic<T, N, B>(scale * ((moved + shift) + logit) + bias);
}

}  // namespace calirare
