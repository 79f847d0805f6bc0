// Compiles what follows for AVX2, until target_end.h. Include it after all standard headers: with
// compiler flags instead, their inline functions could be merged into code that older CPUs run.

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,popcnt,bmi,bmi2,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,popcnt,bmi,bmi2,f16c")
#endif
