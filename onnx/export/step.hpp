#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/core/coding/coded_floats.hpp"
#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/core/types/error.hpp"
#include "onnx/export/graph_builder.hpp"

/// What the translations of kernels to operators share. The library's own.
namespace unmetal::onnx::detail {

/// An image of a graph, in the model a tensor batch x channels x height x width.
struct Picture {
  std::string value;
  std::int64_t width = 1;
  std::int64_t height = 1;
  std::int64_t channels = 1;
};

/// Pixels of a picture; they may lie outside of it.
struct PixelRegion {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t width = 1;
  std::int64_t height = 1;
};

/// A kernel of a graph, placed for the sizes of its sources.
struct Step {
  mps::Kernel& kernel;
  std::string name;  ///< of the node, for messages
  std::vector<Picture> sources;
  Picture result;  ///< without a value yet
  GraphBuilder& model;

  /// The kernel where it is of that class, else null.
  template <class KernelType>
  [[nodiscard]] const KernelType* as() const {
    return dynamic_cast<const KernelType*>(&kernel);
  }
  [[nodiscard]] const Picture& source() const { return sources.front(); }
  /// @throws mps::Error with the node's name and that reason
  [[nodiscard]] mps::Error refusal(const std::string& reason) const;

  [[nodiscard]] std::string add(const std::string& type, std::vector<std::string> inputs,
                                std::vector<Attribute> attributes = {}) const {
    return model.add(type, std::move(inputs), std::move(attributes));
  }
  /// With more pixels or channels around it. @param pads in front of each axis, then behind each
  /// @param mode "constant", "edge" or "reflect"  @param fill what constant pads hold
  [[nodiscard]] std::string pad(const std::string& value, std::vector<std::int64_t> pads,
                                const std::string& mode = "constant", float fill = 0) const;
  /// value `type` number; without an operator where the number changes nothing.
  /// @{
  [[nodiscard]] std::string scaled(const std::string& value, float factor) const;
  [[nodiscard]] std::string shifted(const std::string& value, float summand) const;
  /// @}

  /// Some channels of a picture: from the first one on, at most so many. @throws mps::Error where there is none
  [[nodiscard]] Picture channels(const Picture& picture, std::size_t first, std::size_t most) const;
  /// Some pixels, what lies outside being 0 or the edge pixel. @throws mps::Error where all of them lie outside
  [[nodiscard]] Picture pixels(const Picture& picture, const PixelRegion& region,
                               mps::ImageEdgeMode edgeMode) const;
  /// The source of a kernel that makes pixel (x, y) of pixel (x, y): moved by its offset.
  [[nodiscard]] Picture pointwiseSource(const mps::CNNKernel& kernel) const;

  /// Numbers that lie on the device.
  [[nodiscard]] std::vector<float> numbers(const mps::detail::FloatsInMemory& values) const;
};

/// Translates one step. @return the result's name; nothing for a kernel of another family
using Translation = std::optional<std::string> (*)(const Step& step);

std::optional<std::string> translateConvolution(const Step& step);
std::optional<std::string> translateTransposedConvolution(const Step& step);
std::optional<std::string> translatePooling(const Step& step);
std::optional<std::string> translateBatchNormalization(const Step& step);
std::optional<std::string> translateImageNormalization(const Step& step);
std::optional<std::string> translateLocalNormalization(const Step& step);
std::optional<std::string> translateNeuron(const Step& step);
std::optional<std::string> translateSoftMax(const Step& step);
std::optional<std::string> translateDropout(const Step& step);
std::optional<std::string> translateArithmetic(const Step& step);
std::optional<std::string> translateConcatenation(const Step& step);
std::optional<std::string> translateUpsampling(const Step& step);
std::optional<std::string> translateReduction(const Step& step);
std::optional<std::string> translateReshape(const Step& step);
std::optional<std::string> translateGramMatrix(const Step& step);

/// The operators of a function of each value. @param channels of `value`
std::string addNeuron(const Step& step, const std::string& value, const mps::NNNeuronDescriptor& neuron,
                      std::int64_t channels);

}  // namespace unmetal::onnx::detail
