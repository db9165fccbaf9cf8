#pragma once

#include <string>
#include <vector>

#include "fuzz/random_calls/call.hpp"

namespace unmetal::random_calls {

/// Whether the words of exceptions are compared, too, and not only whether and of which type they are.
enum class Words : bool { Ignored, Compared };

/// What is different between the same call on two devices, a sentence each: exceptions, sizes of what was made, sources that
/// were written, elements that one device alone has written, values. Empty when nothing is.
std::vector<std::string> differences(const Call& first, const Call& second, Words words);

}  // namespace unmetal::random_calls
