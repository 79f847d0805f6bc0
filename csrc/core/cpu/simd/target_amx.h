// Compiles what follows for AVX-512, as target_avx512.h does, with AMX tiles of 8-bit integers,
// until target_end.h. Include it after all standard headers.

#if defined(__clang__)
#pragma clang attribute push(                                                                   \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx512vnni,avx2," \
                          "popcnt,bmi,bmi2,f16c,amx-tile,amx-int8"))),                          \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx512vnni,avx2", \
                   "popcnt,bmi,bmi2,f16c,amx-tile,amx-int8")
#endif
