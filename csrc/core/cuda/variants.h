// The variants of routes by name: which ones calls took, and a benchmark's means to leave one out
// and time the next. A variant is called after the file of its kernel, perhaps with a word on its
// shape.
#pragma once

#include <atomic>
#include <string>

namespace bitgnn::cuda {

extern std::atomic<bool> variants_are_watched;

// Notes that a call takes a variant, unless it is left out.
bool note_variant(const char* variant);

// Whether a route takes a variant that suits: always, except in a benchmark that leaves it out.
// What follows in the route must then serve the same arguments.
inline bool takes(const char* variant, bool suits) {
  return suits && (!variants_are_watched.load(std::memory_order_relaxed) || note_variant(variant));
}

// Leaves out the variants of a list separated by semicolons, and returns in such a list those that
// were taken since the last call, each once. An asterisk watches without leaving out; an empty list
// ends the watch.
std::string leave_out_variants(const std::string& variants);

}  // namespace bitgnn::cuda
