// Products of rows whose words are mostly zero, such as packed bags of words: lists the nonzero
// words and multiplies only those. dot = K - 2 |x| - 2 |w| + 4 |x & w|, where a weight word w is
// the XOR of two running parities. Included once per capability, with BITGNN_ISA naming the
// namespace of its primitives.

#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

class ListedProducts {
 public:
  ListedProducts(const BmmArgs& args, int64_t row_words, int64_t panel_begin, int64_t panel_end)
      : a_(args), words_(row_words), panel_begin_(panel_begin), panel_end_(panel_end) {}

  // True if the rows have few enough nonzero words for listing to pay off.
  bool pays(const int32_t* x, int64_t rows) const {
    int32_t held = 0;
    for (int64_t i = 0; i < rows * words_; ++i) held += x[i] != 0;
    return held * kListedCost <= rows * words_;
  }

  // True once any rows have been multiplied.
  bool began() const { return places_ != nullptr; }

  // Calls emit(r, panel, dots) for each row and panel.
  template <class Emit>
  void multiply(const int32_t* x, int64_t rows, const Emit& emit) {
    if (places_ == nullptr) prepare();
    for (int64_t r = 0; r < rows; ++r, x += words_) {
      const int64_t count = list_words(x, words_, places_.get());
      int32_t set = 0;
      for (int64_t k = 0; k < count; ++k)
        set += static_cast<int32_t>(popcount(static_cast<uint32_t>(x[places_[k]])));
      for (int64_t p = panel_begin_; p < panel_end_; ++p)
        emit(r, p, listed_dots(x, places_.get(), count, panel(p), base(p), -2 * set));
    }
  }

 private:
  int32_t* panel(int64_t p) {
    return &panels_[static_cast<size_t>((p - panel_begin_) * words_ * kWordBits)];
  }
  int32_t* base(int64_t p) { return &base_[static_cast<size_t>((p - panel_begin_) * kWordBits)]; }

  // Recovers the weight words from their running parities, and computes K - 2 |w| of every output:
  // listed_dots of a row of ones is 4 |w|.
  void prepare() {
    const int64_t panels = panel_end_ - panel_begin_, lanes = words_ * kWordBits;
    places_.reset(new int32_t[static_cast<size_t>(words_)]);
    panels_.reset(new int32_t[static_cast<size_t>(panels * lanes)]);
    base_.reset(new int32_t[static_cast<size_t>(panels * kWordBits)]());
    const std::unique_ptr<int32_t[]> ones(new int32_t[static_cast<size_t>(words_)]);
    for (int64_t w = 0; w < words_; ++w) {
      places_[static_cast<size_t>(w)] = static_cast<int32_t>(w);
      ones[static_cast<size_t>(w)] = -1;
    }
    for (int64_t p = panel_begin_; p < panel_end_; ++p) {
      const int32_t* parities = a_.panels + p * lanes;
      for (int64_t k = 0; k < lanes; ++k)
        panel(p)[k] = k < kWordBits ? parities[k] : parities[k] ^ parities[k - kWordBits];
      store_ints(base(p), listed_dots(ones.get(), places_.get(), words_, panel(p), base(p), 0));
      for (int64_t l = 0; l < kWordBits; ++l)
        base(p)[l] = static_cast<int32_t>(a_.size) - base(p)[l] / 2;
    }
  }

  const BmmArgs& a_;
  int64_t words_, panel_begin_, panel_end_;
  std::unique_ptr<int32_t[]> places_, panels_, base_;
};

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
