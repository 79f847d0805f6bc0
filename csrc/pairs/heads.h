// Heads that operators apply to a model's final scores: softmax, log-softmax or classes.
#pragma once

#include <array>

#include "core/operands.h"
#include "pairs/arguments.h"

namespace bitgnn::ops {

// The head with a schema's number, checked for rows of `features` scores.
inline Head checked_head(int64_t head, int64_t features, const char* op) {
  BITGNN_CHECK(head >= 0 && head <= static_cast<int64_t>(Head::kClasses), op,
               ": head must be 0 (none), 1 (log_softmax), 2 (softmax) or 3 (classes), got ", head);
  const auto checked = static_cast<Head>(head);
  BITGNN_CHECK(checked != Head::kClasses || features > 0, op,
               ": head=3 (classes) needs at least one output feature, got none");
  return checked;
}

template <size_t N>
Tensor call_torch(const char* name, std::array<StableIValue, N> stack) {
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// Applies the head with torch's own kernel, if the operator's kernel has none.
template <class Backend>
Tensor torch_head(const Backend& backend, const Tensor& scores, Head head) {
  using torch::stable::detail::from;
  if constexpr (Backend::kIsDry) {  // the scores are not there
    if (head == Head::kClasses) return backend.empty({scores.size(0)}, ScalarType::Long);
    return backend.empty({scores.size(0), scores.size(1)}, ScalarType::Float);
  }
  constexpr int64_t kLast = -1;
  switch (head) {
    case Head::kNone:
      return scores;
    case Head::kLogSoftmax:
      return call_torch<3>("aten::_log_softmax", {from(scores), from(kLast), from(false)});
    case Head::kSoftmax:
      return call_torch<3>("aten::_softmax", {from(scores), from(kLast), from(false)});
    case Head::kClasses:
      return call_torch<3>("aten::argmax",
                           {from(scores), from(std::optional<int64_t>(kLast)), from(false)});
  }
  return scores;
}

}  // namespace bitgnn::ops
