// The pool that work is spread over: torch's, or threads of our own where a sanitizer must see who waits for whom.
#pragma once
#include <ATen/Parallel.h>

#ifdef CALIRARE_OWN_THREADS
#include <algorithm>
#include <thread>
#include <vector>
#endif

namespace calirare {

// Runs body(first, last) over [begin, end), in pieces of at least `grain`.
template <typename Body>
void over_pool(int64_t begin, int64_t end, int64_t grain, const Body& body) {
#ifdef CALIRARE_OWN_THREADS  // the thread sanitizer does not know the barriers of OpenMP, which torch's pool is made of
  const int64_t size = end - begin;
  const int64_t threads = std::clamp<int64_t>(size / std::max<int64_t>(grain, 1), 1, at::get_num_threads());
  std::vector<std::thread> others;
  for (int64_t k = 1; k < threads; ++k) {
    others.emplace_back([=, &body] { body(begin + size * k / threads, begin + size * (k + 1) / threads); });
  }
  if (size > 0) body(begin, begin + size / threads);
  for (std::thread& other : others) other.join();
#else
  at::parallel_for(begin, end, grain, body);
#endif
}

}  // namespace calirare
