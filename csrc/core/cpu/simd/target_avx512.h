// Compiles what follows for AVX-512 with VPOPCNTDQ and VNNI, until target_end.h. Include it after
// all standard headers: with compiler flags instead, their inline functions could be merged into
// code that older CPUs run.

#if defined(__clang__)
#pragma clang attribute push(                                                                   \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx512vnni,avx2," \
                          "popcnt,bmi,bmi2,f16c"))),                                            \
    apply_to = function)
#else
#pragma GCC push_options
// GCC 12 warns about its own intrinsics, which leave a masked-off operand undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx512vnni,avx2,popcnt,bmi,bmi2,f16c")
#endif
