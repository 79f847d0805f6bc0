// Inline-assembly operand lists of wgmma sums: every register by name and constraint.
#pragma once

// "%0, %1, ...": the first operands.
#define BITGNN_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define BITGNN_NAMES_32 \
  BITGNN_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define BITGNN_NAMES_48 \
  BITGNN_NAMES_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define BITGNN_NAMES_64 \
  BITGNN_NAMES_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define BITGNN_NAMES_72 BITGNN_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define BITGNN_NAMES_128                                                             \
  BITGNN_NAMES_72                                                                    \
  ", %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87" \
  ", %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102"   \
  ", %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115"   \
  ", %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Read-write constraints of elements i to i + 7 of d, and of its first elements.
#define BITGNN_EIGHT_SUMS(d, i)                                                                 \
  "+r"((d)[i]), "+r"((d)[(i) + 1]), "+r"((d)[(i) + 2]), "+r"((d)[(i) + 3]), "+r"((d)[(i) + 4]), \
      "+r"((d)[(i) + 5]), "+r"((d)[(i) + 6]), "+r"((d)[(i) + 7])
#define BITGNN_SUMS_16(d) BITGNN_EIGHT_SUMS(d, 0), BITGNN_EIGHT_SUMS(d, 8)
#define BITGNN_SUMS_32(d) BITGNN_SUMS_16(d), BITGNN_EIGHT_SUMS(d, 16), BITGNN_EIGHT_SUMS(d, 24)
#define BITGNN_SUMS_48(d) BITGNN_SUMS_32(d), BITGNN_EIGHT_SUMS(d, 32), BITGNN_EIGHT_SUMS(d, 40)
#define BITGNN_SUMS_64(d) BITGNN_SUMS_48(d), BITGNN_EIGHT_SUMS(d, 48), BITGNN_EIGHT_SUMS(d, 56)
#define BITGNN_SUMS_72(d) BITGNN_SUMS_64(d), BITGNN_EIGHT_SUMS(d, 64)
#define BITGNN_SUMS_128(d)                                                                         \
  BITGNN_SUMS_72(d), BITGNN_EIGHT_SUMS(d, 72), BITGNN_EIGHT_SUMS(d, 80), BITGNN_EIGHT_SUMS(d, 88), \
      BITGNN_EIGHT_SUMS(d, 96), BITGNN_EIGHT_SUMS(d, 104), BITGNN_EIGHT_SUMS(d, 112),              \
      BITGNN_EIGHT_SUMS(d, 120)
