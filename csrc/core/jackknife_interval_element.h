// Order statistics and NumPy's "linear" quantile rule, for the interval ends of the paper's Eq. 6.
#pragma once
#include <cstdint>
#include <cstring>

#include "host_device.h"

namespace calirare {

// Unsigned keys with the order of the numbers: -inf < ... < -0 < +0 < ... < +inf < NaN. A negative NaN is made
// positive.
CALIRARE_HD uint32_t order_key(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return 0xffffffffu;
  return (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
}
CALIRARE_HD uint64_t order_key(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return ~uint64_t(0);
  return (bits >> 63) ? ~bits : (bits | (uint64_t(1) << 63));
}

// The number of a key; the key of NaN gives a NaN.
CALIRARE_HD float number_of(uint32_t key) {
  const uint32_t bits = (key & 0x80000000u) ? key & 0x7fffffffu : ~key;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
CALIRARE_HD double number_of(uint64_t key) {
  const uint64_t bits = (key >> 63) ? key & ~(uint64_t(1) << 63) : ~key;
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// A number with the place it came from; equal numbers are ordered by place, so every twin picks the same one.
template <typename T>
struct Ranked {
  T value;
  int32_t place;
};
template <typename T>
CALIRARE_HD bool ranked_less(Ranked<T> a, Ranked<T> b) {
  const auto ka = order_key(a.value), kb = order_key(b.value);
  return ka != kb ? ka < kb : a.place < b.place;
}

// Where quantile q of m sorted numbers lies: between order statistics `low` and `high`, at `fraction` of the way.
struct QuantileRank {
  int64_t low, high;
  double fraction;
};
CALIRARE_HD QuantileRank quantile_rank(int64_t m, double q) {
  const double position = q * double(m - 1);
  int64_t low = int64_t(position);
  if (low > m - 1) low = m - 1;
  const int64_t high = low + 1 < m ? low + 1 : low;
  return {low, high, position - double(low)};
}

// a * b, rounded on its own: a compiler that fused it with the sum around it would differ from NumPy by a rounding.
CALIRARE_HD double rounded_product(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// NumPy's interpolation: exact at both ends and monotone. Where NumPy meets inf - inf on its way, this gives the limit:
// NaN remains only between opposite infinities. A NaN in the row gives NaN.
template <typename T>
CALIRARE_HD T interpolate(T low, T high, double fraction, bool has_nan) {
  if (has_nan) return T(0) / T(0);
  if (low == high || fraction == 0.0) return low;
  const double a = double(low), b = double(high), step = b - a;
  if (step - step != 0.0) return T(a * (1.0 - fraction) + b * fraction);  // an infinite end, or b - a overflows
  return T(fraction >= 0.5 ? b - rounded_product(step, 1.0 - fraction) : a + rounded_product(step, fraction));
}

// The two samples of the jackknife at node v: f(v; theta_-i) - r_i below, f(v; theta_-i) + r_i above. N is T, or on the
// CPU a vector of T: neighbouring nodes.
template <typename N, typename T>
CALIRARE_INLINED N interval_sample(N score, T residual, int side) {
  return side == 0 ? score - residual : score + residual;
}

}  // namespace calirare
