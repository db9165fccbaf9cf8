#include "mps/graph/compile/graph_passes.hpp"

#include <utility>

namespace mps::detail {
namespace {
thread_local GraphPasses leftOut;  // NOLINT: a thread's own choice
}  // namespace

GraphPasses leftOutPasses() {
  return leftOut;
}

LeaveOutPasses::LeaveOutPasses(GraphPasses passes) : previous_(std::exchange(leftOut, passes)) {}
LeaveOutPasses::~LeaveOutPasses() {
  leftOut = previous_;
}

}  // namespace mps::detail
