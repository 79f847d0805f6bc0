// The operators that bind, run and drop plans, for any backend.
#pragma once

#include "core/all_operators.h"
#include "core/plan.h"

namespace bitgnn::ops {

template <class Backend>
struct PlanOperators {
  static int64_t bind(const std::vector<Tensor>& constants, const std::string& names,
                      const std::vector<int64_t>& code) {
    static const Callees callees = [] {
      Callees made;
      add_all<Backend>(made);
      return made;
    }();
    return plans_of<Backend>().add(PlanReader(code, constants).read(names, callees));
  }

  static Tensor run(const Tensor& x, const OptionalTensor& second, int64_t number) {
    const std::shared_ptr<const Plan> plan = plans_of<Backend>().find(number);
    BITGNN_CHECK(plan != nullptr, "run_plan: plan must be the number of one that was bound on ",
                 "this device and not dropped, got ", number);
    const size_t given = second.has_value() ? 2 : 1;
    BITGNN_CHECK(given >= plan->inputs, "run_plan: second must be a tensor for plan ", number);
    Registers registers(plan->registers);
    if (plan->inputs > 0) registers[0] = x;
    if (plan->inputs > 1) registers[1] = second;
    for (const Call& call : plan->calls) {
      call.run(call, registers);
      for (const size_t last : call.last_reads) registers[last].reset();
    }
    return *registers[plan->result];
  }

  static void drop(const Tensor&, int64_t number) { plans_of<Backend>().drop(number); }
};

template <class Backend, class Library>
void register_plans(Library& m) {
  m.impl("bind_plan", TORCH_BOX(&PlanOperators<Backend>::bind));
  m.impl("run_plan", TORCH_BOX(&PlanOperators<Backend>::run));
  m.impl("drop_plan", TORCH_BOX(&PlanOperators<Backend>::drop));
}

}  // namespace bitgnn::ops
