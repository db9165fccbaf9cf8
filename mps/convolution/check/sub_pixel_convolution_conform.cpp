#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mps/conform/kernel_cases.hpp"
#include "mps/convolution/check/convolution_cases.hpp"
#include "mps/convolution/check/convolution_fixed_weights.hpp"
#include "mps/convolution/check/convolution_reference.hpp"
#include "mps/convolution/check/sub_pixel_convolution_cases.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/sub_pixel_convolution.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

using SubPixelImplementation = Implementation<SubPixelConvolutionProblem>;

void runPlan(ConformRun& run, const SubPixelImplementation& implementation,
             SubPixelConvolutionProblem problem, Tier tier) {
  ConvolutionProblem& convolution = problem.convolution;
  convolution.threadCount = run.device()->threadCount();
  convolution.deviceName = run.device()->name();
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const RandomKind kind = valuesFor(tier, ImageFeatureChannelFormat::Float32);
  TestTensor source = run.source(convolution.source, valuesFor(tier, convolution.source.format), 1);
  TestTensor weights = run.source(TensorShape::dense(1, 1, 1, convolution.weightCount()), kind, 1);
  TestTensor bias = run.source(TensorShape::dense(1, 1, 1, convolution.biasCount()), kind, 1);
  TestTensor destination = run.destination(problem.destination);
  Operands operands;
  operands.source = source.address();
  operands.destination = destination.address();
  operands.parameters = {weights.address(), bias.address()};
  run.execute(*plan, operands);
  for (TestTensor* input : {&source, &weights, &bias})
    run.require(input->isUnchanged(), "an input was written");
  const ReferenceTensor result =
      convolutionForwardReference(convolution, source.reference(), weights.read(), bias.read());
  run.check(
      subPixelReference(result, problem.scaleFactor, problem.destination.height, problem.destination.width),
      destination);
}

void runKernel(ConformRun& run, std::size_t factor, const KernelBatch& batch, ConformFormats formats,
               Tier tier) {
  auto descriptor =
      CNNSubPixelConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, batch.channels, 5 * factor * factor);
  descriptor.setSubPixelScaleFactor(factor);
  const RandomKind kind = valuesFor(tier, ImageFeatureChannelFormat::Float32);
  const auto weights = run.values(descriptor.weightCount(), kind);
  const auto biases = run.values(descriptor.outputFeatureChannels(), kind);
  const auto kernel = CNNConvolution::create(
      run.device(),
      std::make_shared<FixedWeights>(descriptor, std::vector<float>(weights.begin(), weights.end()),
                                     std::vector<float>(biases.begin(), biases.end())));
  const TestImages sources =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  const auto signedFactor = static_cast<std::int64_t>(factor);
  const auto height = static_cast<std::int64_t>(batch.height);
  const auto width = static_cast<std::int64_t>(batch.width);
  ConvolutionProblem problem;
  problem.x = sameWindow(width, 3);
  problem.y = sameWindow(height, 3);
  problem.inputFeatureChannels = static_cast<std::int64_t>(batch.channels);
  problem.outputFeatureChannels = 5 * signedFactor * signedFactor;
  problem.hasBias = true;
  problem.source = sources.shape();
  problem.destination =
      TensorShape::dense(problem.source.images, height, width, problem.outputFeatureChannels, formats.result);
  runForwardKernel(run, *kernel, sources, batch.form, formats.result, [&](const ReferenceTensor& source) {
    return subPixelReference(
        convolutionForwardReference(problem, source, std::vector<double>(weights.begin(), weights.end()),
                                    std::vector<double>(biases.begin(), biases.end())),
        signedFactor, signedFactor * height, signedFactor * width);
  });
}

}  // namespace

void conformSubPixelConvolution(Conform& conform) {
  for (const SubPixelImplementation& implementation : conform.implementations(subPixelConvolutionBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded})
      for (const ConformFormats formats : kForwardFormats) {
        const ConformKey key{"CNNConvolution", Direction::Forward, formats.source,
                             std::string(implementation.name), tier};
        if (!conform.isSelected(key)) continue;
        std::vector<ConformCase> cases;
        for (const SubPixelCase& one : subPixelCases())
          cases.push_back({std::string(one.convolution.name), [=](ConformRun& run) {
                             runPlan(run, implementation, one.problem(formats.source, formats.result), tier);
                           }});
        for (const std::size_t factor : {std::size_t{2}, std::size_t{3}})
          for (const KernelBatch& batch : kernelBatches())
            cases.push_back({"ScaleFactor" + std::to_string(factor) + batch.name,
                             [=](ConformRun& run) { runKernel(run, factor, batch, formats, tier); }});
        conformRow(conform, key, cases);
      }
}

}  // namespace mps::detail
