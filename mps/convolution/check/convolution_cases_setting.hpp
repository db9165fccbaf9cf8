#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/run_on_device.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/convolution/check/convolution_cases.hpp"
#include "mps/convolution/check/convolution_reference.hpp"
#include "mps/convolution/convolution_problem.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

/// What the tests of plans share: a problem with its operands.
namespace mps::detail {

using Format = ImageFeatureChannelFormat;
using Values = std::vector<double>;

constexpr ConvolutionOperation kOperations[] = {
    ConvolutionOperation::Forward, ConvolutionOperation::DataGradient, ConvolutionOperation::WeightsGradient};
constexpr int kThreads = 2;

inline bool isUnorm(Format format) {
  return format == Format::Unorm8 || format == Format::Unorm16;
}

/// Where the operands of a problem lie.
struct Place {
  std::shared_ptr<mtl::Device> device = mtl::createSystemDefaultDevice();
  bool isAligned = false;  ///< to 16 bytes; else an element or more behind such an address
  std::optional<PageSide> pages =
      {};  ///< CPU: every operand and the scratch memory beside a page that nobody may touch
  [[nodiscard]] bool isCpu() const { return device->kind() == mtl::DeviceKind::CPU; }
};
/// The CPU and, where there is one, a GPU.
inline const std::vector<Place>& places() {
  static const std::vector<Place> all = [] {
    std::vector<Place> found(1);
    if (const auto gpus = mtl::cudaDevices(); !gpus.empty()) {
      found.push_back({gpus.front(), true});
      found.push_back({gpus.front(), false});
    }
    return found;
  }();
  return all;
}

/// Values of the exact tier are small integers (a normalised format has 0 and 1).
inline RandomKind kindFor(Format format, Tier tier) {
  if (isUnorm(format)) return tier == Tier::Exact ? RandomKind::ZeroOrOne : RandomKind::Positive;
  return tier == Tier::Exact ? RandomKind::SmallIntegers : RandomKind::Uniform;
}

/// Whether the neuron keeps small integers, or multiples of 1/8 of them, exact.
inline bool isExact(const NNNeuronDescriptor& neuron) {
  const CNNNeuronType type = neuron.neuronType();
  return type == CNNNeuronType::None || type == CNNNeuronType::ReLU || type == CNNNeuronType::PReLU;
}

/// What a run stored, or what it should have.
struct Results {
  Values image;
  Values weights;
  Values bias;
};

inline bool sameBits(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}
inline bool sameBits(const Results& a, const Results& b) {
  return sameBits(a.image, b.image) && sameBits(a.weights, b.weights) && sameBits(a.bias, b.bias);
}

struct Expected {
  std::optional<ReferenceTensor> image;
  std::optional<ReferenceTensor> weights;
  std::optional<ReferenceTensor> bias;
};

/// The operands of a problem, with random values, and its outputs.
class Setting {
 public:
  Setting(const ConvolutionProblem& problem, Tier tier, std::uint64_t seed, const Place& place = {})
      : problem_(problem),
        place_(place),
        source_(tensor(problem.source, 1)),
        gradient_(tensor(problem.gradient, 1)),
        weights_(tensor(TensorShape::dense(1, 1, 1, problem.weightCount()), 1)),
        bias_(tensor(TensorShape::dense(1, 1, 1, problem.biasCount()), 1)),
        destination_(tensor(problem.destination, 0)),
        weightGradients_(tensor(TensorShape::dense(1, 1, 1, problem.weightCount()), 3)),
        biasGradients_(tensor(TensorShape::dense(1, 1, 1, problem.biasCount()), 5)) {
    const auto fill = [&](TensorShape shape, TensorShape format, std::uint64_t salt) {
      return randomValues(static_cast<std::size_t>(shape.elements()), seed * 16 + salt,
                          kindFor(format.format, tier));
    };
    source_.write(fill(problem.source, problem.source, 0));
    gradient_.write(fill(problem.gradient, problem.gradient, 1));
    weights_.write(fill(weights_.shape(), weights_.shape(), 2));
    bias_.write(fill(bias_.shape(), bias_.shape(), 3));
    initialImage_ = fill(problem.destination, problem.destination, 4);
    initialWeights_ = fill(weights_.shape(), weights_.shape(), 5);
    initialBias_ = fill(bias_.shape(), bias_.shape(), 6);
  }

  TestTensor& source() { return source_; }
  TestTensor& gradient() { return gradient_; }
  TestTensor& weights() { return weights_; }

