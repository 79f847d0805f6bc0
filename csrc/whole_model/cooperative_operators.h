// Operators that run a whole model in one launch, for backends that support it; its stages are
// data.
#pragma once

#include <vector>

#include "core/operands.h"
#include "whole_model/cooperative.h"

namespace bitgnn::ops {

// Number of integers that describe a stage.
constexpr int kStageNumbers = 15;

template <class Backend>
struct CooperativeOperators {
  static constexpr const char* kName = "run_stages";

  // Checks the offset of a vector of `words` words in the image.
  static int image_part(int64_t offset, int64_t words, int64_t image_words, bool required,
                        int number, const char* what) {
    if (offset == kNoOffset && !required) return kNoOffset;
    BITGNN_CHECK(
        offset >= 0 && offset % 4 == 0 && words <= image_words && offset <= image_words - words,
        kName, ": stages must place ", what, " of stage ", number, " inside the ", image_words,
        " words of image, got ", offset);
    return static_cast<int>(offset);
  }

  static Stage stage_at(const std::vector<int64_t>& numbers, int number, int64_t image_words) {
    const int64_t* n = numbers.data() + static_cast<int64_t>(number) * kStageNumbers;
    BITGNN_CHECK(n[0] >= 0 && n[0] <= static_cast<int>(StageSource::kIntegers), kName,
                 ": stages must name a source in [0, 3], got ", n[0]);
    BITGNN_CHECK(n[1] >= 0 && n[1] <= static_cast<int>(StageOutput::kResult), kName,
                 ": stages must name an output in [0, 2], got ", n[1]);
    const bool product = n[1] != static_cast<int>(StageOutput::kResult);
    BITGNN_CHECK(n[2] >= 1 && n[2] <= kMostShortFeatures, kName, ": stages must have sizes in [1, ",
                 kMostShortFeatures, "], got ", n[2]);
    BITGNN_CHECK(n[3] >= (product ? 1 : 0) && n[3] <= (product ? kMostShortFeatures : 0), kName,
                 ": stages must have outputs in [1, ", kMostShortFeatures,
                 "], none for the result, got ", n[3]);
    Stage s{};
    s.source = static_cast<StageSource>(n[0]);
    s.output = static_cast<StageOutput>(n[1]);
    s.size = static_cast<int>(n[2]);
    s.out = static_cast<int>(n[3]);
    s.scaled = n[4] != 0;
    s.wide = n[14] != 0;
    const int64_t columns = stage_columns(s.out);
    const auto part = [&](int64_t offset, int64_t words, bool required, const char* what) {
      return image_part(offset, words, image_words, required, number, what);
    };
    s.weights = part(n[5], (columns + 1) * stage_pitch(s.size), product, "weights");
    s.terms = part(n[6], columns, product, "terms");
    s.inversions = part(n[7], words_for(columns), s.output == StageOutput::kBits, "inversions");
    s.threshold = part(n[8], s.size, false, "thresholds");
    s.gain = part(n[9], s.size, false, "gains");
    const bool measured =
        s.source == StageSource::kIntegers || (s.source == StageSource::kFloats && s.scaled);
    BITGNN_CHECK(!measured || (s.threshold == kNoOffset) == (s.gain == kNoOffset), kName,
                 ": stages must place thresholds and gains of stage ", number,
                 " together where a scale is measured, got ", n[8], " and ", n[9]);
    s.scale = part(n[10], s.size, false, "scales");
    s.bias = part(n[11], s.size, false, "biases");
    const bool compared = s.scaled && s.output == StageOutput::kBits;
    s.product_scale = part(n[12], s.out, false, "scales of the product");
    s.product_threshold = part(n[13], s.out, compared, "thresholds of the product");
    return s;
  }

  // Checks that every stage takes the output of the previous one.
  static void check_chain(const Stage* stages, int count) {
    for (int i = 0; i < count; ++i) {
      const Stage& s = stages[i];
      const bool enters = s.source == StageSource::kFloats || s.source == StageSource::kWords;
      BITGNN_CHECK(enters == (i == 0), kName,
                   ": stages must take features in the first one alone, stage ", i, " differs");
      const bool last = s.output == StageOutput::kResult;
      BITGNN_CHECK(last == (i == count - 1), kName,
                   ": stages must give the result in the last one alone, stage ", i, " differs");
      BITGNN_CHECK(!last || s.source == StageSource::kIntegers, kName,
                   ": stages must end in sums of integers");
      if (i == 0) continue;
      const bool bits = stages[i - 1].output == StageOutput::kBits;
      BITGNN_CHECK(s.source == (bits ? StageSource::kBits : StageSource::kIntegers) &&
                       s.size == stages[i - 1].out,
                   kName, ": stage ", i, " must take what stage ", i - 1, " gives");
      BITGNN_CHECK(!s.scaled || s.source == StageSource::kIntegers, kName, ": stage ", i,
                   " must not be scaled: it has bits alone");
    }
  }

