#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onnx/model/protobuf.hpp"
#include "train/network/layers.hpp"
#include "train/pictures/picture.hpp"

/// The messages of TensorBoard's event files, with their numbers in event.proto, summary.proto and graph.proto.
namespace unmetal {

using onnx::detail::Message;

/// What is shown at one step.
class Summary {
 public:
  void addScalar(const std::string& tag, float value);
  /// @param values without those that are not finite
  void addHistogram(const std::string& tag, std::span<const float> values);
  void addImage(const std::string& tag, const train::Picture& picture);
  [[nodiscard]] Message take() { return std::move(message_); }

 private:
  void addValue(Message value);

  Message message_;
};

/// @param wallTime seconds since 1970
/// @{
/// The first event of a file.
Message versionEvent(double wallTime);
/// What earlier files have of this step and later ones no longer counts.
Message restartEvent(double wallTime, std::uint64_t step);
Message summaryEvent(double wallTime, std::uint64_t step, Summary summary);
/// The layers of a network.
Message graphEvent(double wallTime, std::span<const train::Layer> layers);
/// @}

}  // namespace unmetal
