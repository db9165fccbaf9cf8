#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/core/neuron_cuda.cuh"
#include "mps/core/neuron_span.hpp"
#include "mps/core/store_numbers_cuda.cuh"
#include "mps/neuron/neuron_problem.hpp"

namespace mps::detail {
namespace {

using cuda::ElementPlace;
using cuda::JoinedAxes;
using cuda::NeuronNumbers;

/// Stands for a type that is known only when a kernel runs.
constexpr auto kAnyType = CNNNeuronType::Count;

template <CNNNeuronType constantType, NeuronDirection direction>
struct NeuronFunction {
  NeuronNumbers numbers;
  const float* slopes;  ///< of PReLU

  [[nodiscard]] __device__ CNNNeuronType type() const {
    return constantType == kAnyType ? numbers.type : constantType;
  }
  /// Those of a pack's channels, 16 bytes at once: the slopes lie at a multiple of 16.
  template <class Values>
  __device__ void loadSlopes(std::int32_t channel, Values& to) const {
    if constexpr (sizeof(Values) == sizeof(float)) {
      to.values[0] = __ldg(slopes + channel);
    } else {
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(Values) / sizeof(float)); i += 4) {
        const float4 four = __ldg(reinterpret_cast<const float4*>(slopes + channel + i));
        to.values[i] = four.x;
        to.values[i + 1] = four.y;
        to.values[i + 2] = four.z;
        to.values[i + 3] = four.w;
      }
    }
  }
  /// With the addend, if there is one.
  template <class Values, int inputs>
  __device__ static float gradientOf(const Values (&in)[inputs], int lane) {
    if constexpr (inputs > 2)
      return in[1].values[lane] + in[2].values[lane];
    else
      return in[1].values[lane];
  }
  template <class Values, int inputs>
  __device__ void operator()(const ElementPlace& place, const Values (&in)[inputs], Values& result) const {
    constexpr int lanes = sizeof(Values) / sizeof(float);
    constexpr bool areHalves = lanes == cuda::kLanes<Float16>;
    Values slope{};
    if (type() == CNNNeuronType::PReLU) loadSlopes(place.channel, slope);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const float x = in[0].values[lane];
      float& to = result.values[lane];
      if constexpr (direction == NeuronDirection::Forward)
        to = cuda::neuronValue<areHalves>(type(), numbers, slope.values[lane], x);
      else if constexpr (direction == NeuronDirection::Gradient)
        to = in[1].values[lane] * cuda::neuronDerivative<areHalves>(type(), numbers, slope.values[lane], x);
      else
        to = gradientOf(in, lane) * cuda::neuronDerivativeFromResult(type(), numbers, slope.values[lane], x);
    }
  }
};

/// Calls body with `type` as a constant, if it is among `types`, else with None.
template <CNNNeuronType... types, class Body>
void withOneOf(CNNNeuronType type, Body body) {
  const bool isFound =
      ((type == types && (body(std::integral_constant<CNNNeuronType, types>()), true)) || ...);
  if (!isFound) body(std::integral_constant<CNNNeuronType, CNNNeuronType::None>());
}
template <NeuronDirection direction, int inputs, class Body>
void withType(CNNNeuronType type, Body body) {
  using enum CNNNeuronType;
  if constexpr (inputs > 2) {
    // A sum of gradients behind another neuron is rare.
    if (type == ReLU)
      body(std::integral_constant<CNNNeuronType, ReLU>());
    else
      body(std::integral_constant<CNNNeuronType, kAnyType>());
  } else if constexpr (direction == NeuronDirection::GradientFromResult)
    withOneOf<ReLU, PReLU, Linear, Sigmoid, TanH, SoftPlus, SoftSign, ELU, ReLUN, Exponential>(type, body);
  else
    withOneOf<ReLU, PReLU, Linear, Sigmoid, TanH, SoftPlus, SoftSign, ELU, ReLUN, Exponential, HardSigmoid,
              Absolute, Power, Logarithm, GeLU>(type, body);
}

