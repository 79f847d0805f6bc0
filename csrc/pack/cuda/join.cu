// ADD and CONCAT on CUDA.
#include "pack/arguments.h"
#include "pack/cuda/join.cuh"

#include "pack/cuda/pack.cuh"

namespace bitgnn::cuda::pack {
namespace {

// Packing arguments for the values that a join computes.
PackArgs pack_args(const JoinArgs& args, int64_t size) {
  PackArgs packing{};
  packing.cols = size;
  packing.threshold = args.threshold;
  packing.words = args.out_bits;
  return packing;
}

template <class Word>
void launch_or(const JoinArgs& args, int64_t count, const Context& context) {
  const int64_t blocks =
      std::min(ceil_div(count, kFlatThreads), int64_t{context.device.sm_count} * 2 * kFlatBlocks);
  or_kernel<<<static_cast<unsigned>(blocks), kFlatThreads, 0, context.stream>>>(
      reinterpret_cast<const Word*>(args.a_bits), reinterpret_cast<const Word*>(args.b_bits), count,
      reinterpret_cast<Word*>(args.out_bits));
}

cudaError_t or_words(const JoinArgs& args, int64_t count, const Context& context) {
  if (count % 4 == 0 && is_aligned(args.a_bits) && is_aligned(args.b_bits) &&
      is_aligned(args.out_bits))
    launch_or<int4>(args, count / 4, context);
  else
    launch_or<int32_t>(args, count, context);
  return cudaGetLastError();
}

cudaError_t add_bits(const JoinArgs& args, const ExpandedBits& a, const ExpandedBits& b,
                     const Context& context) {
  const int64_t size = args.a_size, words = words_for(size);
  const bool scaled = args.a_scale != nullptr || args.b_scale != nullptr;
  if (args.threshold == nullptr && !scaled) return or_words(args, args.rows * words, context);
  unsigned blocks = 0;
  const FlatRange range = flat_range(args.rows, words, 1, context, blocks);
  if (!scaled && words <= kMaxTabledWords)
    add_bits_kernel<<<blocks, kFlatThreads, 0, context.stream>>>(
        args.a_bits, args.b_bits, range, size, args.threshold, args.out_bits);
  else
    add_compared_bits_kernel<<<blocks, kFlatThreads, 0, context.stream>>>(
        a, b, range, size, args.threshold, args.out_bits);
  return cudaGetLastError();
}

}  // namespace

cudaError_t add(const JoinArgs& args, const Context& context) {
  const int64_t size = args.a_size, words = words_for(size);
  if (args.rows == 0 || size == 0) return cudaSuccess;
  if (!args.packed)
    return launch_pack(AddedRows{args.a_float, args.b_float, size}, pack_args(args, size),
                       args.rows, context);
  const ExpandedBits a{args.a_bits, args.a_scale, words}, b{args.b_bits, args.b_scale, words};
  if (args.out_float != nullptr)
    return launch_expand(AddedBits{a, b}, args.rows, size, size, args.out_float, context);
  return add_bits(args, a, b, context);
}

cudaError_t concat(const JoinArgs& args, const Context& context) {
  const int64_t size = args.a_size + args.b_size;
  if (args.rows == 0 || size == 0) return cudaSuccess;
  if (!args.packed)
    return launch_pack(JoinedRows{args.a_float, args.b_float, args.a_size, args.b_size},
                       pack_args(args, size), args.rows, context);
  if (args.out_float != nullptr) {
    const ExpandedBits a{args.a_bits, args.a_scale, words_for(args.a_size)};
    const ExpandedBits b{args.b_bits, args.b_scale, words_for(args.b_size)};
    return launch_expand(JoinedBits{a, b, static_cast<uint32_t>(args.a_size)}, args.rows, size,
                         args.a_size, args.out_float, context);
  }
  unsigned blocks = 0;
  const FlatRange range = flat_range(args.rows, words_for(size), 1, context, blocks);
  concat_bits_kernel<<<blocks, kFlatThreads, 0, context.stream>>>(
      args.a_bits, args.b_bits, args.a_size, args.b_size, range, args.out_bits);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::pack
