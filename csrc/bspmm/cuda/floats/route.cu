// Chooses the kernel of an aggregation of dense rows, or of a weighted sum of packed rows, and
// launches it.
#include "bspmm/arguments.h"
#include "bspmm/cuda/floats/dense.cuh"

#include <type_traits>

#include "core/cuda/variants.h"

namespace bitgnn::cuda::bspmm {
namespace {

constexpr int64_t kMaxGrid = 0x7fffffff;
constexpr int64_t kMaxPitch = 0xffffffff;
constexpr int64_t kCopyUses = 8;     // mean uses of a row that repay copying it
constexpr int64_t kReusedUses = 16;  // mean uses from which the L2 cache decides
constexpr int kBatch = 8;            // 16-byte fragments in flight per lane
constexpr int kScalarBatch = 16;     // single elements in flight per lane

// Narrow groups hold more indices per lane and need more registers.
constexpr int min_blocks(int lanes) { return lanes < 8 ? 3 : 4; }

bool used(const AggregateArgs& a, int64_t uses) { return a.edges > 0 && a.edges >= uses * a.cols; }

// Launches a kernel over all chunks of features, with light and heavy blocks for each.
template <class Kernel>
cudaError_t launch_chunks(Kernel* kernel, DenseLaunch d, int64_t block_rows, int64_t chunks,
                          const Context& context) {
  const cudaError_t error = order_rows(d.a, chunks, context, &d.order);
  if (error != cudaSuccess) return error;
  const int64_t light_blocks = ceil_div(d.a.rows, block_rows);
  const int64_t most = kMaxGrid / (light_blocks + d.order.heavy_blocks);
  if (most == 0) return cudaErrorInvalidConfiguration;
  d.light_blocks = static_cast<unsigned>(light_blocks);
  d.chunk_major = used(d.a, kReusedUses);
  for (; d.first_chunk < chunks; d.first_chunk += most) {
    const int64_t left = chunks - d.first_chunk;
    d.chunks = static_cast<unsigned>(left < most ? left : most);
    const unsigned blocks = d.chunks * (d.light_blocks + d.order.heavy_blocks);
    kernel<<<blocks, kDenseThreads, 0, context.stream>>>(d);
  }
  return cudaPeekAtLastError();
}

// Gathers rows in place, as words or elements of `x_bytes`.
template <class Rows, int kLanes, int kInFlight = kBatch>
cudaError_t launch_direct(const AggregateArgs& a, int x_bytes, const Context& context) {
  using Place = Piece<Rows, kLanes>;
  const int64_t pitch_bytes = a.x_stride * x_bytes;
  if (pitch_bytes > kMaxPitch) return cudaErrorInvalidValue;
  DenseLaunch d{};
  d.a = a;
  d.table = {static_cast<const char*>(a.x), static_cast<uint32_t>(pitch_bytes), Place::kBytes};
  return launch_chunks(aggregate_dense_kernel<Rows, kLanes, kInFlight, min_blocks(kLanes)>, d,
                       kDenseThreads / Place::kSpan, ceil_div(a.features, Place::kFeatures),
                       context);
}

// A table with `chunks` aligned pieces of `lanes` fragments per row.
DenseLaunch copied(const AggregateArgs& a, int64_t chunks, int lanes, const Context& context) {
  DenseLaunch d{};
  d.a = a;
  d.padded = true;
  const int64_t chunk_bytes = a.cols * lanes * kFragmentBytes;
  d.table = {static_cast<char*>(context.workspace.take(static_cast<size_t>(chunks * chunk_bytes))),
             static_cast<uint32_t>(lanes * kFragmentBytes), static_cast<uint64_t>(chunk_bytes)};
  return d;
}

template <class Kernel>
void launch_copy(Kernel* kernel, const DenseLaunch& d, int64_t chunks, int lanes,
                 const Context& context) {
  const int64_t blocks = ceil_div(d.a.cols * chunks * lanes, kTableThreads);
  kernel<<<static_cast<unsigned>(blocks), kTableThreads, 0, context.stream>>>(
      d.a, chunks, lanes, const_cast<char*>(d.table.x));
}

template <class Element, class Rows, int kLanes>
cudaError_t launch_copied(const AggregateArgs& a, const Context& context) {
  using Place = Piece<Rows, kLanes>;
  const int64_t chunks = ceil_div(a.features, Place::kFeatures);
  const DenseLaunch d = copied(a, chunks, kLanes, context);
  launch_copy(copy_table_kernel<Element>, d, chunks, kLanes, context);
  return launch_chunks(aggregate_dense_kernel<Rows, kLanes, kBatch, min_blocks(kLanes)>, d,
                       kDenseThreads / Place::kSpan, chunks, context);
}

// One element per lane, for unaligned rows.
template <class Rows>
cudaError_t launch_scalar(const AggregateArgs& a, const Context& context) {
  constexpr int kBytes = sizeof(typename Rows::Fragment);
  if constexpr (kBytes == sizeof(float))
    if (a.features <= 4) return launch_direct<Rows, 4, kScalarBatch>(a, kBytes, context);
  if (a.features <= 8) return launch_direct<Rows, 8, kScalarBatch>(a, kBytes, context);
  return launch_direct<Rows, 32, kScalarBatch>(a, kBytes, context);
}

// 16-byte fragments, in pieces of four lanes if they hold a row, else of eight.
template <class Element, class Rows>
cudaError_t launch_fragments(const AggregateArgs& a, bool aligned, const Context& context) {
  const auto launch = [&](auto lanes) {
    constexpr int kLanes = decltype(lanes)::value;
    return aligned ? launch_direct<Rows, kLanes>(a, sizeof(Element), context)
                   : launch_copied<Element, Rows, kLanes>(a, context);
  };
  if (a.features <= 4 * Rows::kWidth) return launch(std::integral_constant<int, 4>());
  return launch(std::integral_constant<int, 8>());
}

template <class Element>
bool aligned(const AggregateArgs& a) {
  constexpr int kVector = kFragmentBytes / static_cast<int>(sizeof(Element));
  return reinterpret_cast<uintptr_t>(a.x) % kFragmentBytes == 0 && a.x_stride % kVector == 0 &&
         a.features % kVector == 0;
}

template <class Element, bool kScaled>
cudaError_t launch_scaled(const AggregateArgs& a, const Context& context) {
  constexpr int kVector = kFragmentBytes / static_cast<int>(sizeof(Element));
  if (!aligned<Element>(a) && !takes("bspmm/floats/dense, copied", used(a, kCopyUses)))
    return launch_scalar<FloatRows<Element, 1, kScaled>>(a, context);
  return launch_fragments<Element, FloatRows<Element, kVector, kScaled>>(a, aligned<Element>(a),
                                                                         context);
}

template <class Element>
cudaError_t launch_float(AggregateArgs a, const Context& context) {
  // Edge values already include any column factors.
  if (a.values != nullptr) a.col_scale = nullptr;
  if constexpr (std::is_same_v<Element, float>) {
    // The copy applies the column factors.
    if (takes("bspmm/floats/dense, scaled copy",
              a.col_scale != nullptr && used(a, aligned<float>(a) ? kReusedUses : kCopyUses)))
      return launch_fragments<float, FloatRows<float, 4, false>>(a, false, context);
  }
  return a.values != nullptr || a.col_scale != nullptr ? launch_scaled<Element, true>(a, context)
                                                       : launch_scaled<Element, false>(a, context);
}

template <class Element>
cudaError_t launch_integers(const AggregateArgs& a, const Context& context) {
  constexpr int kElements = kFragmentBytes / static_cast<int>(sizeof(Element));
  if (!takes("bspmm/floats/dense, copied", used(a, kCopyUses)))
    return launch_scalar<IntegerRows<Element, 1>>(a, context);
  return launch_fragments<Element, IntegerRows<Element, kElements>>(a, false, context);
}

cudaError_t launch_signs(const AggregateArgs& a, const Context& context) {
  if (a.features <= kWordBits) return launch_direct<SignRows, 2>(a, 4, context);
  if (a.features <= 2 * kWordBits) return launch_direct<SignRows, 4>(a, 4, context);
  return launch_direct<SignRows, 8>(a, 4, context);
}

}  // namespace

cudaError_t aggregate_dense(const AggregateArgs& a, const Context& context) {
  if (a.rows == 0 || a.features == 0) return cudaSuccess;
  switch (a.x_type) {
    case RowType::kBits:
      return launch_signs(a, context);
    case RowType::kFloat32:
      return launch_float<float>(a, context);
    case RowType::kFloat16:
      return launch_float<__half>(a, context);
    case RowType::kBFloat16:
      return launch_float<__nv_bfloat16>(a, context);
    case RowType::kInt8:
      return launch_integers<int8_t>(a, context);
    case RowType::kInt16:
      return launch_integers<int16_t>(a, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace bitgnn::cuda::bspmm
