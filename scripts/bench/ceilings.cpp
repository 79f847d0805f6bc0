// What a CPU can do at most: the rates that scripts/profile_cpu.py sets the operators against.
// Compiled at run time with -O3 -march=native (ceilings.py); not part of the operators.
// Every function works on `threads` threads and returns when all of them are done; those on memory
// split it, and do so `times` times, since starting threads takes as long as writing a megabyte.

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

constexpr int kAccumulators = 8;

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

// Bits of the vectors whose population counts one instruction takes; 0 where there is none, and
// then the functions up to fused_multiply_adds are missing.
extern "C" int vector_bits() {
#if defined(__AVX512VPOPCNTDQ__)
  return 512;
#else
  return 0;
#endif
}

// Additions that wait for one another, one a cycle: the clock rate.
extern "C" void dependent_adds(int threads, int64_t rounds) {
  on_threads(threads, [&](int) {
    int64_t a = rounds;
    for (int64_t i = 0; i < rounds; ++i) {
      asm volatile("" : "+r"(a));  // no two in one
      a += 1;
    }
    sink = a;
  });
}

#if defined(__AVX512VPOPCNTDQ__)
// XOR, popcount and add of 512 bits, kAccumulators times a round: 1 024 operations each.
extern "C" void xor_popcount_add(int threads, int64_t rounds) {
  on_threads(threads, [&](int) {
    __m512i acc[kAccumulators], a = _mm512_set1_epi32(1), b = _mm512_set1_epi32(5);
#pragma GCC unroll 8
    for (int k = 0; k < kAccumulators; ++k) acc[k] = _mm512_setzero_si512();
    for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
      for (int k = 0; k < kAccumulators; ++k) {
        asm volatile("" : "+v"(a), "+v"(b));  // a new pair of operands as far as GCC can tell
        acc[k] = _mm512_add_epi32(acc[k], _mm512_popcnt_epi32(_mm512_xor_si512(a, b)));
        asm volatile("" : "+v"(acc[k]));
      }
    }
#pragma GCC unroll 8
    for (int k = 1; k < kAccumulators; ++k) acc[0] = _mm512_add_epi32(acc[0], acc[k]);
    sink = _mm512_reduce_add_epi32(acc[0]);
  });
}

// The same product from running parities: five operations for two vectors of 512 bits.
extern "C" void parity_popcount_add(int threads, int64_t rounds) {
  on_threads(threads, [&](int) {
    __m512i acc[kAccumulators], a = _mm512_set1_epi32(1), b = _mm512_set1_epi32(5), p = a;
#pragma GCC unroll 8
    for (int k = 0; k < kAccumulators; ++k) acc[k] = _mm512_setzero_si512();
    for (int64_t i = 0; i < rounds; i += 2) {
#pragma GCC unroll 8
      for (int k = 0; k < kAccumulators; ++k) {
        asm volatile("" : "+v"(a), "+v"(b), "+v"(p));
        __m512i middle = _mm512_xor_si512(a, b);
        asm volatile("" : "+v"(a), "+v"(b), "+v"(middle));
        const __m512i carry = _mm512_ternarylogic_epi32(middle, p, _mm512_xor_si512(a, b), 0x74);
        acc[k] = _mm512_add_epi32(acc[k], _mm512_popcnt_epi32(carry));
        asm volatile("" : "+v"(acc[k]));
      }
    }
#pragma GCC unroll 8
    for (int k = 1; k < kAccumulators; ++k) acc[0] = _mm512_add_epi32(acc[0], acc[k]);
    sink = _mm512_reduce_add_epi32(acc[0]);
  });
}

// Fused multiply-adds of 16 floats, kAccumulators times a round: 32 operations each.
extern "C" void fused_multiply_adds(int threads, int64_t rounds) {
  on_threads(threads, [&](int) {
    __m512 acc[kAccumulators], a = _mm512_set1_ps(1e-20f);
#pragma GCC unroll 8
    for (int k = 0; k < kAccumulators; ++k) acc[k] = a;
    for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
      for (int k = 0; k < kAccumulators; ++k) {
        acc[k] = _mm512_fmadd_ps(acc[k], a, a);
        asm volatile("" : "+v"(acc[k]));
      }
    }
#pragma GCC unroll 8
    for (int k = 1; k < kAccumulators; ++k) acc[0] = _mm512_add_ps(acc[0], acc[k]);
    sink = _mm512_reduce_add_ps(acc[0]) > 0;
  });
}
#endif

// Writes `count` floats, a multiple of 16, to a 64-byte aligned address: through the caches.
extern "C" void write_floats(int threads, int64_t times, float* out, int64_t count) {
  on_shares(threads, times, count, 16, [&](int64_t begin, int64_t end) {
    const float value = static_cast<float>(count);
    for (int64_t i = begin; i < end; i += 16) {
      for (int64_t k = 0; k < 16; ++k) out[i + k] = value;
      asm volatile("" : : : "memory");  // or the loop becomes a call of memset
    }
  });
}

// The same past the caches, by streaming stores; through them where there are none.
extern "C" void stream_floats(int threads, int64_t times, float* out, int64_t count) {
#if defined(__AVX512F__)
  on_shares(threads, times, count, 16, [&](int64_t begin, int64_t end) {
    const __m512 value = _mm512_set1_ps(static_cast<float>(count));
    for (int64_t i = begin; i < end; i += 16) _mm512_stream_ps(out + i, value);
    _mm_sfence();
  });
#else
  write_floats(threads, times, out, count);
#endif
}

// Reads `count` int32, a multiple of 64.
extern "C" void read_ints(int threads, int64_t times, const int32_t* in, int64_t count) {
  on_shares(threads, times, count, 64, [&](int64_t begin, int64_t end) {
    int32_t sum[64] = {};
    for (int64_t i = begin; i < end; i += 64)
      for (int64_t k = 0; k < 64; ++k) sum[k] ^= in[i + k];
    sink = *std::max_element(sum, sum + 64);
  });
}

// XOR of rows of kWords words, one for each index, a multiple of 8.
template <int64_t kWords>
void gather(int threads, int64_t times, const int32_t* indices, int64_t count,
            const int32_t* table) {
  constexpr int64_t kAhead = 64;
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

// The gathers of 64 features.
extern "C" void gather_pairs(int threads, int64_t times, const int32_t* indices, int64_t count,
                             const int32_t* table) {
  gather<2>(threads, times, indices, count, table);
}

// The gathers of 128 features.
extern "C" void gather_rows(int threads, int64_t times, const int32_t* indices, int64_t count,
                            const int32_t* table) {
  gather<4>(threads, times, indices, count, table);
}

// The gathers of 256 features.
extern "C" void gather_half_lines(int threads, int64_t times, const int32_t* indices, int64_t count,
                                  const int32_t* table) {
  gather<8>(threads, times, indices, count, table);
}

// The gathers of a cache line, such as the narrow products of 41 classes behind their factor.
extern "C" void gather_lines(int threads, int64_t times, const int32_t* indices, int64_t count,
                             const int32_t* table) {
  gather<16>(threads, times, indices, count, table);
}
