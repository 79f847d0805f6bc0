// Cache of large result buffers; see buffer_cache.h.
#include "core/cpu/buffer_cache.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bitgnn::cpu {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;

struct Buffer {
  void* data;
  size_t bytes;
};

struct Cache {
  std::mutex mutex;
  std::unordered_map<void*, size_t> in_use;
  std::vector<Buffer> idle;  // least recently used first
  size_t idle_bytes = 0;
  size_t limit = limit_from_environment();

  static size_t limit_from_environment() {
    const char* text = std::getenv("BITGNN_BUFFER_CACHE_MB");
    const long long megabytes = text != nullptr ? std::atoll(text) : 256;
    return megabytes > 0 ? static_cast<size_t>(megabytes) << 20 : 0;
  }
};

Cache& cache();

// A fork waits for the mutex, which a child would otherwise find locked by a thread that it lacks.
Cache* make_cache() {
#if defined(__unix__) || defined(__APPLE__)
  pthread_atfork([] { cache().mutex.lock(); }, [] { cache().mutex.unlock(); },
                 [] { cache().mutex.unlock(); });
#endif
  return new Cache;
}

// Never destroyed: tensors may outlive static objects at exit.
Cache& cache() {
  static Cache* instance = make_cache();
  return *instance;
}

std::atomic<bool> is_enabled{true};

// With huge pages, the first touch of 2 MiB takes one fault instead of 512.
void* allocate(size_t bytes) {
  const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* data = std::aligned_alloc(kHugePage, rounded);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (data != nullptr) madvise(data, rounded, MADV_HUGEPAGE);
#endif
  return data;
}

}  // namespace

bool is_cached(size_t bytes) { return bytes >= kCachedBufferBytes && is_enabled.load(); }

bool set_buffer_cache(bool enabled) { return is_enabled.exchange(enabled); }

void* take_buffer(size_t bytes) {
  Cache& c = cache();
  const std::lock_guard<std::mutex> lock(c.mutex);
  // Takes the smallest buffer that fits, unless it would waste more than a quarter.
  auto best = c.idle.end();
  for (auto it = c.idle.begin(); it != c.idle.end(); ++it)
    if (it->bytes >= bytes && it->bytes - bytes <= bytes / 4 &&
        (best == c.idle.end() || it->bytes < best->bytes))
      best = it;
  if (best != c.idle.end()) {
    const Buffer found = *best;
    c.idle.erase(best);
    c.idle_bytes -= found.bytes;
    c.in_use.emplace(found.data, found.bytes);
    return found.data;
  }
  void* data = allocate(bytes);
  if (data != nullptr) c.in_use.emplace(data, bytes);
  return data;
}

void return_buffer(void* data) {
  Cache& c = cache();
  const std::lock_guard<std::mutex> lock(c.mutex);
  const auto found = c.in_use.find(data);
  if (found == c.in_use.end()) return;
  c.idle.push_back({data, found->second});
  c.idle_bytes += found->second;
  c.in_use.erase(found);
  while (c.idle_bytes > c.limit) {
    c.idle_bytes -= c.idle.front().bytes;
    std::free(c.idle.front().data);
    c.idle.erase(c.idle.begin());
  }
}

void release_buffers() {
  Cache& c = cache();
  const std::lock_guard<std::mutex> lock(c.mutex);
  for (const Buffer& buffer : c.idle) std::free(buffer.data);
  c.idle.clear();
  c.idle_bytes = 0;
}

}  // namespace bitgnn::cpu
