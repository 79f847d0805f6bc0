// 8-bit products on AMX; same contract as dots_wide.h. A tile register holds 16 rows of 64 bytes:
// one instruction multiplies 16 rows of 64 codes with 16 outputs. Four registers sum 32 rows times
// 32 outputs, two hold codes and two weights, so each load serves two products.
#pragma once

#include "int8/cpu/dots_avx512.h"

namespace bitgnn::cpu::amx {

using namespace avx512;

constexpr int64_t kCodeBytes = 1;
constexpr int64_t kCodeStep = 64;
constexpr int kCodeTileRows = 32;
constexpr int64_t kRegisterRows = 16;

// As _tile_loadconfig reads it.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, unused[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// Static, since GCC 12 believes that only its first bytes are read.
inline constexpr TileShapes kTileShapes;

// Words of four codes, as in the panels of dots_avx512.h but without an offset, up to whole steps.
inline void make_code_panel(const int8_t* weight, int64_t outputs, int64_t pitch, void* panel) {
  const int64_t words = pitch / 4, steps = (pitch + kCodeStep - 1) / kCodeStep;
  auto* to = static_cast<int32_t*>(panel);
  transpose_lanes(reinterpret_cast<const int32_t*>(weight), outputs, words, to);
  std::fill(to + words * kWordBits, to + steps * (kCodeStep / 4) * kWordBits, 0);
}

// Steps read beyond a row's end, where the next row's codes meet weights of 0. The rows of the last
// tile have none behind them and are copied.
class CodeRows {
 public:
  static int64_t scratch(int64_t, int64_t pitch) { return (kCodeTileRows * pitch + kCodeStep) / 4; }
  CodeRows(const int8_t* codes, int64_t rows, int64_t pitch, int32_t* scratch)
      : codes_(codes),
        pitch_(pitch),
        steps_((pitch + kCodeStep - 1) / kCodeStep),
        last_((rows - 1) / kCodeTileRows * kCodeTileRows),
        last_codes_(reinterpret_cast<int8_t*>(scratch)) {
    std::memcpy(scratch, codes + last_ * pitch, static_cast<size_t>((rows - last_) * pitch));
    _tile_loadconfig(&kTileShapes);
  }
  ~CodeRows() { _tile_release(); }
  CodeRows(const CodeRows&) = delete;
  CodeRows& operator=(const CodeRows&) = delete;

  void dots(int64_t row, int64_t, const void* panel, int32_t* to) const {
    const int8_t* x = row == last_ ? last_codes_ : codes_ + row * pitch_;
    const auto* w = static_cast<const int8_t*>(panel);
    constexpr int64_t kWordBytes = 4 * kWordBits;  // of a word of all outputs
    asm volatile("" ::: "memory");  // GCC 12 does not know that loads of tiles read memory
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = 0; step < steps_; ++step, x += kCodeStep, w += kCodeStep / 4 * kWordBytes) {
      _tile_loadd(4, x, pitch_);
      _tile_loadd(6, w, kWordBytes);
      _tile_loadd(7, w + kWordBytes / 2, kWordBytes);
      _tile_loadd(5, x + kRegisterRows * pitch_, pitch_);
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, to, kWordBytes);
    _tile_stored(1, to + kWordBits / 2, kWordBytes);
    _tile_stored(2, to + kRegisterRows * kWordBits, kWordBytes);
    _tile_stored(3, to + kRegisterRows * kWordBits + kWordBits / 2, kWordBytes);
  }

 private:
  const int8_t* codes_;
  int64_t pitch_, steps_, last_;
  int8_t* last_codes_;
};

}  // namespace bitgnn::cpu::amx
