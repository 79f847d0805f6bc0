// Large result buffers, kept for reuse: the pages of a fresh one take longer to map and clear than
// a bit kernel takes to write it.
#pragma once

#include <cstddef>

namespace bitgnn::cpu {

// Results of at least this many bytes come from the cache.
constexpr size_t kCachedBufferBytes = size_t{1} << 20;

// Whether a result of so many bytes comes from the cache.
bool is_cached(size_t bytes);
// Switches the cache on or off for new results; whether it was on.
bool set_buffer_cache(bool enabled);
// A buffer of at least `bytes`, aligned to a cache line; null when memory is exhausted.
void* take_buffer(size_t bytes);
// Gives a buffer back. The cache keeps at most BITGNN_BUFFER_CACHE_MB (256 by default, 0 turns it
// off) of them and frees the longest unused first.
void return_buffer(void* data);
// Frees every buffer that is not in use.
void release_buffers();

}  // namespace bitgnn::cpu