  /// Runs the plan on fresh outputs and scratch and checks that nothing else was touched.
  Results run(const Plan& plan, bool accumulate, std::byte scratchFill = std::byte{0xFF},
              int threads = kThreads) {
    const bool isGradientOfWeights = problem_.operation == ConvolutionOperation::WeightsGradient;
    prepareOutput(destination_, initialImage_, accumulate && !isGradientOfWeights);
    prepareOutput(weightGradients_, initialWeights_, accumulate && isGradientOfWeights);
    prepareOutput(biasGradients_, initialBias_, accumulate && isGradientOfWeights);
    GuardedMemory scratch = place_.pages
                                ? GuardedMemory(*place_.pages, plan.scratchBytes(), kScratchAlignment)
                                : GuardedMemory(place_.device, plan.scratchBytes());
    std::ranges::fill(scratch.bytes(), scratchFill);
    scratch.didModify();

    Operands operands;
    operands.source = source_.address();
    operands.gradient = gradient_.address();
    operands.destination = destination_.address();
    operands.parameters = {weights_.address(), bias_.address(), weightGradients_.address(),
                           biasGradients_.address()};
    operands.scratch = scratch.address();
    operands.accumulate = accumulate;
    if (place_.isCpu()) {
      mtl::cpu::Stream stream(threads);
      plan.run(stream, operands);
    } else {
      runOnDevice(place_.device, "convolution", [&](mtl::Stream& stream) { plan.run(stream, operands); });
      scratch.synchronize();
    }

    EXPECT_TRUE(scratch.guardsIntact());
    for (TestTensor* input : {&source_, &gradient_, &weights_, &bias_}) EXPECT_TRUE(input->isUnchanged());
    for (TestTensor* output : {&destination_, &weightGradients_, &biasGradients_})
      EXPECT_TRUE(output->surroundingsIntact());
    if (!isGradientOfWeights) {
      EXPECT_TRUE(weightGradients_.isUnchanged());
      return {destination_.read(), {}, {}};
    }
    EXPECT_TRUE(destination_.isUnchanged());
    if (problem_.hasBias) return {{}, weightGradients_.read(), biasGradients_.read()};
    EXPECT_TRUE(biasGradients_.isUnchanged());
    return {{}, weightGradients_.read(), {}};
  }

  /// @param problem what the reference believes; the operands stay.
  Expected expected(const ConvolutionProblem& problem, bool accumulate) {
    const Values bias = problem.hasBias ? bias_.read() : Values{};
    Expected expected;
    switch (problem.operation) {
      case ConvolutionOperation::Forward:
        expected.image = convolutionForwardReference(problem, source_.reference(), weights_.read(), bias);
        break;
      case ConvolutionOperation::DataGradient:
        expected.image =
            convolutionDataGradientReference(problem, gradient_.reference(), weights_.read(), bias);
        break;
      case ConvolutionOperation::WeightsGradient: {
        auto parameters =
            convolutionWeightsGradientReference(problem, source_.reference(), gradient_.reference());
        expected.weights = std::move(parameters.weights);
        if (problem.hasBias) expected.bias = std::move(parameters.bias);
        break;
      }
    }
    if (accumulate) {
      addInitial(expected.image, initialImage_);
      addInitial(expected.weights, initialWeights_);
      addInitial(expected.bias, initialBias_);
    }
    return expected;
  }

  /// "" or what is wrong.
  [[nodiscard]] std::string compareWith(const Expected& expected, const Results& found, Tier tier,
                                        Zeros zeros = Zeros::Suspicious) const {
    std::string report;
    const auto check = [&](const std::optional<ReferenceTensor>& reference, const Values& values,
                           Format format) {
      if (!reference) return;
      const Comparison comparison = compare(*reference, values, format, tier, zeros);
      if (!comparison.passed()) report += "not passed: " + comparison.report;
    };
    check(expected.image, found.image, problem_.destination.format);
    check(expected.weights, found.weights, Format::Float32);
    check(expected.bias, found.bias, Format::Float32);
    return report;
  }

 private:
  static constexpr std::size_t kScratchAlignment = 256;

  /// @param firstElement of memory that need not be aligned
  [[nodiscard]] TestTensor tensor(const TensorShape& shape, std::size_t firstElement) const {
    if (place_.pages) return TestTensor(*place_.pages, shape);
    return TestTensor(place_.device, shape, place_.isAligned ? 0 : firstElement);
  }
  static void prepareOutput(TestTensor& output, const Values& initial, bool accumulate) {
    output.poison();
    if (accumulate) output.write(initial);
  }
  static void addInitial(std::optional<ReferenceTensor>& reference, const Values& initial) {
    if (!reference) return;
    for (std::size_t i = 0; i < initial.size(); ++i) reference->add(i, initial[i]);
    ++reference->roundings;
  }

  ConvolutionProblem problem_;
  Place place_;
  TestTensor source_;
  TestTensor gradient_;
  TestTensor weights_;
  TestTensor bias_;
  TestTensor destination_;
  TestTensor weightGradients_;
  TestTensor biasGradients_;
  Values initialImage_;
  Values initialWeights_;
  Values initialBias_;
};

inline std::shared_ptr<const Plan> planOf(const Implementation<ConvolutionProblem>& implementation,
                                          ConvolutionProblem problem, const Place& place = {}) {
  problem.deviceName = place.device->name();
  Preparation preparation = implementation.prepare(problem);
  if (auto* plan = std::get_if<std::shared_ptr<const Plan>>(&preparation)) return std::move(*plan);
  EXPECT_FALSE(std::get<Refusal>(preparation).reason.empty());
  return nullptr;
}

/// Those with images that are small.
inline std::vector<ConvolutionCase> ordinaryCases() {
  std::vector<ConvolutionCase> cases = convolutionCases();
  std::erase_if(cases, [](const ConvolutionCase& c) { return c.images == 0 || isLarge(c); });
  return cases;
}
inline const ConvolutionCase& caseNamed(std::string_view name) {
  static const std::vector<ConvolutionCase> cases = convolutionCases();
  return *std::ranges::find(cases, name, &ConvolutionCase::name);
}

}  // namespace mps::detail
