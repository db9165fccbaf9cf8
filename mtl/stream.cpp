#include "mtl/stream.hpp"

#include "mtl/command_buffer.hpp"

namespace mtl {

bool Stream::replay(std::span<Command> /*commands*/) {
  return false;
}

}  // namespace mtl
