// Cache of large result buffers: mapping and clearing the pages of a new buffer takes longer than a
// bit kernel takes to write it.
#pragma once

#include <cstddef>

namespace bitgnn::cpu {

// Results of at least this many bytes come from the cache.
constexpr size_t kCachedBufferBytes = size_t{1} << 20;

// True if a result of `bytes` bytes comes from the cache.
bool is_cached(size_t bytes);
// Turns the cache on or off for new results; returns whether it was on.
bool set_buffer_cache(bool enabled);
// Returns a buffer of at least `bytes`, aligned to a cache line; null if memory is exhausted.
void* take_buffer(size_t bytes);
// Returns a buffer to the cache, which keeps at most BITGNN_BUFFER_CACHE_MB of them (256 by
// default, 0 turns it off) and frees the least recently used first.
void return_buffer(void* data);
// Frees every buffer that is not in use.
void release_buffers();

}  // namespace bitgnn::cpu
