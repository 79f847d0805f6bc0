// CPU backend: pack, unpack and the packed-row product.
#include <algorithm>
#include <vector>

#include "core/cpu/backend.h"
#include "core/cpu/panels.h"
#include "pack/binarise.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kMultiplyGrain = 1 << 18;  // word products per thread, about 6 us
constexpr int64_t kFinishWork = 64;          // epilogue cost per row and panel, in word products
constexpr int64_t kPackGrain = 1 << 18;      // features per thread, about 25 us
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

void run(const BmmArgs& args, int64_t rows) {
  const auto& table = kernels();
  const int64_t panels = words_for(args.out_features);
  // A panel costs the same whether it is full or not, plus its epilogue.
  const int64_t row_work = (words_for(args.size) * kWordBits + kFinishWork) * panels;
  const int64_t threads = torch::stable::get_num_threads();
  if (rows >= kRowsToPackInside || panels < threads || rows >= panels) {
    torch::stable::parallel_for(
        0, rows, grain(row_work, kMultiplyGrain),
        [&](int64_t begin, int64_t end) { table.bmm(args, begin, end, 0, panels); });
  } else {
    torch::stable::parallel_for(
        0, panels, grain(words_for(args.size) * kWordBits * rows, kMultiplyGrain),
        [&](int64_t begin, int64_t end) { table.bmm(args, 0, rows, begin, end); });
  }
}

}  // namespace

void pack_panels(const int32_t* w, int64_t out_features, int64_t words, bool parities,
                 int32_t* to) {
  torch::stable::parallel_for(0, words_for(out_features), grain(words * kWordBits, kMultiplyGrain),
                              [&](int64_t begin, int64_t end) {
                                kernels().pack_panels(w, out_features, words, parities, to, begin,
                                                      end);
                              });
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

void Backend::pack(const PackArgs& a, int64_t rows) const {
  const auto& table = kernels();
  torch::stable::parallel_for(0, rows, grain(a.cols, kPackGrain),
                              [&](int64_t begin, int64_t end) { table.pack(a, begin, end); });
}

void Backend::pack_standardized(const StandardizedPackArgs& a, int64_t rows) const {
  const auto& table = kernels();
  torch::stable::parallel_for(0, rows, grain(a.cols, kPackGrain), [&](int64_t begin, int64_t end) {
    table.pack_standardized(a, begin, end);
  });
}

void Backend::unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale,
                     float* out) const {
  torch::stable::parallel_for(0, rows, grain(size, kPackGrain), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      expand_bits(words + i * words_for(size), size, scale != nullptr ? scale[i] : 1.0f,
                  out + i * size);
  });
}

void Backend::multiply(const bitgnn::BmmArgs& a) const { multiply(a, nullptr, nullptr); }

void Backend::multiply_narrow(const bitgnn::BmmArgs& a, const NarrowRows& out,
                              const float* factor) const {
  multiply(a, &out, factor);
}

void Backend::multiply(const bitgnn::BmmArgs& given, const NarrowRows* out_narrow,
                       const float* narrow_factor) const {
  bitgnn::BmmArgs a = given;
  ops::Bits bits;
  // Rows are packed block by block inside the product, unless there are too few to give every
  // thread rows of its own.
  if (a.pack != nullptr && a.rows < kRowsToPackInside) {
    bits = ops::binarise(*this, *a.pack, a.rows, a.packed_scale);
    a.x = bits.words.const_data_ptr<int32_t>();
    if (a.packed_scale) a.row_scale = bits.scale->const_data_ptr<float>();
    a.packed_scale = false;
    a.pack = nullptr;
  }
  const int64_t words = words_for(a.size);
  const bool parities = words >= kernels().parity_words;
  const bool few = out_narrow != nullptr && out_narrow->half_bytes == 4;
  const bool in_place = a.rows <= kRowsInPlace && out_narrow == nullptr;
  std::vector<uint64_t> few_panel;
  ops::OptionalTensor panels;
  if (few) {
    few_panel = pack_few(a.w, a.out_features, words);
  } else if (!in_place) {
    panels = empty({words_for(a.out_features), words, kWordBits}, ScalarType::Int);
    pack_panels(a.w, a.out_features, words, parities, panels->mutable_data_ptr<int32_t>());
  }
  std::vector<int32_t> flip;
  if (a.flip != nullptr) flip = pack_flags(a.flip, a.out_features);
  BmmArgs args{};
  args.x = a.x;
  args.pack = a.pack;
  if (few) {
    args.few_panel = few_panel.data();
  } else if (in_place) {
    args.w = a.w;
  } else {
    args.panels = panels->const_data_ptr<int32_t>();
  }
  args.parities = parities;
  args.size = a.size;
  args.out_features = a.out_features;
  args.row_scale = a.row_scale;
  args.packed_scale = a.packed_scale;
  args.out_scale = a.out_scale;
  args.bias = a.bias;
  args.addend = a.addend;
  args.threshold = a.threshold;
  args.flip = a.flip != nullptr ? flip.data() : nullptr;
  args.out_float = a.out_float;
  args.out_int = a.out_int;
  args.out_bits = a.out_bits;
  args.out_narrow = out_narrow;
  args.narrow_factor = narrow_factor;
  run(args, a.rows);
}

}  // namespace bitgnn::cpu
