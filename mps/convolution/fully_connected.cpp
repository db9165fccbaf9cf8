#include "mps/convolution/fully_connected.hpp"

#include "mps/convolution/convolution_problem.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/error.hpp"

namespace mps {
namespace {

void checkDescriptor(const char* className, const CNNConvolutionDescriptor& descriptor) {
  const auto one = [&](const char* property, std::size_t value) {
    if (value != 1) throw Error(className, property, std::to_string(value), "1");
  };
  one("strideInPixelsX", descriptor.strideInPixelsX());
  one("strideInPixelsY", descriptor.strideInPixelsY());
  one("dilationRateX", descriptor.dilationRateX());
  one("dilationRateY", descriptor.dilationRateY());
  one("groups", descriptor.groups());
  one("subPixelScaleFactor", descriptor.subPixelScaleFactor());
}

/// One window that covers the whole source.
void coverSource(const std::string& kernel, detail::ConvolutionProblem& problem, std::int64_t sourceWidth,
                 std::int64_t sourceHeight) {
  const auto size = [](std::int64_t width, std::int64_t height) {
    return std::to_string(width) + "x" + std::to_string(height);
  };
  if (sourceWidth != problem.x.kernelSize || sourceHeight != problem.y.kernelSize)
    throw Error(kernel, "sourceImage", size(sourceWidth, sourceHeight) + " pixels",
                size(problem.x.kernelSize, problem.y.kernelSize) + ", the kernel's size");
  if (problem.x.destinationSize != 1 || problem.y.destinationSize != 1)
    throw Error(kernel, "destinationImage",
                size(problem.x.destinationSize, problem.y.destinationSize) + " pixels",
                "1x1, or a clipRect of that size");
  problem.x.sourceSize = sourceWidth;
  problem.y.sourceSize = sourceHeight;
  problem.x.offset = sourceWidth / 2;
  problem.y.offset = sourceHeight / 2;
}

}  // namespace

CNNFullyConnected::CNNFullyConnected(std::shared_ptr<mtl::Device> device,
                                     std::shared_ptr<CNNConvolutionDataSource> weights)
    : KernelClass(std::move(device), std::move(weights), "CNNFullyConnected") {
  checkDescriptor("CNNFullyConnected", descriptor());
  setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
}

std::shared_ptr<CNNFullyConnected> CNNFullyConnected::create(
    const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNFullyConnected>(new CNNFullyConnected(device, std::move(weights)));
}

void CNNFullyConnected::placeWindow(detail::ConvolutionProblem& problem) const {
  coverSource(describe(), problem, problem.source.width, problem.source.height);
}

CNNFullyConnectedGradient::CNNFullyConnectedGradient(std::shared_ptr<mtl::Device> device,
                                                     std::shared_ptr<CNNConvolutionDataSource> weights)
    : KernelClass(std::move(device), std::move(weights), "CNNFullyConnectedGradient") {
  checkDescriptor("CNNFullyConnectedGradient", dataSource()->descriptor());
}

std::shared_ptr<CNNFullyConnectedGradient> CNNFullyConnectedGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNFullyConnectedGradient>(
      new CNNFullyConnectedGradient(device, std::move(weights)));
}

bool CNNFullyConnectedGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNFullyConnected";
}

void CNNFullyConnectedGradient::placeWindow(detail::ConvolutionProblem& problem) const {
  const bool data = problem.operation == detail::ConvolutionOperation::DataGradient;
  coverSource(describe(), problem, data ? problem.destination.width : problem.source.width,
              data ? problem.destination.height : problem.source.height);
}

void CNNFullyConnected::codeProperties(Coder& coder) {
  CNNConvolution::codeProperties(coder);
  checkDescriptor("CNNFullyConnected", descriptor());
}

void CNNFullyConnectedGradient::codeProperties(Coder& coder) {
  CNNConvolutionGradient::codeProperties(coder);
  checkDescriptor("CNNFullyConnectedGradient", descriptor());
}

}  // namespace mps
