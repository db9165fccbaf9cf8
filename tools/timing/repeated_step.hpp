#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "mps/conform/timing/measure.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mtl/command_buffer.hpp"
#include "tools/networks/networks.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/ranks/ranks.hpp"

namespace mtl {
class CommandQueue;
class Device;
}  // namespace mtl

namespace unmetal {

/// The step that `unmetal train` repeats, on one batch of generated pictures, with Adam.
class RepeatedStep {
 public:
  /// @param ranks that each do it, as one step of all; null: this one alone
  RepeatedStep(const std::shared_ptr<mtl::Device>& device, NetworkOptions options,
               const train::detail::Ranks& ranks = nullptr, bool synchronizesBatchNormalization = false);

  /// Milliseconds of so many steps. As many as there are slots stay in flight, so that from the second call on each is
  /// a step of a full pipeline.
  double run(int steps);
  /// Times a step of a full pipeline, the median of so many runs of a quarter of a second. Nothing is in flight afterwards.
  mps::detail::Timing time(int runs);
  /// Milliseconds of this thread's processor time for an encode of a step, behind others, whose commands never run.
  double encodeAlone(int repetitions);
  /// The times of the commands of one step by itself.
  std::vector<mtl::CommandTime> runTimed();
  /// Waits for what is in flight. @throws Error when it failed
  void finish();

 private:
  struct InFlight {
    mps::ImageBatch images;
    mps::ImageBatch scores;
    mps::StateBatch labels;
    std::shared_ptr<mtl::CommandBuffer> commandBuffer;
  };
  void start(InFlight& slot, bool recordsTimes);
  void finish(InFlight& slot);

  std::shared_ptr<mtl::CommandQueue> queue_;
  Network network_;
  train::Batch batch_;
  std::vector<float> losses_;
  std::array<InFlight, 3> slots_;
  std::size_t next_ = 0;  ///< step
};

}  // namespace unmetal