  static Tensor features(const Backend& backend, const Tensor& x, const OptionalTensor& x_scale,
                         CooperativeArgs* args) {
    const Stage& first = args->stages[0];
    check_dim(x, 2, kName, "x");
    args->rows = static_cast<int>(x.size(0));
    if (first.source == StageSource::kWords) {
      BITGNN_CHECK(x_scale.has_value() == first.scaled, kName,
                   ": x_scale must be given where the first stage is scaled, and only there");
      return bit_rows(backend, x, first.size, kName, "x");
    }
    BITGNN_CHECK(!x_scale.has_value(), kName,
                 ": x_scale must be left out with float x, whose scale is measured");
    const Tensor rows = packable_rows(backend, x, kName, "x");
    check_size(rows.size(1), first.size, kName, "features of x");
    args->type = packable_type(rows, kName, "x");
    BITGNN_CHECK(args->type == FloatType::kFloat32 || args->type == FloatType::kFloat16 ||
                     args->type == FloatType::kBFloat16,
                 kName, ": x must be float32, float16, bfloat16 or packed, got ",
                 torch::headeronly::toString(rows.scalar_type()));
    args->row_stride = rows.stride(0);
    return rows;
  }

  static void check_integers(const Backend& backend, const Tensor& t, int64_t dim,
                             const char* name) {
    backend.check(t, kName, name);
    check_dtype(t, ScalarType::Int, kName, name);
    check_dim(t, dim, kName, name);
    BITGNN_CHECK(t.is_contiguous() && reinterpret_cast<uintptr_t>(t.data_ptr()) % kPieceBytes == 0,
                 kName, ": ", name, " must be contiguous and start at a multiple of ", kPieceBytes,
                 " bytes");
  }

  static Tensor run_stages(const Tensor& x_in, const OptionalTensor& x_scale, const Tensor& image,
                           const Tensor& slices, const Tensor& state, std::vector<int64_t> stages,
                           int64_t most_degree) {
    const Backend backend(x_in, kName, "x");
    check_integers(backend, image, 1, "image");
    check_integers(backend, slices, 2, "slices");
    check_integers(backend, state, 1, "state");
    const auto count = static_cast<int64_t>(stages.size()) / kStageNumbers;
    BITGNN_CHECK(stages.size() % kStageNumbers == 0 && count >= 2 && count <= kMaxStages, kName,
                 ": stages must hold ", kStageNumbers, " numbers for each of 2 to ", kMaxStages,
                 " stages, got ", stages.size());
    BITGNN_CHECK(image.size(0) % 4 == 0 && image.size(0) <= INT32_MAX / 4, kName,
                 ": image must have a multiple of 4 words, got ", image.size(0));
    CooperativeArgs args{};
    args.num_stages = static_cast<int>(count);
    for (int i = 0; i < args.num_stages; ++i) args.stages[i] = stage_at(stages, i, image.size(0));
    check_chain(args.stages, args.num_stages);
    BITGNN_CHECK(x_in.size(0) < INT32_MAX / 64, kName, ": x must have fewer rows, got ",
                 x_in.size(0));
    const Tensor x = features(backend, x_in, x_scale, &args);
    const FloatVector scale(backend, x_scale, args.rows, kName, "x_scale");
    Tensor out = backend.empty({int64_t{args.rows}, int64_t{args.stages[count - 1].size}},
                               ScalarType::Float);
    if (args.rows == 0) return out;
    const int64_t blocks = slices.size(0);
    BITGNN_CHECK(blocks >= 1 && blocks <= args.rows, kName,
                 ": slices must be for 1 to as many blocks as x has rows, got ", blocks);
    args.blocks = static_cast<int>(blocks);
    args.row_capacity = row_capacity(args.rows, args.blocks);
    const int64_t edges = slices.size(1) - slice_words(args.row_capacity, 0);
    BITGNN_CHECK(edges >= 0 && edges % 4 == 0 && edges < INT32_MAX / 4, kName,
                 ": slices must have ", slice_words(args.row_capacity, 0),
                 " words and a multiple of 4 for edges, got ", slices.size(1));
    args.edge_capacity = static_cast<int>(edges);
    BITGNN_CHECK(most_degree >= 0 && most_degree <= edges, kName, ": most_degree must be in [0, ",
                 edges, "], got ", most_degree);
    args.most_degree = static_cast<int>(most_degree);
    int64_t words = kStateHead;
    for (int i = 0; i + 1 < args.num_stages; ++i)
      words += int64_t{4} * args.rows * row_pieces(args.stages[i]);
    check_size(state.size(0), words, kName, "words of state");
    args.x = x.data_ptr();
    args.x_scale = scale.get();
    args.image = image.const_data_ptr<int32_t>();
    args.image_words = static_cast<int>(image.size(0));
    args.slices = slices.const_data_ptr<int32_t>();
    args.state = static_cast<int32_t*>(state.data_ptr());
    args.out = out.mutable_data_ptr<float>();
    backend.run_stages(args);
    return out;
  }
};

template <class Backend, class Library>
void register_cooperative(Library& m) {
  m.impl("run_stages", TORCH_BOX(&CooperativeOperators<Backend>::run_stages));
}

}  // namespace bitgnn::ops
