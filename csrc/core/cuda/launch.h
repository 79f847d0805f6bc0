// What the CUDA kernels offer to the operators: plain pointers and sizes, no torch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/arguments.h"

namespace bitgnn::cuda {

// What a launch needs to know of the device it runs on.
struct Device {
  int capability;       // 10 * major + minor
  int sm_count;         // multiprocessors
  int shared_bytes;     // shared memory a block may ask for
  int64_t cache_bytes;  // second-level cache
};

// Scratch memory in the stream's order, from the caller's allocator; never fails with null.
class Workspace {
 public:
  virtual void* take(size_t bytes) = 0;

 protected:
  ~Workspace() = default;
};

struct Context {
  const Device& device;
  cudaStream_t stream;
  Workspace& workspace;
};

// Packs `rows` rows; see PackArgs.
cudaError_t pack(const PackArgs& args, int64_t rows, const Context& context);

// Packs `rows` rows; see StandardizedPackArgs.
cudaError_t pack_standardized(const StandardizedPackArgs& args, int64_t rows,
                              const Context& context);

// out[i, k] = scale[i] where bit k of row i is set, else -scale[i]; 1 without a scale.
cudaError_t unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale, float* out,
                   const Context& context);

// See BmmArgs.
cudaError_t bmm(const BmmArgs& args, const Context& context);

// x_type kBits and no values: bit-sliced counts.
cudaError_t aggregate_bits(const AggregateArgs& args, const Context& context);
// Every other combination: float32 sums in edge order, or int32 sums of integer rows.
cudaError_t aggregate_dense(const AggregateArgs& args, const Context& context);
// The layouts of FrdcArgs and BlockedArgs; x holds bits.
cudaError_t aggregate_frdc(const FrdcArgs& args, const Context& context);
cudaError_t aggregate_blocked(const BlockedArgs& args, const Context& context);

// Column slices kept in shared memory.
cudaError_t aggregate_sliced(const SlicedArgs& args, const Context& context);

// Bits of the sum of an aggregation of bits (its row_scale and bias act, its outputs do not) and a
// product without addend, whose comparison and output count.
cudaError_t aggregate_product(const AggregateArgs& sums, const BmmArgs& product,
                              const Context& context);
cudaError_t aggregate_product_sliced(const SlicedArgs& sums, const BmmArgs& product,
                                     const Context& context);

// See BitsLinearArgs.
cudaError_t bits_linear(const BitsLinearArgs& args, const Context& context);

// See SlotSumsArgs.
cudaError_t aggregate_slots(const SlotSumsArgs& args, const Context& context);

// Element-wise; see JoinArgs.
cudaError_t add(const JoinArgs& args, const Context& context);
cudaError_t concat(const JoinArgs& args, const Context& context);

}  // namespace bitgnn::cuda
