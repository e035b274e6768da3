// What lies between the sparse products of a step of graph convolutional networks: one element, or one row of classes.
#pragma once
#include <cmath>
#include <cstdint>

namespace calirare {

// max(x, 0); NaN stays, so that a network that diverges shows.
template <typename T>
T relu(T x) {
  return x < T(0) ? T(0) : x;
}

// Turns a row of k logits into weight (softmax - onehot(target)) and returns weight times its cross-entropy.
template <typename T>
double softmax_gradient(T* z, int64_t k, int64_t target, T weight) {
  T top = z[0];
  for (int64_t c = 1; c < k; ++c) top = z[c] > top ? z[c] : top;
  const T own = z[target] - top;
  T sum = 0;
  for (int64_t c = 0; c < k; ++c) {
    z[c] = z[c] == top ? T(1) : std::exp(z[c] - top);
    sum += z[c];
  }
  for (int64_t c = 0; c < k; ++c) z[c] *= weight / sum;
  z[target] -= weight;
  return double(weight) * double(std::log(sum) - own);
}

// The step of Adam (Kingma & Ba 2015, algorithm 1) with an L2 penalty in the gradient.
template <typename T>
struct AdamStep {
  T weight_decay, keep1, keep2;  // mu, beta_1, beta_2
  T length, epsilon;             // alpha / (1 - beta_1^t) and epsilon, both times sqrt(1 - beta_2^t)

  void operator()(T& theta, T gradient, T& first, T& second) const {
    const T g = gradient + weight_decay * theta;
    first += (T(1) - keep1) * (g - first);
    second = keep2 * second + (T(1) - keep2) * g * g;
    theta -= length * first / (std::sqrt(second) + epsilon);
  }
};

// Random numbers by counting: those of a unit hang on the key, its row and its place alone. A row's two words are a
// round of SplitMix64 (Steele et al. 2014); a unit's word are two rounds of a mixing of 32 bits with low bias (Wellons
// 2018, "Prospecting for hash functions").
inline uint64_t dropout_row_words(uint64_t key, uint64_t row) {
  uint64_t x = key + (row + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
inline uint32_t mixed_bits(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}
inline uint32_t dropout_bits(uint64_t row_words, uint32_t unit) {
  const uint32_t low = uint32_t(row_words), high = uint32_t(row_words >> 32);
  return mixed_bits(mixed_bits(low + unit * 0x9E3779B9u) ^ high);
}

}  // namespace calirare
