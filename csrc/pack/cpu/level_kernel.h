// Thermometer bits: one compare of a feature with up to 16 of its thresholds at a time. Included
// once per CPU capability, after pack_kernel.h; BITGNN_ISA names the namespace of its primitives.

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Packs R rows: each group's thresholds are loaded once, and no row waits for another.
template <int R>
void pack_level_rows(const LevelGroups& a, const float* const (&rows)[R], int32_t* out) {
  const int64_t words = words_for(a.size);
  uint64_t filled[R] = {};  // bits of a row not yet written, from the lowest on
  int count = 0;
  int64_t word = 0;
  for (int64_t g = 0; g < a.count; ++g) {
    const LevelGroup& group = a.groups[g];
    const HalfLanes thresholds = load_half(group.thresholds, kGroupLevels);
    for (int r = 0; r < R; ++r)
      filled[r] |= static_cast<uint64_t>(ge_mask(half_lanes(rows[r][group.column]), thresholds))
                   << count;
    count += group.levels;
    if (count < kWordBits) continue;
    for (int r = 0; r < R; ++r) {
      out[r * words + word] = static_cast<int32_t>(filled[r]);
      filled[r] >>= kWordBits;
    }
    count -= kWordBits;
    ++word;
  }
  if (count > 0)
    for (int r = 0; r < R; ++r) out[r * words + word] = static_cast<int32_t>(filled[r]);
}

// Uses float32 rows in place and converts others, which moves no value across a threshold.
template <class T, int R>
void pack_typed_levels(const LevelGroups& a, int64_t row, float* converted) {
  const T* x = static_cast<const T*>(a.x) + row * a.row_stride;
  const float* rows[R];
  for (int r = 0; r < R; ++r) {
    if constexpr (std::is_same_v<T, float>) {
      rows[r] = x + r * a.row_stride;
    } else {
      convert(x + r * a.row_stride, a.features, converted + r * a.features);
      rows[r] = converted + r * a.features;
    }
  }
  pack_level_rows<R>(a, rows, a.words + row * words_for(a.size));
}

template <class T>
void pack_levels_of(const LevelGroups& a, int64_t begin, int64_t end) {
  constexpr int kRows = 4;
  const int64_t held = std::is_same_v<T, float> ? 0 : kRows * a.features;
  const std::unique_ptr<float[]> converted(held > 0 ? new float[static_cast<size_t>(held)]
                                                    : nullptr);
  for (; begin + kRows <= end; begin += kRows)
    pack_typed_levels<T, kRows>(a, begin, converted.get());
  for (; begin < end; ++begin) pack_typed_levels<T, 1>(a, begin, converted.get());
}

// Compares in double: rounding to float could move a value across a threshold.
void pack_double_levels(const LevelGroups& a, int64_t begin, int64_t end) {
  const int64_t words = words_for(a.size);
  for (int64_t i = begin; i < end; ++i) {
    const double* x = static_cast<const double*>(a.x) + i * a.row_stride;
    int64_t bit = 0;
    uint32_t word = 0;
    for (int64_t g = 0; g < a.count; ++g) {
      const LevelGroup& group = a.groups[g];
      for (int t = 0; t < group.levels; ++t, ++bit) {
        const bool set = x[group.column] >= static_cast<double>(group.thresholds[t]);
        word |= static_cast<uint32_t>(set) << (bit % kWordBits);
        if (bit % kWordBits < kWordBits - 1) continue;
        a.words[i * words + bit / kWordBits] = static_cast<int32_t>(word);
        word = 0;
      }
    }
    if (bit % kWordBits > 0) a.words[i * words + bit / kWordBits] = static_cast<int32_t>(word);
  }
}

void pack_levels(const LevelGroups& a, int64_t begin, int64_t end) {
  with_float_type(a.type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, double>)
      pack_double_levels(a, begin, end);
    else
      pack_levels_of<T>(a, begin, end);
  });
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
