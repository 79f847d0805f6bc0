// Registers operators: a room's own file gives each a schema and a function, and is compiled into
// both libraries.
//
//   BITGNN_OPERATORS(table) {
//     table.template add<&PackOperators<Backend>::pack>("pack(Tensor x, ...) -> Tensor");
//   }
#pragma once

#include <string>

#include "core/recording.h"

#if defined(USE_CUDA)
#include "core/cuda/backend.h"
#else
#include "core/cpu/backend.h"
#endif

namespace bitgnn::ops {

using torch::stable::detail::StableLibrary;

struct SchemaTable {
  StableLibrary& library;

  template <auto>
  void add(const std::string& schema) {
    library.def(schema.c_str());
  }
};

// Enters functions for calls by torch and, unless the backend is dry, by recordings.
template <class Backend>
struct FunctionTable {
  StableLibrary& library;

  template <auto function>
  void add(const std::string& schema) {
    const std::string name = schema.substr(0, schema.find('('));
    library.impl(name.c_str(), TORCH_BOX(function));
    if constexpr (!Backend::kIsDry) callees_of<Backend>().template add<function>(name);
  }
};

}  // namespace bitgnn::ops

// The CUDA library enters its functions a second time in bitgnn_dry, where they run without a
// device, for bitgnn.ops.route.
#if defined(USE_CUDA)
#define BITGNN_REGISTER                                                    \
  STABLE_TORCH_LIBRARY_IMPL(bitgnn, CUDA, m) {                             \
    enter_operators<cuda::Backend>(FunctionTable<cuda::Backend>{m});       \
  }                                                                        \
  STABLE_TORCH_LIBRARY_FRAGMENT(bitgnn_dry, m) {                           \
    enter_operators<cuda::DryBackend>(SchemaTable{m});                     \
  }                                                                        \
  STABLE_TORCH_LIBRARY_IMPL(bitgnn_dry, CPU, m) {                          \
    enter_operators<cuda::DryBackend>(FunctionTable<cuda::DryBackend>{m}); \
  }
#else
#define BITGNN_REGISTER                                                                       \
  STABLE_TORCH_LIBRARY_FRAGMENT(bitgnn, m) { enter_operators<cpu::Backend>(SchemaTable{m}); } \
  STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {                                                 \
    enter_operators<cpu::Backend>(FunctionTable<cpu::Backend>{m});                            \
  }
#endif

// Stands in namespace bitgnn::ops, once in a file, in front of calls table.add<&function>(schema)
// for the functions of a template parameter Backend.
#define BITGNN_OPERATORS(table)             \
  template <class Backend, class Table>     \
  static void enter_operators(Table table); \
  BITGNN_REGISTER                           \
  template <class Backend, class Table>     \
  static void enter_operators(Table table)
