// Operator errors: one sentence that starts with the operator's name and names the argument.
#pragma once

#include <sstream>
#include <stdexcept>

namespace bitgnn {

// Throws an error whose message is the concatenated parts.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw std::runtime_error(message.str());
}

}  // namespace bitgnn

// Requires a condition; the other arguments form the message. Unlike torch's own check, it does not
// name the C++ function and file, which are of no use to Python callers.
#define BITGNN_CHECK(condition, ...)               \
  do {                                             \
    if (!(condition)) ::bitgnn::fail(__VA_ARGS__); \
  } while (false)
