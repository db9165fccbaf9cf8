#include <math_constants.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/core/cuda/store_numbers_cuda.cuh"
#include "mps/core/neuron/neuron_cuda.cuh"
#include "mps/core/neuron/neuron_span.hpp"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/neuron/neuron_problem.hpp"

namespace mps::detail {
namespace {

using cuda::ElementPlace;
using cuda::JoinedAxes;
using cuda::NeuronNumbers;
using cuda::ResultView;
using cuda::SourceView;

/// Stands for a type that is known only when a kernel runs.
constexpr auto kAnyType = CNNNeuronType::Count;

/// PReLU's slopes of a vector's channels, 16 bytes at once: they lie at a multiple of 16.
template <class Values>
__device__ void loadSlopes(const float* slopes, std::int32_t channel, Values& to) {
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

template <CNNNeuronType constantType, NeuronDirection direction>
struct NeuronFunction {
  NeuronNumbers numbers;
  const float* slopes;  ///< of PReLU

  [[nodiscard]] __device__ CNNNeuronType type() const {
    return constantType == kAnyType ? numbers.type : constantType;
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
    if (type() == CNNNeuronType::PReLU) loadSlopes(slopes, place.channel, slope);
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

/// The byte of four elements; see NeuronProblem.
__device__ unsigned sidesOf(const float* x) {
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) bits |= (x[i] < 0.0F ? 1U << i : 0U) | (x[i] != x[i] ? 16U << i : 0U);
  return bits;
}

/// ReLU and PReLU with sides: of the forward kernel written, by vectors alone; of the gradient read.
template <NeuronDirection direction>
struct KinkFunction {
  float a;
  const float* slopes;  ///< of PReLU, else null
  ResultView sides;     ///< its offsets count elements

  /// The sides of a vector, a byte for four elements; of one element at the lowest place of its byte.
  template <int lanes>
  [[nodiscard]] __device__ unsigned loadSides(const ElementPlace& place) const {
    const std::int64_t element = sides.offset(place);
    const std::byte* const from = sides.memory + element / 4;
    if constexpr (lanes == 8)
      return *reinterpret_cast<const std::uint16_t*>(from);
    else
      return static_cast<unsigned>(*from) >> (lanes == 4 ? 0U : static_cast<unsigned>(element % 4));
  }
  template <class Values>
  __device__ void operator()(const ElementPlace& place, const Values (&in)[1], Values& result) const {
    constexpr int lanes = sizeof(Values) / sizeof(float);
    Values slope;
#pragma unroll
    for (float& value : slope.values) value = a;
    if (slopes != nullptr) loadSlopes(slopes, place.channel, slope);
    if constexpr (direction == NeuronDirection::Forward) {
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane)
        result.values[lane] = cuda::kinkedLine(in[0].values[lane], slope.values[lane]);
      std::byte* const to = sides.memory + sides.offset(place) / 4;
      if constexpr (lanes == 4) *to = static_cast<std::byte>(sidesOf(in[0].values));
      if constexpr (lanes == 8)
        *reinterpret_cast<std::uint16_t*>(to) =
            static_cast<std::uint16_t>(sidesOf(in[0].values) | sidesOf(in[0].values + 4) << 8U);
    } else {
      const unsigned bits = loadSides<lanes>(place);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const unsigned own = bits >> (lane / 4 * 8 + lane % 4);
        const float product = in[0].values[lane] * ((own & 1U) != 0 ? slope.values[lane] : 1.0F);
        result.values[lane] = (own & 16U) != 0 ? CUDART_NAN_F : product;
      }
    }
  }
};

/// Writes sides alone, where the forward kernel takes no vectors.
__global__ void writeSides(cuda::ElementGrid grid, SourceView source, ResultView sides) {
  grid.forEachBatch<1, 4>([](int /*i*/, const ElementPlace& /*place*/) {},
                          [&](int /*i*/, const ElementPlace& place) {
                            float x[4];
                            for (int i = 0; i < 4; ++i)
                              x[i] = cuda::loadAs(source.format, source.memory, source.offset(place) + i);
                            sides.memory[sides.offset(place) / 4] = static_cast<std::byte>(sidesOf(x));
                          });
}

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

class NeuronPlan final : public AccessPlan {
 public:
  explicit NeuronPlan(const NeuronProblem& problem) : problem_(problem), numbers_(problem.neuron) {
    const bool isPReLU = numbers_.type == CNNNeuronType::PReLU;
    const JoinedAxes joined = isPReLU ? JoinedAxes::AllPixels : JoinedAxes::All;
    const TensorShape& shape = problem_.destination;
    sides_ = TensorShape::dense(shape.images, shape.height, shape.width, shape.channels, shape.format);
    if (isForward())
      cuda::joinAxes({&problem_.input, &problem_.destination, &sides_}, joined);
    else if (problem_.hasSides)
      cuda::joinAxes({&problem_.gradient, &problem_.destination, &sides_}, joined);
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
        if (problem_.hasSides) return startWithSides<NeuronDirection::Forward>(stream, operands);
        return start<NeuronDirection::Forward, 1>(stream, operands);
      case NeuronDirection::Gradient:
        if (problem_.hasSides) return startWithSides<NeuronDirection::Gradient>(stream, operands);
        return start<NeuronDirection::Gradient, 2>(stream, operands);
      case NeuronDirection::GradientFromResult:
        if (problem_.hasAddend()) return start<NeuronDirection::GradientFromResult, 3>(stream, operands);
        return start<NeuronDirection::GradientFromResult, 2>(stream, operands);
    }
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{problem_.input, inputOf(operands), isForward() || !problem_.hasSides},
             {problem_.gradient, operands.gradient, !isForward()},
             {problem_.addend, operands.parameters[0], problem_.hasAddend()},
             {problem_.destination, operands.destination}}};
  }

 private:
  [[nodiscard]] bool isForward() const { return problem_.direction == NeuronDirection::Forward; }
  /// x, or the forward result.
  [[nodiscard]] const std::byte* inputOf(const Operands& operands) const {
    return problem_.direction == NeuronDirection::GradientFromResult ? operands.secondary : operands.source;
  }
  [[nodiscard]] std::span<const float> slopes() const {
    return numbers_.type == CNNNeuronType::PReLU ? problem_.neuron.data() : std::span<const float>();
  }

  template <NeuronDirection direction>
  void startWithSides(mtl::Stream& stream, const Operands& operands) const {
    constexpr bool readsX = direction == NeuronDirection::Forward;
    const TensorShape& shape = readsX ? problem_.input : problem_.gradient;
    const SourceView source(shape, readsX ? operands.source : operands.gradient);
    const TensorShape& destination = problem_.destination;
    const ResultView sides(sides_, operands.saved);
    cuda::MapArguments<1> arguments;
    arguments.sources[0] = source;
    arguments.destination = {destination, operands.destination};
    arguments.accumulate = operands.accumulate;
    const KinkFunction<direction> function{
        numbers_.a, slopes().empty() ? nullptr : reinterpret_cast<const float*>(operands.scratch), sides};
    cuda::withAccess(vectorFormat(), [&](auto access) {
      using Access = decltype(access);
      if constexpr (Access::lanes == 1 && readsX) {
        const cuda::ElementGrid grid(shape, 4, 1);
        mtl::cuda::launch(stream, writeSides, grid.grid(), grid.block(), 0, grid, source, sides);
      }
      cuda::launchMap<Access>(stream, arguments, destination, function);
    });
  }

  template <NeuronDirection direction, int inputs>
  void start(mtl::Stream& stream, const Operands& operands) const {
    const TensorShape& shape = problem_.destination;
    const std::byte* const addresses[] = {inputOf(operands), operands.gradient, operands.parameters[0]};
    const TensorShape* const shapes[] = {&problem_.input, &problem_.gradient, &problem_.addend};
    cuda::MapArguments<inputs> arguments;
    arguments.destination = {shape, operands.destination};
    arguments.accumulate = operands.accumulate;
    for (int i = 0; i < inputs; ++i) arguments.sources[i] = {*shapes[i], addresses[i]};
    const auto* const slopesOnDevice = reinterpret_cast<const float*>(operands.scratch);
    cuda::withAccess(vectorFormat(), [&](auto access) {
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
  TensorShape sides_;      ///< of saved sides, in elements, likewise
  NeuronNumbers numbers_;
};

Preparation prepareElements(const NeuronProblem& problem) {
  if (auto refusal = refusalOfResult(problem)) return *refusal;
  for (const TensorShape* shape : {&problem.input, &problem.gradient, &problem.addend, &problem.destination})
    if (!cuda::ElementGrid::fits(*shape)) return Refusal{cuda::ElementGrid::kTooLarge};
  return std::make_shared<const NeuronPlan>(problem);
}

constexpr Implementation<NeuronProblem> kElements{"thread per element", prepareElements};

constexpr Implementation<NeuronProblem> implementations[] = {
    {"16 bytes per thread", prepareVectors<NeuronPlan, kElements>}, kElements};

}  // namespace

std::span<const Implementation<NeuronProblem>> neuronImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
