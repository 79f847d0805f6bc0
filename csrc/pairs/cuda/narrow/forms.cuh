// Chooses the form of narrow rows for a product: the fewest bytes that hold its features.
#pragma once

#include "pairs/cuda/narrow/table.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kMostLanes = 4;

template <class Row_>
struct RowForm {
  using Row = Row_;
};

// Calls f with the first form of the list that holds products of `size` and, unless it is one of
// the widest, which are used in chunks, rows of `features`; else with the last form.
template <class Form, class... Forms, class F>
auto with_first_form(int64_t size, int64_t features, const F& f) {
  if constexpr (sizeof...(Forms) > 0) {
    const bool fits = Form::kLanes == kMostLanes || features <= Form::kFeatures;
    if (size > Form::Elements::kMostFeatures || !fits)
      return with_first_form<Forms...>(size, features, f);
  }
  return f(RowForm<Form>());
}

// Forms with factors, by the bytes per gather.
template <class F>
auto with_factored_form(int64_t size, int64_t features, const F& f) {
  constexpr FactorPlace kEach = FactorPlace::kEach;
  return with_first_form<
      NarrowRow<ByteElements, 2, 1, kEach, 4>, NarrowRow<ByteElements, 4, 1, kEach, 8>,
      NarrowRow<TenBitElements, 4, 1, kEach, 8>, NarrowRow<ShortElements, 4, 1, kEach, 6>,
      NarrowRow<ByteElements, 4, 2, kEach, 12>, NarrowRow<TenBitElements, 4, 2, kEach, 9>,
      NarrowRow<ByteElements, 4, 4, kEach, 12>,
      NarrowRow<TenBitElements, 4, 4, FactorPlace::kLast, 12>,
      NarrowRow<ShortElements, 4, 4, kEach, 6>>(size, features, f);
}

template <class F>
auto with_plain_form(int64_t size, int64_t features, const F& f) {
  constexpr FactorPlace kNone = FactorPlace::kNone;
  return with_first_form<
      NarrowRow<ByteElements, 2, 1, kNone, 8>, NarrowRow<TenBitElements, 4, 1, kNone, 8>,
      NarrowRow<TenBitElements, 4, 1, kNone, 12>, NarrowRow<TenBitElements, 4, 2, kNone, 12>,
      NarrowRow<TenBitElements, 4, 4, kNone, 12>, NarrowRow<ShortElements, 4, 4, kNone, 8>>(
      size, features, f);
}

template <class F>
auto with_form(int64_t size, int64_t features, bool has_factors, const F& f) {
  return has_factors ? with_factored_form(size, features, f) : with_plain_form(size, features, f);
}

}  // namespace bitgnn::cuda::pairs
