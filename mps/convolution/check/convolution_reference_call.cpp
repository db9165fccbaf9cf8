#include <utility>

#include "mps/conform/reference_call.hpp"
#include "mps/convolution/check/convolution_reference.hpp"
#include "mps/convolution/sub_pixel_convolution.hpp"
#include "mps/core/neuron/neuron_reference.hpp"

namespace mps::detail {
namespace {

std::span<const double> biasesOf(const ReferenceCall& call, const ConvolutionProblem& problem) {
  return problem.hasBias ? call.parameter(1, problem.biasCount()) : std::span<const double>();
}

ReferenceTensor forward(const ReferenceCall& call, const ConvolutionProblem& problem) {
  const ReferenceTensor source = call.source(problem.source);
  const auto weights = call.parameter(0, problem.weightCount());
  const auto biases = biasesOf(call, problem);
  if (problem.neuron.neuronType() == CNNNeuronType::None || !call.wantsBetween())
    return convolutionForwardReference(problem, source, weights, biases);
  ConvolutionProblem alone = problem;
  alone.neuron = {};
  ReferenceTensor result = convolutionForwardReference(alone, source, weights, biases);
  call.between(result);
  for (std::size_t i = 0; i < result.values.size(); ++i)
    result.values[i] =
        neuronValue(problem.neuron, result.values[i], static_cast<std::int64_t>(i) % result.channels);
  return result;
}

}  // namespace

bool computeConvolution(ReferenceCall& call) {
  if (const auto* spread = call.problem<SubPixelConvolutionProblem>()) {
    call.setDestination(subPixelReference(forward(call, spread->convolution), spread->scaleFactor,
                                          spread->destination.height, spread->destination.width));
    return true;
  }
  const auto* problem = call.problem<ConvolutionProblem>();
  if (problem == nullptr) return false;
  switch (problem->operation) {
    case ConvolutionOperation::Forward:
      call.setDestination(forward(call, *problem));
      break;
    case ConvolutionOperation::DataGradient:
      call.setDestination(convolutionDataGradientReference(
          *problem, call.gradient(problem->gradient), call.parameter(0, problem->weightCount()),
          problem->transposed ? biasesOf(call, *problem) : std::span<const double>()));
      break;
    case ConvolutionOperation::WeightsGradient: {
      auto gradients = convolutionWeightsGradientReference(*problem, call.source(problem->source),
                                                           call.gradient(problem->gradient));
      call.setParameterGradient(2, 0, "weights", std::move(gradients.weights));
      if (problem->hasBias) call.setParameterGradient(3, 1, "biases", std::move(gradients.bias));
      break;
    }
  }
  return true;
}

}  // namespace mps::detail
