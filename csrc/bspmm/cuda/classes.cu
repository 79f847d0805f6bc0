// Launches the aggregation of packed rows to classes.
#include "bspmm/classes.h"
#include "bspmm/cuda/classes.cuh"
#include "bspmm/cuda/routes.h"

namespace bitgnn::cuda::bspmm {

cudaError_t aggregate_classes(const ClassesArgs& args, const Context& context) {
  StagedClasses finish{CsrRows{args.sums}, 0, args.classes};
  AggregateArgs& a = finish.source.a;
  if (access_words(a) < kAccessWords && suits_padding(a)) {
    const cudaError_t status = pad_table(a, context);
    if (status != cudaSuccess) return status;
  }
  finish.access = access_words(a);
  return launch_staged(finish, context);
}

}  // namespace bitgnn::cuda::bspmm
