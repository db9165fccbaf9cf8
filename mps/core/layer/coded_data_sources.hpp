#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/coding/coder.hpp"
#include "mps/core/layer/batch_normalization_data_source.hpp"
#include "mps/core/layer/convolution_data_source.hpp"
#include "mps/core/layer/image_normalization_data_source.hpp"

/// What takes the place of a data source whose class cannot be coded: the values that it had. They are never updated.
/// The library's own.
namespace mps::detail {

class CodedConvolutionDataSource final : public CNNConvolutionDataSource {
 public:
  /// @throws Error when load() fails
  explicit CodedConvolutionDataSource(CNNConvolutionDataSource& source);
  explicit CodedConvolutionDataSource(Coder& coder);
  [[nodiscard]] std::string className() const override { return "CodedConvolutionDataSource"; }
  void encode(Coder& coder) const override;

  [[nodiscard]] DataType dataType() const override { return dataType_; }
  [[nodiscard]] CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  [[nodiscard]] std::span<const std::byte> weights() const override { return weights_; }
  [[nodiscard]] std::span<const float> biasTerms() const override { return biases_; }
  bool load() override { return true; }
  void purge() override {}
  [[nodiscard]] std::string label() const override { return label_; }
  [[nodiscard]] CNNWeightsQuantizationType weightsQuantizationType() const override { return quantization_; }
  [[nodiscard]] std::span<const std::array<float, 2>> rangesForUInt8Kernel() const override {
    return ranges_;
  }
  [[nodiscard]] std::span<const float> lookupTableForUInt8Kernel() const override { return table_; }

 private:
  void codeProperties(Coder& coder);

  CNNConvolutionDescriptor descriptor_ = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 1);
  DataType dataType_ = DataType::Float32;
  std::vector<std::byte> weights_;
  std::vector<float> biases_;
  std::string label_;
  CNNWeightsQuantizationType quantization_ = CNNWeightsQuantizationType::None;
  std::vector<std::array<float, 2>> ranges_;
  std::vector<float> table_;
};

/// The arrays of a normalisation's data source, all of them written out.
struct CodedNormalizationValues {
  std::vector<float> gamma, beta;
  std::string label;
  float epsilon = 0;

  CodedNormalizationValues() = default;
  CodedNormalizationValues(std::size_t channels, std::span<const float> gammas, std::span<const float> betas,
                           std::string name, float added);
  void codeProperties(Coder& coder);
};

class CodedBatchNormalizationDataSource final : public CNNBatchNormalizationDataSource {
 public:
  explicit CodedBatchNormalizationDataSource(CNNBatchNormalizationDataSource& source);
  explicit CodedBatchNormalizationDataSource(Coder& coder);
  [[nodiscard]] std::string className() const override { return "CodedBatchNormalizationDataSource"; }
  void encode(Coder& coder) const override;

  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return values_.gamma.size(); }
  [[nodiscard]] std::span<const float> gamma() const override { return values_.gamma; }
  [[nodiscard]] std::span<const float> beta() const override { return values_.beta; }
  [[nodiscard]] std::span<const float> mean() const override { return mean_; }
  [[nodiscard]] std::span<const float> variance() const override { return variance_; }
  bool load() override { return true; }
  void purge() override {}
  [[nodiscard]] std::string label() const override { return values_.label; }
  [[nodiscard]] float epsilon() const override { return values_.epsilon; }

 private:
  void codeProperties(Coder& coder);

  CodedNormalizationValues values_;
  std::vector<float> mean_, variance_;
};

class CodedInstanceNormalizationDataSource final : public CNNInstanceNormalizationDataSource {
 public:
  explicit CodedInstanceNormalizationDataSource(CNNInstanceNormalizationDataSource& source);
  explicit CodedInstanceNormalizationDataSource(Coder& coder);
  [[nodiscard]] std::string className() const override { return "CodedInstanceNormalizationDataSource"; }
  void encode(Coder& coder) const override;

  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return values_.gamma.size(); }
  [[nodiscard]] std::span<const float> gamma() const override { return values_.gamma; }
  [[nodiscard]] std::span<const float> beta() const override { return values_.beta; }
  [[nodiscard]] std::string label() const override { return values_.label; }
  [[nodiscard]] float epsilon() const override { return values_.epsilon; }

 private:
  CodedNormalizationValues values_;
};

class CodedGroupNormalizationDataSource final : public CNNGroupNormalizationDataSource {
 public:
  explicit CodedGroupNormalizationDataSource(CNNGroupNormalizationDataSource& source);
  explicit CodedGroupNormalizationDataSource(Coder& coder);
  [[nodiscard]] std::string className() const override { return "CodedGroupNormalizationDataSource"; }
  void encode(Coder& coder) const override;

  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return values_.gamma.size(); }
  [[nodiscard]] std::size_t numberOfGroups() const override { return groups_; }
  [[nodiscard]] std::span<const float> gamma() const override { return values_.gamma; }
  [[nodiscard]] std::span<const float> beta() const override { return values_.beta; }
  [[nodiscard]] std::string label() const override { return values_.label; }
  [[nodiscard]] float epsilon() const override { return values_.epsilon; }

 private:
  void codeProperties(Coder& coder);

  CodedNormalizationValues values_;
  std::size_t groups_ = 1;
};

/// Codes a kernel's data source: itself, or its values in place of one whose class cannot be coded.
/// @return what a decoder gets: whoever encodes compares with it what the kernel holds
template <class Values, class Source>
std::shared_ptr<Source> codeDataSource(Coder& coder, std::shared_ptr<Source>& source) {
  if (coder.isDecoding()) {
    coder.decode("dataSource", source);
    return source;
  }
  std::shared_ptr<Source> coded = source->className().empty() ? std::make_shared<Values>(*source) : source;
  coder.encode("dataSource", coded);
  return coded;
}

}  // namespace mps::detail
