// The product of packed rows on the CPU.
#include <vector>

#include "bmm/cpu/panels.h"
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "pack/binarise.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kMultiplyGrain = 1 << 18;  // word products per thread, about 6 us
constexpr int64_t kFinishWork = 64;          // epilogue cost per row and panel, in word products
// With fewer rows than this, repacking them in every thread costs more than a separate pass.
constexpr int64_t kRowsToPackInside = 96;
// Up to this many rows, building weight panels costs more than it saves.
constexpr int64_t kRowsInPlace = 8;

// Packs the weights of at most eight outputs as [ceil(words / 2), 8] word pairs, zero-padded. Never
// empty, since a non-null panel selects the kind of product.
std::vector<uint64_t> pack_few(const int32_t* w, int64_t out_features, int64_t words) {
  std::vector<uint64_t> panel(static_cast<size_t>((words / 2 + 1) * kFewOutputs));
  for (int64_t o = 0; o < out_features; ++o)
    for (int64_t k = 0; k < words; ++k)
      panel[static_cast<size_t>(k / 2 * kFewOutputs + o)] |=
          static_cast<uint64_t>(static_cast<uint32_t>(w[o * words + k])) << (k % 2 * kWordBits);
  return panel;
}

void run(const BmmArgs& args) {
  const int64_t rows = args.rows, panels = words_for(args.out_features);
  // A panel costs the same whether it is full or not, plus its epilogue.
  const int64_t work = words_for(args.size) * kWordBits, row_work = (work + kFinishWork) * panels;
  const int64_t threads = torch::stable::get_num_threads();
  split_either(rows >= kRowsToPackInside || panels < threads || rows >= panels, rows,
               grain(row_work, kMultiplyGrain), panels, grain(work * rows, kMultiplyGrain),
               kernels().bmm, args);
}

}  // namespace

void pack_panels(const int32_t* w, int64_t out_features, int64_t words, bool parities,
                 int32_t* to) {
  split(words_for(out_features), grain(words * kWordBits, kMultiplyGrain), kernels().pack_panels, w,
        out_features, words, parities, to);
}

std::vector<int32_t> pack_flags(const bool* flags, int64_t count) {
  std::vector<int32_t> words(static_cast<size_t>(words_for(count)));
  for (int64_t o = 0; o < count; ++o) {
    int32_t& word = words[static_cast<size_t>(o / kWordBits)];
    word = static_cast<int32_t>(static_cast<uint32_t>(word) | static_cast<uint32_t>(flags[o])
                                                                  << (o % kWordBits));
  }
  return words;
}

void multiply(const bitgnn::BmmArgs& given, const NarrowRows* out, const float* factor) {
  BmmArgs a{};
  static_cast<bitgnn::BmmArgs&>(a) = given;
  ops::Bits bits;
  // Rows are packed block by block inside the product, unless there are too few to give every
  // thread rows of its own.
  if (a.pack != nullptr && a.rows < kRowsToPackInside) {
    bits = ops::binarise(Backend{}, *a.pack, a.rows, a.packed_scale);
    a.x = bits.words.const_data_ptr<int32_t>();
    if (a.packed_scale) a.row_scale = bits.scale->const_data_ptr<float>();
    a.packed_scale = false;
    a.pack = nullptr;
  }
  const int64_t words = words_for(a.size);
  a.parities = words >= kernels().parity_words;
  const bool few = out != nullptr && out->half_bytes == 4;
  a.in_place = a.rows <= kRowsInPlace && out == nullptr;
  std::vector<uint64_t> few_panel;
  ops::OptionalTensor panels;
  if (few) {
    few_panel = pack_few(a.w, a.out_features, words);
    a.few_panel = few_panel.data();
  } else if (!a.in_place) {
    panels = Backend::empty({words_for(a.out_features), words, kWordBits}, ScalarType::Int);
    pack_panels(a.w, a.out_features, words, a.parities, panels->mutable_data_ptr<int32_t>());
    a.panels = panels->const_data_ptr<int32_t>();
  }
  std::vector<int32_t> flip;
  if (a.flip != nullptr) {
    flip = pack_flags(a.flip, a.out_features);
    a.flip_bits = flip.data();
  }
  a.out_narrow = out;
  a.narrow_factor = factor;
  run(a);
}

void bmm(const bitgnn::BmmArgs& a) { multiply(a, nullptr, nullptr); }

}  // namespace bitgnn::cpu
