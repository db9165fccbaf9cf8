#include "mps/instance_normalization/group_normalization.hpp"

#include <utility>

#include "mps/core/coding/coder.hpp"
#include "mps/core/layer/coded_data_sources.hpp"
#include "mps/core/layer/shared_copies.hpp"
#include "mps/core/types/error.hpp"

namespace mps {
namespace {

/// @param source may be null: the base class says so
std::size_t checkedGroups(const CNNGroupNormalizationDataSource* source) {
  if (source == nullptr) return 0;
  const std::size_t groups = source->numberOfGroups();
  const std::size_t channels = source->numberOfFeatureChannels();
  if (groups == 0 || channels % groups != 0)
    throw Error("CNNGroupNormalization", "numberOfGroups", std::to_string(groups),
                "a divisor of the " + std::to_string(channels) + " feature channels");
  return groups;
}

}  // namespace

CNNGroupNormalization::CNNGroupNormalization(std::shared_ptr<mtl::Device> device,
                                             std::shared_ptr<CNNGroupNormalizationDataSource> dataSource)
    : KernelClass("CNNGroupNormalization", std::move(device), dataSource.get(),
                  checkedGroups(dataSource.get())),
      dataSource_(std::move(dataSource)) {}

std::shared_ptr<CNNGroupNormalization> CNNGroupNormalization::create(
    const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNGroupNormalizationDataSource> dataSource) {
  auto kernel =
      std::shared_ptr<CNNGroupNormalization>(new CNNGroupNormalization(device, std::move(dataSource)));
  kernel->reloadGammaAndBetaFromDataSource();
  return kernel;
}

void CNNGroupNormalization::didCopy(bool hasMoved) {
  if (detail::replaceByCopy(dataSource_, device()) || hasMoved) reloadGammaAndBetaFromDataSource();
}

std::shared_ptr<State> CNNGroupNormalization::makeGradientState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::shared_ptr<detail::ImageNormalizationGradients> gradients, std::size_t row) const {
  return CNNGroupNormalizationGradientState::create(
      commandBuffer, std::move(gradients), row,
      std::static_pointer_cast<const CNNGroupNormalization>(shared_from_this()));
}

std::shared_ptr<CNNGroupNormalizationGradient> CNNGroupNormalizationGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNGroupNormalizationGradient>(new CNNGroupNormalizationGradient(device));
}

void CNNGroupNormalization::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  const auto source = detail::codeDataSource<detail::CodedGroupNormalizationDataSource>(coder, dataSource_);
  codeParameters(coder, *create(device(), source));
}

}  // namespace mps
