// What a CPU's memory can do at most: the rates that the floors of whole models are computed from.
// Compiled at run time with -O3 -march=native (ceilings.py); not part of the operators.
// Every function splits the memory over `threads` threads, returns when all of them are done, and
// does so `times` times, since starting threads takes as long as writing a megabyte.

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

// Runs f(thread) on each thread, the last one here.
template <class F>
void on_threads(int threads, const F& f) {
  std::vector<std::thread> others;
  for (int t = 0; t + 1 < threads; ++t) others.emplace_back([&f, t] { f(t); });
  f(threads - 1);
  for (auto& other : others) other.join();
}

// f(begin, end) for the thread's share of [0, count), in multiples of `unit`, `times` times over.
template <class F>
void on_shares(int threads, int64_t times, int64_t count, int64_t unit, const F& f) {
  const int64_t units = count / unit;
  on_threads(threads, [&](int t) {
    for (int64_t i = 0; i < times; ++i)
      f(units * t / threads * unit, units * (t + 1) / threads * unit);
  });
}

}  // namespace

int64_t sink;  // external, so that results are alive; raced on and never read

// Reads `count` int32, a multiple of 64.
extern "C" void read_ints(int threads, int64_t times, const int32_t* in, int64_t count) {
  on_shares(threads, times, count, 64, [&](int64_t begin, int64_t end) {
    int32_t sum[64] = {};
    for (int64_t i = begin; i < end; i += 64)
      for (int64_t k = 0; k < 64; ++k) sum[k] ^= in[i + k];
    sink = *std::max_element(sum, sum + 64);
  });
}

// XOR of rows of 128 features, four words, one for each index, a multiple of 8.
extern "C" void gather_rows(int threads, int64_t times, const int32_t* indices, int64_t count,
                            const int32_t* table) {
  constexpr int64_t kAhead = 64, kWords = 4;
  on_shares(threads, times, count, 8, [&](int64_t begin, int64_t end) {
    int32_t sum[8][kWords] = {};
    for (int64_t i = begin; i < end; i += 8) {
      for (int64_t k = 0; k < 8; ++k) {
        const int64_t later = std::min(i + k + kAhead, end - 1);
        __builtin_prefetch(table + kWords * static_cast<int64_t>(indices[later]));
        const int32_t* row = table + kWords * static_cast<int64_t>(indices[i + k]);
        for (int64_t w = 0; w < kWords; ++w) sum[k][w] ^= row[w];
      }
    }
    sink = *std::max_element(&sum[0][0], &sum[0][0] + 8 * kWords);
  });
}
