#include "mps/core/layer/coded_data_sources.hpp"

#include <utility>

#include "mps/core/coding/coder.hpp"
#include "mps/core/layer/loaded_source.hpp"

namespace mps::detail {
namespace {

std::vector<float> writtenOut(std::span<const float> values, std::size_t count, float byDefault) {
  if (values.empty()) return std::vector<float>(count, byDefault);
  return {values.begin(), values.end()};
}

/// Of sources that have nothing to load.
CodedNormalizationValues valuesOf(const ImageNormalizationDataSource& source) {
  return {source.numberOfFeatureChannels(), source.gamma(), source.beta(), source.label(), source.epsilon()};
}

void codeArray(Coder& coder, const char* key, std::vector<float>& values, std::size_t count) {
  coder.code(key, values);
  if (values.size() != count || count == 0)
    coder.refuse(key, std::to_string(values.size()) + " values", "one for each feature channel");
}

/// Writes through a function that lists the properties for both directions.
template <class Source>
void encodeBy(const Source& source, Coder& coder, void (Source::*codeProperties)(Coder&)) {
  Source copy = source;
  (copy.*codeProperties)(coder);
}

}  // namespace

CodedConvolutionDataSource::CodedConvolutionDataSource(CNNConvolutionDataSource& source)
    : descriptor_(source.descriptor()) {
  readLoaded("Coder", "dataSource", source, [&] {
    dataType_ = source.dataType();
    weights_.assign(source.weights().begin(), source.weights().end());
    biases_.assign(source.biasTerms().begin(), source.biasTerms().end());
    label_ = source.label();
    quantization_ = source.weightsQuantizationType();
    ranges_.assign(source.rangesForUInt8Kernel().begin(), source.rangesForUInt8Kernel().end());
    table_.assign(source.lookupTableForUInt8Kernel().begin(), source.lookupTableForUInt8Kernel().end());
  });
}

CodedConvolutionDataSource::CodedConvolutionDataSource(Coder& coder) {
  codeProperties(coder);
}

void CodedConvolutionDataSource::encode(Coder& coder) const {
  encodeBy(*this, coder, &CodedConvolutionDataSource::codeProperties);
}

void CodedConvolutionDataSource::codeProperties(Coder& coder) {
  coder.codeClass(className());
  coder.code("descriptor", descriptor_);
  coder.codeEnumeration("dataType", dataType_, DataType::Float32);
  coder.code("weights", weights_);
  coder.code("biasTerms", biases_);
  coder.code("label", label_);
  coder.codeEnumeration("weightsQuantizationType", quantization_, CNNWeightsQuantizationType::LookupTable);
  coder.code("rangesForUInt8Kernel", ranges_);
  coder.code("lookupTableForUInt8Kernel", table_);
}

CodedNormalizationValues::CodedNormalizationValues(std::size_t channels, std::span<const float> gammas,
                                                   std::span<const float> betas, std::string name,
                                                   float added)
    : gamma(writtenOut(gammas, channels, 1)),
      beta(writtenOut(betas, channels, 0)),
      label(std::move(name)),
      epsilon(added) {}

void CodedNormalizationValues::codeProperties(Coder& coder) {
  coder.code("gamma", gamma);
  codeArray(coder, "beta", beta, gamma.size());
  coder.code("label", label);
  coder.code("epsilon", epsilon);
}

CodedBatchNormalizationDataSource::CodedBatchNormalizationDataSource(
    CNNBatchNormalizationDataSource& source) {
  readLoaded("Coder", "dataSource", source, [&] {
    const std::size_t channels = source.numberOfFeatureChannels();
    values_ = {channels, source.gamma(), source.beta(), source.label(), source.epsilon()};
    mean_ = writtenOut(source.mean(), channels, 0);
    variance_ = writtenOut(source.variance(), channels, 1);
  });
}

CodedBatchNormalizationDataSource::CodedBatchNormalizationDataSource(Coder& coder) {
  codeProperties(coder);
}

void CodedBatchNormalizationDataSource::encode(Coder& coder) const {
  encodeBy(*this, coder, &CodedBatchNormalizationDataSource::codeProperties);
}

void CodedBatchNormalizationDataSource::codeProperties(Coder& coder) {
  coder.codeClass(className());
  values_.codeProperties(coder);
  codeArray(coder, "mean", mean_, values_.gamma.size());
  codeArray(coder, "variance", variance_, values_.gamma.size());
}

CodedInstanceNormalizationDataSource::CodedInstanceNormalizationDataSource(
    CNNInstanceNormalizationDataSource& source) {
  readLoaded("Coder", "dataSource", source, [&] { values_ = valuesOf(source); });
}

CodedInstanceNormalizationDataSource::CodedInstanceNormalizationDataSource(Coder& coder) {
  coder.codeClass(className());
  values_.codeProperties(coder);
}

void CodedInstanceNormalizationDataSource::encode(Coder& coder) const {
  coder.codeClass(className());
  CodedNormalizationValues(values_).codeProperties(coder);
}

CodedGroupNormalizationDataSource::CodedGroupNormalizationDataSource(CNNGroupNormalizationDataSource& source)
    : values_(valuesOf(source)), groups_(source.numberOfGroups()) {}

CodedGroupNormalizationDataSource::CodedGroupNormalizationDataSource(Coder& coder) {
  codeProperties(coder);
}

void CodedGroupNormalizationDataSource::encode(Coder& coder) const {
  encodeBy(*this, coder, &CodedGroupNormalizationDataSource::codeProperties);
}

void CodedGroupNormalizationDataSource::codeProperties(Coder& coder) {
  coder.codeClass(className());
  values_.codeProperties(coder);
  coder.code("numberOfGroups", groups_);
}

}  // namespace mps::detail
