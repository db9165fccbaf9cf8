#pragma once

#include <locale>
#include <sstream>

namespace mps::detail {

/// Puts a text together with <<. Its numbers look the same whatever the process's global locale is, which a plain
/// std::ostringstream follows: there 1234 can become "1,234".
class TextStream : public std::ostringstream {
 public:
  TextStream() { imbue(std::locale::classic()); }
};

}  // namespace mps::detail
