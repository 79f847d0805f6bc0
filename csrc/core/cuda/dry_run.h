// Dry runs: launchers run as they are, and what they would launch and allocate is noted instead.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/cuda/launch.h"

namespace bitgnn::cuda {

struct DryLaunch {
  std::string kernel;  // with its template arguments
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes;
};

// The scratch memory is the most that was in use at once, less what is still in use when the notes
// are taken: the results.
struct DryNotes {
  std::vector<DryLaunch> launches;
  size_t scratch_bytes = 0;
};

// While it lives, launches of this thread go to the notes of all dry runs since the last
// take_dry_notes(), on the device that set_dry_device() described.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
};

// Whether this thread is in a dry run: what needs a driver or memory is left out there.
bool is_dry_run();

// Where results and scratch memory of dry runs lie, all of them in one place: addresses of which
// the system has promised none to anybody else, and no memory as long as nobody writes.
void* imagined_memory();

// Counts bytes of tensors and scratch memory that this thread's dry runs come to use.
void count_taken(size_t bytes);
void count_returned(size_t bytes);

// Counts what is taken until its own end, and hands out imagined memory.
class CountingWorkspace final : public Workspace {
 public:
  CountingWorkspace() = default;
  ~CountingWorkspace() { count_returned(taken_); }
  CountingWorkspace(const CountingWorkspace&) = delete;
  CountingWorkspace& operator=(const CountingWorkspace&) = delete;
  void* take(size_t bytes) override;

 private:
  size_t taken_ = 0;
};

void set_dry_device(const Device& device);
const Device& dry_device();
DryNotes take_dry_notes();

}  // namespace bitgnn::cuda
