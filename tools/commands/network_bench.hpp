#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "mps/conform/timing/bench.hpp"
#include "tools/networks/networks.hpp"
#include "tools/options/device_options.hpp"
#include "train/data/shape.hpp"
#include "train/ranks/ranks.hpp"

namespace unmetal {

/// Rows of `unmetal bench` for the training step of networks on generated pictures, with Adam (a GPU may multiply in
/// TF32): lenet and mnist-cnn in batches of 16, 64 and 128, on a GPU of 64, 128 and 1,024; where the filter has their
/// name, the larger ones, too:
///
/// | | CPU | GPU |
/// |---|---|---|
/// | resnet18 | 28x28x1 batch 16 | 28x28x1 batch 128 |
/// | resnet50 | 64x64x3 batch 16 | 224x224x3 batch 256, also in float16 |
/// | alexnet-lrn | 28x28x1 batch 16 | 224x224x3 batch 128 |
/// | unet-small, style | 28x28x1 batch 16 | 64x64x3 batch 128 |
///
/// | number | meaning |
/// |---|---|
/// | ms | a step of a training that goes on as `unmetal train` does: upload of the batch (to a GPU as unorm8,
/// to the CPU as float32) and of the labels, forward, gradients, updates, losses back to the host. Three steps
/// are in flight, the losses are read two steps late. Wall time of a quarter of a second of steps, over their
/// number, after a warm-up |
/// | bytes | pictures, labels and losses once; weights and optimiser state read and written once |
/// | flops | forward, data gradient (not of the first layer) and weight gradient of all layers |
/// | peak_bytes | largest resident set of the process, over that before device and network were made; on a GPU
/// the memory that the training has there, all of which it keeps |
/// | first_step_ms | from the start of `unmetal train --data synthetic --net NET --steps 1` to its line for
/// the first step; at batch 64 |
/// @param cpuMayRound whether convolutions on a CPU may multiply bfloat16 numbers
void benchNetworks(mps::detail::Bench& bench, const DeviceOptions& device, bool cpuMayRound);

/// The same steps on each of several ranks, which all call it: the time of one rank alone, without a communicator and with one
/// of its own, of all with batch normalisation of each rank's own pictures and of the whole batch, and of the sum of all
/// gradients. Printed by rank 0, with the memory that its device has given away by then.
/// @param filter words of the rows @param batch pictures of each rank; 0: those of the row @throws mps::Error where there is none
void benchRanks(const std::shared_ptr<mtl::Device>& device, const train::detail::Ranks& ranks,
                const std::string& filter, std::size_t batch);

/// What `unmetal bench --profile` is asked for.
struct ProfileRequest {
  std::string network;
  std::size_t batch = 0;                      ///< 0: that of the row of bench
  std::optional<train::Shape> pictures = {};  ///< unset: those of the row
  bool isFloat16 = false;
  bool cpuMayRound = false;
  std::string traceFile;  ///< empty: none
};

/// Prints where the time of a training step goes, by kind of kernel and by layer.
void profileNetwork(const std::shared_ptr<mtl::Device>& device, const ProfileRequest& request);

/// One of these training steps.
void runTrainingStep(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options);

}  // namespace unmetal
