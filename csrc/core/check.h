// Errors of operators: one sentence, which begins with the operator and names the argument.
#pragma once

#include <sstream>
#include <stdexcept>

namespace bitgnn {

// Throws what the parts say, one after the other.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw std::runtime_error(message.str());
}

}  // namespace bitgnn

// Requires a condition; the other arguments are the message. Unlike torch's own check it names no
// function and file of C++, which callers from Python cannot use.
#define BITGNN_CHECK(condition, ...)               \
  do {                                             \
    if (!(condition)) ::bitgnn::fail(__VA_ARGS__); \
  } while (false)
