#include "mps/core/coding/core_decoders.hpp"

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/image.hpp"
#include "mps/core/image/image_allocator.hpp"
#include "mps/core/kernel/padding.hpp"
#include "mps/core/layer/coded_data_sources.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

/// There is one allocator of each kind.
void addAllocator(Coder& coder, const std::shared_ptr<ImageAllocator>& allocator) {
  coder.setDecoder(allocator->className(), [allocator](Coder& data, const std::shared_ptr<mtl::Device>&) {
    data.codeClass(allocator->className());
    return allocator;
  });
}

template <class Source>
void addDataSource(Coder& coder, const char* className) {
  coder.setDecoder(className, [](Coder& data, const std::shared_ptr<mtl::Device>&) {
    return std::make_shared<Source>(data);
  });
}

}  // namespace

void addCoreDecoders(Coder& coder) {
  coder.setDecoder("NNDefaultPadding", [](Coder& data, const std::shared_ptr<mtl::Device>&) {
    return NNDefaultPadding::decode(data);
  });
  coder.setDecoder("LossScale", [](Coder& data, const std::shared_ptr<mtl::Device>& device) {
    return LossScale::decode(data, device);
  });
  addAllocator(coder, Image::defaultAllocator());
  addAllocator(coder, TemporaryImage::defaultAllocator());
  addDataSource<CodedConvolutionDataSource>(coder, "CodedConvolutionDataSource");
  addDataSource<CodedBatchNormalizationDataSource>(coder, "CodedBatchNormalizationDataSource");
  addDataSource<CodedInstanceNormalizationDataSource>(coder, "CodedInstanceNormalizationDataSource");
  addDataSource<CodedGroupNormalizationDataSource>(coder, "CodedGroupNormalizationDataSource");
}

}  // namespace mps::detail