class NeuronPlan final : public Plan {
 public:
  explicit NeuronPlan(const NeuronProblem& problem) : problem_(problem), numbers_(problem.neuron) {
    const bool isPReLU = numbers_.type == CNNNeuronType::PReLU;
    const JoinedAxes joined = isPReLU ? JoinedAxes::AllPixels : JoinedAxes::All;
    if (isForward())
      cuda::joinAxes({&problem_.input, &problem_.destination}, joined);
    else
      cuda::joinAxes({&problem_.input, &problem_.gradient, problem_.hasAddend() ? &problem_.addend : nullptr,
                      &problem_.destination},
                     joined);
  }

  /// For PReLU's slopes.
  [[nodiscard]] std::size_t scratchBytes() const override { return slopes().size_bytes(); }
  [[nodiscard]] bool canAccumulate() const override {
    return !isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    cuda::storeNumbers(stream, slopes(), reinterpret_cast<float*>(operands.scratch));
    switch (problem_.direction) {
      case NeuronDirection::Forward:
        return start<NeuronDirection::Forward, 1>(stream, operands);
      case NeuronDirection::Gradient:
        return start<NeuronDirection::Gradient, 2>(stream, operands);
      case NeuronDirection::GradientFromResult:
        if (problem_.hasAddend()) return start<NeuronDirection::GradientFromResult, 3>(stream, operands);
        return start<NeuronDirection::GradientFromResult, 2>(stream, operands);
    }
  }

 private:
  [[nodiscard]] bool isForward() const { return problem_.direction == NeuronDirection::Forward; }
  [[nodiscard]] std::span<const float> slopes() const {
    return numbers_.type == CNNNeuronType::PReLU ? problem_.neuron.data() : std::span<const float>();
  }

  template <NeuronDirection direction, int inputs>
  void start(mtl::Stream& stream, const Operands& operands) const {
    const TensorShape& shape = problem_.destination;
    const std::byte* const addresses[] = {
        direction == NeuronDirection::GradientFromResult ? operands.secondary : operands.source,
        operands.gradient, operands.parameters[0]};
    const TensorShape* const shapes[] = {&problem_.input, &problem_.gradient, &problem_.addend};
    cuda::MapArguments<inputs> arguments;
    arguments.destination = {shape, operands.destination};
    arguments.accumulate = operands.accumulate;
    ImageFeatureChannelFormat format = shape.format;
    bool takesPacks = cuda::takesLanes(shape, operands.destination);
    for (int i = 0; i < inputs; ++i) {
      arguments.sources[i] = {*shapes[i], addresses[i]};
      takesPacks = takesPacks && cuda::takesLanes(*shapes[i], addresses[i]);
      if (shapes[i]->format != format) format = ImageFeatureChannelFormat::None;
    }
    const auto* const slopesOnDevice = reinterpret_cast<const float*>(operands.scratch);
    cuda::withAccess(format, takesPacks, [&](auto access) {
      using Access = decltype(access);
      const auto launch = [&](auto type) {
        const NeuronFunction<type(), direction> function{numbers_, slopesOnDevice};
        cuda::launchMap<Access>(stream, arguments, shape, function);
      };
      if constexpr (Access::lanes == 1)
        launch(std::integral_constant<CNNNeuronType, kAnyType>());
      else
        withType<direction, inputs>(numbers_.type, launch);
    });
  }

  NeuronProblem problem_;  ///< with joined axes
  NeuronNumbers numbers_;
};

Preparation prepareElements(const NeuronProblem& problem) {
  if (auto refusal = refusalOfResult(problem)) return *refusal;
  for (const TensorShape* shape : {&problem.input, &problem.gradient, &problem.addend, &problem.destination})
    if (!cuda::ElementGrid::fits(*shape)) return Refusal{cuda::ElementGrid::kTooLarge};
  return std::make_shared<const NeuronPlan>(problem);
}

constexpr Implementation<NeuronProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<NeuronProblem>> neuronImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
