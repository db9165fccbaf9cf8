#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "mps/conform/timing/measure.hpp"
#include "mtl/command_buffer.hpp"

namespace unmetal {

/// One line of a profile: what several commands take together, in milliseconds for one step.
struct ProfileRow {
  std::string name;
  std::size_t commands = 0;
  double milliseconds = 0;
  double bytes = 0;
  double operations = 0;
  double floorMilliseconds =
      0;  ///< at the machine's rates of copies and matrix products, of each command the larger
};

/// Where the time of a training step goes. Times are medians over the steps, command by command.
class StepProfile {
 public:
  /// @param steps the commands of each step (mtl::CommandBuffer::commandTimes), in all the same ones
  /// @throws mps::Error when they are not, or there is none
  StepProfile(std::vector<std::vector<mtl::CommandTime>> steps, const mps::detail::MachineFigures& machine);

  /// From the beginning of the first command to the end of the last one.
  [[nodiscard]] double milliseconds() const { return milliseconds_; }
  /// Kinds of kernels (convolution, normalization, ...), the slowest first; "between commands" comes last.
  [[nodiscard]] std::vector<ProfileRow> byKind() const;
  /// Layers in the order of the network, each with its forward kernels and its gradients. Kernels without a label are
  /// together by their class, which optimisers are.
  [[nodiscard]] std::vector<ProfileRow> byLayer() const;
  /// Both, as text: milliseconds, part of the step, GB/s, GFLOP/s, part of the floor.
  [[nodiscard]] std::string report() const;
  /// The steps as a trace file that Perfetto and chrome://tracing open (Trace Event Format).
  [[nodiscard]] std::string trace() const;

 private:
  std::vector<std::vector<mtl::CommandTime>> steps_;
  std::vector<ProfileRow> commands_;  ///< one each, its name the label
  double milliseconds_ = 0;
};

/// What a command of this label (class of the kernel, then its label in quotes) belongs to.
std::string kindOfCommand(const std::string& label);
/// The kernel's label; its class where it has none. A gradient kernel belongs to what its forward kernel does: graphs label
/// it "conv1 gradient".
std::string layerOfCommand(const std::string& label);

}  // namespace unmetal
