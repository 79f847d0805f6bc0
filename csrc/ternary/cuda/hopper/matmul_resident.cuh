// Hopper products of packed ternary rows with ternary or boolean rows of at most 2048 values, with
// 16-bit results: all of a block's operands are in shared memory and its rows also in registers;
// each of two warpgroups computes 64 rows by 64 columns per pass and stores them during the next.
// Each set of products counts dot + set bits of the column:
//   boolean columns a:        p1 & a, ~n1 & a (transposed result);
//   ternary columns (p2, n2): p1 & p2, ~n1 & p2, n1 & n2, ~p1 & n2.
// Three products of p, n and p | n would suffice, but measured no faster: shared memory then binds.
// Bound by the tensor cores, 15 000 TOPS, and by storing results at 4.3 TB/s (2048^3: 2 us).
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/box_copy.cuh"
#include "ternary/cuda/hopper/matmul_resident_products.cuh"
#include "ternary/cuda/hopper/matmul_store.cuh"

namespace bitgnn::cuda::ternary {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Destination of a warpgroup's results.
struct PassTarget {
  const CUtensorMap& map;
  float scale;
  int row, column, batch;  // of the warpgroup's first result, in the kernel's rows and columns
};

template <class Form>
__device__ __forceinline__ void store_pass(PassShared<Form>& shared, const PassTarget& to,
                                           const int32_t (&sum)[kStagedSums], int pass, int group,
                                           int warp, int lane) {
  const uint32_t stage = shared_address(shared.staged[group][pass % 2]);
  const int32_t* terms = shared.terms + kStagedColumns * pass;
  const int column = to.column + kStagedColumns * pass;
  const bool stores = lane == 0 && (!Form::kBoolean || warp == 0);
  const auto sync = [&] {
    if constexpr (Form::kBoolean)
      group_sync(2 + group, 128);  // all four warps contribute to each row of the result
    else
      __syncwarp();
  };
  if (pass >= 2) {
    if (stores) store_wait_read<1>();
    sync();
  }
  stage_sums<typename Form::T, Form::kBoolean>(stage, sum, terms, to.scale, warp, lane);
  wgmma_write_fence();
  sync();
  if (!stores) return;
  if constexpr (Form::kBoolean)
    store_box(to.map, stage, {to.row, column, to.batch, 0, 0});
  else
    store_box(to.map, stage + warp * 16 * 128, {column, to.row + warp * 16, to.batch, 0, 0});
  store_commit();
}

template <class Form>
__device__ __forceinline__ void multiply_passes(PassShared<Form>& shared, const PassTarget& target,
                                                int group, int warp, int lane) {
  PassProducts<Form> products{shared, {}};
  int32_t sum[2][kStagedSums];
#pragma unroll
  for (int chunk = 0; chunk < Form::kChunks; ++chunk) {
    products.wait(0, chunk);
    products.take(chunk, group * 64 + warp * 16, lane);
    if (Form::kProducts == 4 && chunk > 0) wgmma_wait<0>();
    products.multiply(sum[0], 0, chunk);
  }
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    int32_t (&own)[kStagedSums] = sum[pass % 2];
    int32_t (&next)[kStagedSums] = sum[(pass + 1) % 2];
    if constexpr (Form::kProducts == 4) {
      // Registers hold the complements of only one chunk at a time.
      if (pass > 0) {
        products.wait(pass, 0);
        products.multiply(own, pass, 0);
        store_pass(shared, target, next, pass - 1, group, warp, lane);
#pragma unroll
        for (int chunk = 1; chunk < Form::kChunks; ++chunk) {
          products.wait(pass, chunk);
          wgmma_wait<0>();
          products.multiply(own, pass, chunk);
        }
      }
      wgmma_wait<0>();
      settle_sums(own);
      if (pass == kPasses - 1) store_pass(shared, target, own, pass, group, warp, lane);
    } else {
      if (pass + 1 < kPasses) {
#pragma unroll
        for (int chunk = 0; chunk < Form::kChunks; ++chunk) products.wait(pass + 1, chunk);
#pragma unroll
        for (int chunk = 0; chunk < Form::kChunks; ++chunk)
          products.multiply(next, pass + 1, chunk);
        wgmma_wait<Form::kChunks>();
      } else {
        wgmma_wait<0>();
      }
      settle_sums(own);
      store_pass(shared, target, own, pass, group, warp, lane);
    }
  }
  if (lane == 0) store_wait_read<0>();
}

#endif

template <class Form>
__global__ void __launch_bounds__(kPassThreads, 1)
    ternary_passes_kernel(const __grid_constant__ PlanesPlan plan,
                          const __grid_constant__ CUtensorMap row_map,
                          const __grid_constant__ CUtensorMap column_map,
                          const __grid_constant__ CUtensorMap out_map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kProducerRegisters = 40;
  constexpr int kConsumerRegisters = 232;
  using Shared = PassShared<Form>;
  extern __shared__ unsigned char raw[];
  auto& shared =
      *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t{1023});
  let_next_start();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    prefetch_map(row_map);
    prefetch_map(column_map);
    for (int pass = 0; pass < kPasses; ++pass) {
      for (int chunk = 0; chunk < Form::kChunks; ++chunk)
        barrier_init(shared_address(&shared.full[pass][chunk]), 1);
    }
    barrier_init_fence();
  }
  __syncthreads();
  const int tiles = plan.row_tiles * plan.column_tiles;
  const int batch = static_cast<int>(blockIdx.x) / tiles;
  const int inside = static_cast<int>(blockIdx.x) - batch * tiles;
  const int row = inside % plan.row_tiles * kPassRows;
  const int column = inside / plan.row_tiles * kPassColumns;
  const int batch1 = batch % static_cast<int>(plan.batches1);
  const int batch0 = batch / static_cast<int>(plan.batches1);
  wait_for_previous();

  if (thread < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kProducerRegisters));
    if (thread == 0) {
      copy_pass_operands(shared, row_map, column_map, row, column, batch1, batch0);
      prefetch_map(out_map);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kConsumerRegisters));
    const int group = thread / 128 - 1;
    {
      const int local = thread - 128;
      static_assert(kPassColumns == kPassThreads - 128, "a count a thread");
      const int32_t* counts = plan.counts + batch0 * plan.counts_batch_strides[0] +
                              batch1 * plan.counts_batch_strides[1];
      const bool exists = column + local < plan.columns;
      shared.terms[local] =
          kCountedFrom -
          (exists ? load_in_place(counts + (column + local) * plan.counts_stride) : 0);
      group_sync(1, 256);
    }
    const PassTarget target{out_map, product_scale(plan.scale, plan.y_scale), row + group * 64,
                            column, batch};
    multiply_passes<Form>(shared, target, group, thread / kWarp % 4, thread % kWarp);
  }
#endif
}

}  // namespace bitgnn::cuda::ternary
