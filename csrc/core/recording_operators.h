// The operators that bind, run and drop recordings, for any backend.
#pragma once

#include <algorithm>

#include "core/recording.h"

namespace bitgnn::ops {

// Views, which recordings may hold beside our operators.
inline Tensor view(const Tensor& x, const std::vector<int64_t>& sizes) {
  return torch::stable::view(x, sizes);
}
inline Tensor unsqueeze(const Tensor& x, int64_t dim) { return torch::stable::unsqueeze(x, dim); }
inline Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> start,
                    std::optional<int64_t> end, int64_t step) {
  const int64_t size = x.size(dim), first = start.value_or(0);
  const int64_t last = std::min(end.value_or(size), size);
  BITGNN_CHECK(first >= 0 && first <= last && step == 1,
               "run_recording: slices must be [a:b] with ", "0 <= a <= b, got [", first, ":", last,
               ":", step, "]");
  Tensor whole = x;
  return torch::stable::narrow(whole, dim, first, last - first);
}

template <class Backend>
struct RecordingOperators {
  static int64_t bind(const std::vector<Tensor>& constants, const std::string& names,
                      const std::vector<int64_t>& code) {
    const Callees& callees = callees_of<Backend>();
    return recordings_of<Backend>().add(RecordingReader(code, constants).read(names, callees));
  }

  static Tensor run(const Tensor& x, const OptionalTensor& second, int64_t number) {
    const std::shared_ptr<const Recording> recording = recordings_of<Backend>().find(number);
    BITGNN_CHECK(recording != nullptr,
                 "run_recording: number must be that of a recording that was bound on ",
                 "this device and not dropped, got ", number);
    const size_t given = second.has_value() ? 2 : 1;
    BITGNN_CHECK(given >= recording->inputs,
                 "run_recording: second must be a tensor for recording ", number);
    Registers registers(recording->registers);
    if (recording->inputs > 0) registers[0] = x;
    if (recording->inputs > 1) registers[1] = second;
    for (const Call& call : recording->calls) {
      call.run(call, registers);
      for (const size_t last : call.last_reads) registers[last].reset();
    }
    return *registers[recording->result];
  }

  static void drop(const Tensor&, int64_t number) { recordings_of<Backend>().drop(number); }
};

template <class Backend, class Library>
void register_recordings(Library& m) {
  m.impl("bind_recording", TORCH_BOX(&RecordingOperators<Backend>::bind));
  m.impl("run_recording", TORCH_BOX(&RecordingOperators<Backend>::run));
  m.impl("drop_recording", TORCH_BOX(&RecordingOperators<Backend>::drop));
  Callees& callees = callees_of<Backend>();
  callees.add<&view>("aten::view");
  callees.add<&unsqueeze>("aten::unsqueeze");
  callees.add<&slice>("aten::slice");
}

}  // namespace bitgnn::ops
