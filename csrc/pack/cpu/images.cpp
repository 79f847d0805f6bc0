// Packs images and their patches on the CPU.
#include <algorithm>
#include <vector>

#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "pack/arguments.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kImageGrain = 1 << 18;  // features per thread, about 25 us
constexpr int64_t kPatchGrain = 1 << 15;  // words read per thread

}  // namespace

void pack_patches(const PatchArgs& a) {
  const int64_t words = a.frame() + 2 * (a.reach() + 1) * a.out_width;
  split(a.images * a.out_height, grain(a.out_width * a.kernel_height * a.channels, kPatchGrain),
        [&](int64_t begin, int64_t end) {
          std::vector<uint32_t> scratch(static_cast<size_t>(words));
          std::vector<int64_t> held(static_cast<size_t>(a.reach()));
          kernels().pack_patches(a, scratch.data(), held.data(), begin, end);
        });
}

void pack_images(const ImagePackArgs& a) {
  const int64_t blocks = a.images * ((a.pixels + kImageBlock - 1) / kImageBlock);
  split(blocks, grain(a.channels * std::min(a.pixels, kImageBlock), kImageGrain),
        kernels().pack_images, a);
}

}  // namespace bitgnn::cpu
