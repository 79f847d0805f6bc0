// Packing to 8-bit rows and their products on the CPU.
#include <optional>
#include <vector>

#include "bmm/cpu/panels.h"
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "int8/arguments.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kQuantiseGrain = 1 << 16;  // features per thread, about 15 us
constexpr int64_t kProductGrain = 1 << 20;   // products per thread, about 10 us
constexpr int64_t kFinishWork = 256;         // epilogue cost per row and panel, in products
// With fewer rows than this, quantising them in every thread costs more than a separate pass.
constexpr int64_t kRowsToQuantiseInside = 96;
// Up to this many rows, building panels costs more than it saves.
constexpr int64_t kRowsInPlace = 2;

}  // namespace

void pack_int8(const Int8PackArgs& a) {
  split(a.rows, grain(a.size, kQuantiseGrain), kernels().pack_int8, a);
}

void multiply_int8(const bitgnn::Int8BmmArgs& given) {
  Int8BmmArgs a{};
  static_cast<bitgnn::Int8BmmArgs&>(a) = given;
  const int64_t rows = a.rows, pitch = int8_pitch(a.size), panels = words_for(a.out_features);
  std::optional<Tensor> codes;
  if (a.pack != nullptr && rows < kRowsToQuantiseInside) {
    codes = Backend::empty({rows, pitch}, ScalarType::Char);
    Int8PackArgs pack = *a.pack;
    pack.codes = codes->mutable_data_ptr<int8_t>();
    pack_int8(pack);
    a.codes = pack.codes;
    a.pack = nullptr;
  }
  const int64_t panel_work = pitch * kWordBits;
  std::optional<Tensor> held;
  if (rows > kRowsInPlace) {
    held = Backend::empty({panels, kernels().code_panel_bytes(pitch)}, ScalarType::Char);
    auto* to = reinterpret_cast<char*>(held->mutable_data_ptr<int8_t>());
    split(panels, grain(panel_work, kQuantiseGrain), kernels().code_panels, a.weight,
          a.out_features, pitch, to);
    a.panels = to;
  }
  std::vector<int32_t> flip;
  if (a.flip != nullptr) {
    flip = pack_flags(a.flip, a.out_features);
    a.flip_bits = flip.data();
  }
  const int64_t work = panel_work + kFinishWork, threads = torch::stable::get_num_threads();
  split_either(rows >= kRowsToQuantiseInside || panels < threads || rows >= panels, rows,
               grain(work * panels, kProductGrain), panels, grain(work * rows, kProductGrain),
               kernels().multiply_int8, a);
}

}  // namespace bitgnn::cpu
