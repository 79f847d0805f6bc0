// Launches sums of packed neighbours plus a product of packed rows: in two kernels with one-byte
// counts in between if rows are short, in one kernel if the weights fit in shared memory, otherwise
// in two kernels with float sums in between.
#include "bmm/arguments.h"
#include "bspmm/arguments.h"
#include "pairs/arguments.h"
#include "pairs/cuda/joint/one_launch.cuh"

#include <type_traits>

#include "bspmm/cuda/sliced.cuh"
#include "core/cuda/variants.h"
#include "pairs/cuda/joint/staged_product.cuh"
#include "pairs/cuda/joint/staged_sums.cuh"

namespace bitgnn::cuda::pairs {
namespace {

using FewEach = bspmm::ShortRows<16, 5, 4, 256, 3>;
// Counting of rows that two lanes share, each with half of the neighbours or of the words.
using StagedHalves = bspmm::ShortRows<15, 4, 4, 256, 3>;
using StagedWhole = bspmm::ShortRows<31, 5, 4, 256, 3>;
constexpr int kStagedLanes = 2;
constexpr int64_t kStagedMostRows = 1 << 28;  // row tiles are counted in 32 bits
constexpr int64_t kStagedMostFeatures = bmm::kStationaryMostSteps * kMmaWords * kWordBits;

constexpr int64_t kLeastRows = 1 << 15;
constexpr int64_t kFewNeighbours = 16;    // mean degree up to which two lanes share a row
constexpr int64_t kSomeNeighbours = 64;   // up to which eight do; beyond, two launches
constexpr size_t kStaticBytes = 6 << 10;  // the kernel's shared memory outside its plan

template <int kColumns>
using SlicedShape = JoinShape<bspmm::SlotRows, FewEach, 1, 2, kColumns, 0>;

// True if one kernel can do it: needs 1-bit products on tensor cores and enough shared memory.
bool suits_join(const BmmArgs& p, const Context& context) {
  if (!context.device.has_bit_products()) return false;
  // With few rows, a warp's 16 rows leave multiprocessors idle: two launches share the work better.
  if (p.rows < kLeastRows || !is_aligned(p.x, 16) || !is_aligned(p.out_bits, 8)) return false;
  // What the largest blocks need.
  const JoinPlan plan = plan_join<SlicedShape<8>, FewEach::kThreads>(p);
  return plan.bytes + kStaticBytes <= static_cast<size_t>(context.device.shared_bytes);
}

// True if the neighbours' rows consist of whole accesses of the kernel for their word count.
bool reads_whole(const AggregateArgs& a) {
  const int64_t words = words_for(a.features), access = words <= 2 ? 2 : 4;
  return words % access == 0 && a.x_stride % access == 0 &&
         is_aligned(a.x, static_cast<size_t>(access) * sizeof(int32_t));
}

// Float sums in scratch memory, then the product with them as its addend.
template <class Aggregate>
cudaError_t run_apart(const AggregateArgs& given, const BmmArgs& product, const Context& context,
                      const Aggregate& aggregate) {
  AggregateArgs a = given;
  a.out_bits = nullptr;
  a.threshold = nullptr;
  a.out_float = static_cast<float*>(context.workspace.take(a.rows * a.features * sizeof(float)));
  const cudaError_t status = aggregate(a);
  if (status != cudaSuccess) return status;
  BmmArgs p = product;
  p.addend = a.out_float;
  return bmm::bmm(p, context);
}

// True if one-byte counts can be passed between two kernels: short rows on average, packed rows a
// multiple of 16 bytes.
bool suits_staged(const AggregateArgs& a, const BmmArgs& p) {
  return a.edges <= kFewNeighbours * a.rows && p.rows < kStagedMostRows &&
         p.size <= kStagedMostFeatures && words_for(p.size) % bmm::kShortGroup == 0 &&
         is_aligned(p.w, 16);
}

template <int kSteps>
cudaError_t launch_staged_product(const StagedProduct& d, const Context& context) {
  return d.product.bias != nullptr ? launch_bmm_staged<kSteps, true>(d, context)
                                   : launch_bmm_staged<kSteps, false>(d, context);
}

template <int kWords, int kColumns>
cudaError_t launch_staged(const AggregateArgs& a, const BmmArgs& p, const Context& context) {
  using Lanes = bspmm::RowLanes<kWords, kStagedLanes / kColumns, kColumns>;
  using Short = std::conditional_t<kColumns == 1, StagedHalves, StagedWhole>;
  const size_t counts_bytes = StagedCounts::counts_bytes(a.rows, words_for(a.features));
  const StagedCounts staged{
      static_cast<uint4*>(context.workspace.take(counts_bytes)),
      static_cast<StagedRow*>(context.workspace.take(StagedCounts::rows_bytes(a.rows)))};
  const cudaError_t status =
      launch_aggregate_staged<Short, Lanes>(StagedSums{a, p, staged, 0}, context);
  if (status != cudaSuccess) return status;
  const StagedProduct d = staged_product(p, a.bias, staged);
  return p.size <= kMmaWords * kWordBits ? launch_staged_product<1>(d, context)
                                         : launch_staged_product<2>(d, context);
}

template <int kWords, int kColumns>
cudaError_t launch(const AggregateArgs& a, const BmmArgs& p, const Context& context) {
  // Counts of short rows fit in a byte; there, longer rows are hubs.
  constexpr int kByte = 8;
  if (takes("pairs/joint/staged_sums", suits_staged(a, p)))
    return launch_staged<kWords, kColumns>(a, p, context);
  const bspmm::CsrRows source{a};
  if (a.edges <= kFewNeighbours * a.rows)
    return launch_join<JoinShape<bspmm::CsrRows, FewEach, kWords, 2, kColumns, kByte>, FewEach>(
        source, a, p, context);
  return launch_join<JoinShape<bspmm::CsrRows, FewEach, kWords, 8, kColumns, kByte>, FewEach>(
      source, a, p, context);
}

}  // namespace

cudaError_t aggregate_product(const AggregateArgs& a, const BmmArgs& p, const Context& context) {
  if (a.rows == 0 || a.features == 0) return cudaSuccess;
  if (!takes("pairs/joint/one_launch",
             suits_join(p, context) && reads_whole(a) && a.edges <= kSomeNeighbours * a.rows))
    return run_apart(a, p, context, [&](const AggregateArgs& sums) {
      return bspmm::aggregate_bits(sums, context);
    });
  const int64_t words = words_for(a.features);
  if (words <= 2) return launch<2, 1>(a, p, context);
  if (words <= 4) return launch<4, 1>(a, p, context);
  return launch<4, 2>(a, p, context);
}

cudaError_t aggregate_product_sliced(const SlicedArgs& args, const BmmArgs& p,
                                     const Context& context) {
  if (args.csr.rows == 0 || args.csr.features == 0) return cudaSuccess;
  if (!takes("pairs/joint/one_launch", suits_join(p, context)))
    return run_apart(args.csr, p, context, [&](const AggregateArgs& sums) {
      SlicedArgs sliced = args;
      sliced.csr = sums;
      return bspmm::aggregate_sliced(sliced, context);
    });
  const uint32_t* partials = nullptr;
  const cudaError_t status = bspmm::count_slice_items(args, context, partials);
  if (status != cudaSuccess) return status;
  const bspmm::SlotRows source{args, partials};
  if (words_for(args.csr.features) <= 4)
    return launch_join<SlicedShape<4>, FewEach>(source, args.csr, p, context);
  return launch_join<SlicedShape<8>, FewEach>(source, args.csr, p, context);
}

}  // namespace bitgnn::cuda::pairs
