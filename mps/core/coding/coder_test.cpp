#include "mps/core/coding/coder.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/image/image.hpp"
#include "mps/core/image/image_allocator.hpp"
#include "mps/core/kernel/padding.hpp"
#include "mps/core/layer/convolution_descriptor.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/core/testing/test_images.hpp"

/// The coder by itself: docs/decisions.md, D1. Kernels are tested in mps/graph, which knows them all.
namespace mps::coder_test {
namespace {

using nlohmann::json;
using testing::errorOf;
using testing::names;
using Bytes = std::vector<std::byte>;

Bytes bytesOf(const json& tree) {
  const std::vector<std::uint8_t> cbor = json::to_cbor(tree);
  const auto bytes = std::as_bytes(std::span(cbor));
  return {bytes.begin(), bytes.end()};
}

Bytes bytesOf(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

json treeOf(const Bytes& bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return json::from_cbor(first, first + bytes.size());
}

template <class T>
Bytes encoded(const T& value) {
  KeyedArchiver archiver;
  archiver.encode("value", value);
  return archiver.encodedData();
}

template <class T>
T decoded(const Bytes& bytes, T value = {}) {
  KeyedUnarchiver unarchiver(bytes);
  unarchiver.decode("value", value);
  unarchiver.checkAllRead();
  return value;
}

template <class T>
std::string errorOfDecoding(const json& value, T into = {}) {
  return errorOf([&] { decoded<T>(bytesOf(json{{"value", value}}), into); });
}

TEST(Coder, NumbersKeepTheirValue) {
  for (const bool value : {false, true}) EXPECT_EQ(decoded<bool>(encoded(value)), value);
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{255}, std::uint64_t{1} << 53U,
                                    std::numeric_limits<std::uint64_t>::max()})
    EXPECT_EQ(decoded<std::uint64_t>(encoded(value)), value);
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(decoded<std::int64_t>(encoded(value)), value);
  EXPECT_EQ(decoded<std::uint32_t>(encoded(std::uint32_t{0xFFFFFFFF})), 0xFFFFFFFFU);
  EXPECT_EQ(decoded<std::string>(encoded(std::string("a \"label\"\0 \xFF", 12))),
            std::string("a \"label\"\0 \xFF", 12));
}

template <class Float>
void expectSameBits() {
  using Limits = std::numeric_limits<Float>;
  for (const Float value : {Float{0}, -Float{0}, Float{1} / 3, Limits::denorm_min(), Limits::min(),
                            Limits::max(), Limits::lowest(), Limits::infinity(), -Limits::infinity()}) {
    const Float found = decoded<Float>(encoded(value));
    using Bits = std::array<std::byte, sizeof value>;
    EXPECT_EQ(std::bit_cast<Bits>(found), std::bit_cast<Bits>(value)) << value;
  }
  EXPECT_TRUE(std::isnan(decoded<Float>(encoded(Limits::quiet_NaN()))));
}

TEST(Coder, FloatingPointNumbersKeepTheirBits) {
  expectSameBits<float>();
  expectSameBits<double>();
}

TEST(Coder, ArraysKeepTheirBits) {
  std::vector<float> values{1, -0.0F, std::numeric_limits<float>::infinity()};
  const std::uint32_t oddNaN = 0xFFC12345U;
  values.push_back(0);
  std::memcpy(&values.back(), &oddNaN, sizeof oddNaN);
  const auto found = decoded<std::vector<float>>(encoded(values));
  ASSERT_EQ(found.size(), values.size());
  EXPECT_EQ(std::memcmp(found.data(), values.data(), values.size() * sizeof(float)), 0);
  EXPECT_TRUE(decoded<std::vector<float>>(encoded(std::vector<float>{})).empty());
  EXPECT_EQ(decoded<std::vector<std::size_t>>(encoded(std::vector<std::size_t>{7, 8})),
            (std::vector<std::size_t>{7, 8}));
}

TEST(Coder, ValueTypes) {
  const Offset offset{-1, 2, std::numeric_limits<std::int64_t>::min()};
  EXPECT_EQ(decoded<Offset>(encoded(offset)), offset);
  EXPECT_EQ(decoded<mtl::Region>(encoded(RectNoClip)), RectNoClip);
  EXPECT_EQ(decoded<ImageCoordinate>(encoded(ImageCoordinate{1, 2, 3})), (ImageCoordinate{1, 2, 3}));
  const auto neuron = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(std::vector<float>{0.25F, -1});
  EXPECT_EQ(decoded<NNNeuronDescriptor>(encoded(neuron)), neuron);
}

TEST(Coder, ConvolutionDescriptor) {
  CNNConvolutionDescriptor descriptor =
      CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(3, 5, 2, 4);
  descriptor.setStrideInPixelsX(2);
  descriptor.setStrideInPixelsY(3);
  descriptor.setDilationRateX(4);
  descriptor.setDilationRateY(5);
  descriptor.setFusedNeuronDescriptor(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ELU, 0.5F));
  descriptor.setBatchNormalizationParametersForInference(std::vector<float>{1, 2, 3, 4}, {}, {}, {}, 0.5F);
  const auto found =
      decoded(encoded(descriptor), CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 1));
  EXPECT_EQ(encoded(found), encoded(descriptor));
  EXPECT_EQ(found.channelMultiplier(), 2U);
  EXPECT_EQ(found.kernelHeight(), 5U);
  EXPECT_EQ(found.dilationRateY(), 5U);
  EXPECT_EQ(found.fusedNeuronDescriptor(), descriptor.fusedNeuronDescriptor());
  ASSERT_NE(found.folding(), nullptr);
  EXPECT_EQ(found.folding()->scale, descriptor.folding()->scale);
  EXPECT_EQ(found.folding()->shift, descriptor.folding()->shift);

  const auto errorWith = [&](const char* key, const json& value) {
    json tree = treeOf(encoded(descriptor));
    tree["value"][key] = value;
    return errorOf(
        [&] { decoded(bytesOf(tree), CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 1)); });
  };
  EXPECT_TRUE(names(errorWith("kernelWidth", 0U), {"kernelWidth", "0"}));
  EXPECT_TRUE(names(errorWith("groups", 3U), {"groups", "3"}));
  EXPECT_TRUE(names(errorWith("outputFeatureChannels", 5U), {"outputFeatureChannels", "5"}));
  EXPECT_TRUE(names(errorWith("foldedShift", json::binary({0, 0, 0, 0})), {"foldedShift", "1 values"}));
  EXPECT_TRUE(names(errorWith("inputFeatureChannels", 4294967296U), {"inputFeatureChannels", "4294967296"}));
}

TEST(Coder, ImageDescriptor) {
  ImageDescriptor descriptor(ImageFeatureChannelFormat::Unorm16, 7, 5, 3, 2, TextureUsage::ShaderRead);
  descriptor.setStorageMode(mtl::StorageMode::Private);
  descriptor.setCpuCacheMode(mtl::CPUCacheMode::WriteCombined);
  EXPECT_EQ(decoded<ImageDescriptor>(encoded(descriptor)), descriptor);
  EXPECT_EQ(decoded<ImageDescriptor>(encoded(ImageDescriptor())), ImageDescriptor());
  const auto errorWith = [&](const char* key, std::uint64_t value) {
    json tree = treeOf(encoded(descriptor));
    tree["value"][key] = value;
    return errorOf([&] { decoded<ImageDescriptor>(bytesOf(tree)); });
  };
  EXPECT_TRUE(names(errorWith("channelFormat", 5), {"ImageDescriptor", "channelFormat", "5", "0 to 4"}));
  EXPECT_TRUE(names(errorWith("storageMode", 4), {"storageMode", "4"}));
  EXPECT_TRUE(names(errorWith("cpuCacheMode", 2), {"cpuCacheMode", "2"}));
  EXPECT_TRUE(names(errorWith("usage", 4), {"usage", "4"}));
}

TEST(Coder, DescriptorsOfArrays) {
  const auto matrix = MatrixDescriptor::matrixDescriptor(3, 5, 2, 32, 128, DataType::Float32);
  const auto vector = VectorDescriptor::vectorDescriptor(5, 3, 12, DataType::Float16);
  const auto otherMatrix = MatrixDescriptor::matrixDescriptor(1, 1, 4, DataType::Int32);
  const auto otherVector = VectorDescriptor::vectorDescriptor(1, DataType::UInt8);
  EXPECT_EQ(decoded(encoded(matrix), otherMatrix), matrix);
  EXPECT_EQ(decoded(encoded(vector), otherVector), vector);
  // No bytes, a bit alone, a float of 8 bits, and more than there is.
  for (const std::uint32_t type : {0x40000001U, 0x20000000U, 0x10000008U, 0x40000010U}) {
    const auto errorWithType = [&](const auto& descriptor) {
      json tree = treeOf(encoded(descriptor));
      tree["value"]["dataType"] = type;
      return errorOf([&] { decoded(bytesOf(tree), descriptor); });
    };
    EXPECT_TRUE(names(errorWithType(matrix), {"MatrixDescriptor", "dataType", std::to_string(type)}));
    EXPECT_TRUE(names(errorWithType(vector), {"VectorDescriptor", "dataType", std::to_string(type)}));
  }
}

TEST(Coder, AnotherTypeThrows) {
  EXPECT_TRUE(names(errorOfDecoding<bool>(1U), {"value", "1", "true or false"}));
  EXPECT_TRUE(names(errorOfDecoding<std::size_t>(true), {"value", "true", "number"}));
  EXPECT_TRUE(names(errorOfDecoding<std::size_t>(-1), {"-1", "0 to"}));
  EXPECT_TRUE(names(errorOfDecoding<std::uint32_t>(std::uint64_t{1} << 32U), {"4294967296", "4294967295"}));
  EXPECT_TRUE(
      names(errorOfDecoding<std::int64_t>(std::uint64_t{1} << 63U), {"9223372036854775808", "integer"}));
  EXPECT_TRUE(names(errorOfDecoding<std::int64_t>(1.5), {"1.5", "integer"}));
  EXPECT_TRUE(names(errorOfDecoding<float>(1U), {"1", "floating-point"}));
  EXPECT_TRUE(names(errorOfDecoding<float>(0.1), {"0.1", "float32"}));
  EXPECT_TRUE(names(errorOfDecoding<float>(1e300), {"1e+300", "float32"}));
  EXPECT_TRUE(names(errorOfDecoding<std::string>(nullptr), {"null", "a text"}));
  EXPECT_TRUE(
      names(errorOfDecoding<std::vector<float>>(json::binary({1, 2, 3})), {"3 bytes", "multiple of 4"}));
  EXPECT_TRUE(names(errorOfDecoding<std::vector<float>>(json::array({1.0})), {"a list", "bytes"}));
  EXPECT_TRUE(names(errorOfDecoding<Offset>("here"), {"a text", "a map"}));
  EXPECT_TRUE(names(errorOfDecoding<Offset>(json{{"x", 1}, {"y", 2}}), {"z", "missing"}));
  EXPECT_TRUE(names(errorOfDecoding<Offset>(json{{"x", 1}, {"y", 2}, {"z", 0}, {"w", 4}}),
                    {"w", "no such property"}));
  EXPECT_TRUE(
      names(errorOfDecoding<NNNeuronDescriptor>(json{{"class", "NNNeuronDescriptor"}, {"version", 2U}}),
            {"NNNeuronDescriptor", "version", "2", "1"}));
  EXPECT_TRUE(names(errorOfDecoding<NNNeuronDescriptor>(json{{"class", "CNNNeuron"}, {"version", 1U}}),
                    {"class", "CNNNeuron", "NNNeuronDescriptor"}));
  json neuron = treeOf(encoded(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU)))["value"];
  neuron["neuronType"] = 16U;
  EXPECT_TRUE(names(errorOfDecoding<NNNeuronDescriptor>(neuron), {"neuronType", "16", "0 to 15"}));
}

TEST(Coder, OneDirectionEach) {
  KeyedArchiver archiver;
  bool value = false;
  EXPECT_TRUE(names(errorOf([&] { archiver.decode("value", value); }), {"value", "encodes"}));
  archiver.encode("value", value);
  EXPECT_TRUE(names(errorOf([&] { archiver.encode("value", value); }), {"value", "written already"}));
  KeyedUnarchiver unarchiver(archiver.encodedData());
  EXPECT_TRUE(names(errorOf([&] { unarchiver.encode("other", value); }), {"other", "decodes"}));
  EXPECT_TRUE(names(errorOf([&] { unarchiver.decode("other", value); }), {"other", "missing"}));
}

TEST(Coder, DecodingByAnArchiverThrows) {
  const auto expectRefusal = [](const char* name, auto decode) {
    KeyedArchiver archiver;
    EXPECT_TRUE(names(errorOf([&] { (void)decode(archiver); }), {name, "encodes"}));
  };
  expectRefusal("ImageDescriptor", [](Coder& coder) { return ImageDescriptor::decode(coder); });
  expectRefusal("MatrixDescriptor", [](Coder& coder) { return MatrixDescriptor::decode(coder); });
  expectRefusal("VectorDescriptor", [](Coder& coder) { return VectorDescriptor::decode(coder); });
  expectRefusal("NNDefaultPadding", [](Coder& coder) { return NNDefaultPadding::decode(coder); });
  expectRefusal("NNNeuronDescriptor", [](Coder& coder) { return NNNeuronDescriptor::decode(coder); });
  expectRefusal("CNNConvolutionDescriptor",
                [](Coder& coder) { return CNNConvolutionDescriptor::decode(coder); });
}

std::string errorOfReading(const Bytes& bytes) {
  return errorOf([&] { KeyedUnarchiver unarchiver(bytes); });
}

TEST(Coder, WhatIsNoMapOfCBORThrows) {
  EXPECT_TRUE(names(errorOfReading({}), {"KeyedUnarchiver", "no CBOR"}));
  EXPECT_TRUE(names(errorOfReading(bytesOf({0x01})), {"of another kind", "map"}));
  EXPECT_TRUE(names(errorOfReading(bytesOf({0x80})), {"of another kind", "map"}));
  EXPECT_TRUE(names(errorOfReading(bytesOf({0xA0, 0xA0})), {"no CBOR at byte 2"}));
  EXPECT_TRUE(names(errorOfReading(bytesOf({0xA1, 0x01, 0x01})), {"no CBOR"}));  // a key that is no text
  EXPECT_TRUE(names(errorOfReading(bytesOf({0xA1, 0x61, 'a', 0xC0, 0x01})), {"no CBOR"}));  // a tag
  EXPECT_TRUE(names(errorOfReading(bytesOf({0xA2, 0x61, 'a', 1, 0x61, 'a', 2})), {"\"a\"", "twice"}));
  // Lengths of 2^62 for what is not there.
  for (const int type : {0x5B, 0x7B, 0x9B, 0xBB})
    EXPECT_FALSE(errorOfReading(bytesOf({0xA1, 0x61, 'a', type, 0x40, 0, 0, 0, 0, 0, 0, 0})).empty());
  EXPECT_TRUE(names(errorOfReading(bytesOf(json{{"$objects", 1}})), {"$objects", "array"}));
  EXPECT_TRUE(names(errorOfReading(bytesOf(json{{"$objects", {1}}})), {"$objects", "maps"}));
}

TEST(Coder, NestingAndCountAreBounded) {
  for (const int opening : {0x81, 0x9F}) {
    Bytes deep = bytesOf({0xA1, 0x61, 'a'});
    deep.insert(deep.end(), 1000000, static_cast<std::byte>(opening));
    EXPECT_TRUE(names(errorOfReading(deep), {"nested deeper than 16"}));
  }
  Bytes many = bytesOf({0xA1, 0x61, 'a', 0x9F});
  many.insert(many.end(), (std::size_t{1} << 20U) + 1, std::byte{0});
  many.push_back(std::byte{0xFF});
  EXPECT_TRUE(names(errorOfReading(many), {"more than 1048576 values"}));
}

/// The reader would call itself for each.
TEST(Coder, ChunksAreRefused) {
  for (const int opening : {0x5F, 0x7F}) {
    Bytes deep = bytesOf({0xA1, 0x61, 'a'});
    deep.insert(deep.end(), 1000000, static_cast<std::byte>(opening));
    EXPECT_TRUE(names(errorOfReading(deep), {"KeyedUnarchiver", "chunks"}));
  }
  EXPECT_TRUE(names(errorOfReading(bytesOf({0xA1, 0x7F, 0x61, 'a', 0xFF, 1})), {"chunks"}));  // a key
  // What looks like their beginning within a number, text or bytes is none; behind them it is.
  for (const std::vector<int>& value : {std::vector{0x1B, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F},
                                        {0x82, 0xFA, 0x7F, 0, 0, 0, 1},
                                        {0x62, 0x7F, 0x5F},
                                        {0x58, 2, 0x7F, 0x5F}}) {
    Bytes map = bytesOf({0xA2, 0x61, 'a'});
    for (const int byte : value) map.push_back(static_cast<std::byte>(byte));
    map.insert(map.end(), {std::byte{0x61}, std::byte{'b'}, std::byte{0x01}});
    EXPECT_EQ(errorOfReading(map), "");
    map.back() = std::byte{0x7F};
    EXPECT_TRUE(names(errorOfReading(map), {"chunks"}));
  }
}

/// The reader would make another number of them, up to 2^63 - 1.
TEST(Coder, IntegersBelowTheSmallestAreRefused) {
  const auto minus = [](int first, int others) {
    return bytesOf({0xA1, 0x61, 'x', 0x3B, first, others, others, others, others, others, others, others});
  };
  EXPECT_TRUE(names(errorOfReading(minus(0x80, 0)), {"KeyedUnarchiver", "integer below -2^63"}));
  EXPECT_TRUE(names(errorOfReading(minus(0xFF, 0xFF)), {"integer below -2^63"}));
  std::int64_t smallest = 0;
  KeyedUnarchiver(minus(0x7F, 0xFF)).decode("x", smallest);
  EXPECT_EQ(smallest, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(errorOfReading(bytesOf({0xA1, 0x61, 'x', 0xFB, 0x80, 0, 0, 0, 0, 0, 0, 0})), "") << "-0.0";
}

/// A policy of the user's own that can be coded.
class RowPadding final : public NNPadding {
 public:
  explicit RowPadding(std::size_t count) : rows(count) {}
  [[nodiscard]] NNPaddingMethod paddingMethod() const override { return NNPaddingMethod::SizeSame; }
  [[nodiscard]] std::string className() const override { return "RowPadding"; }
  void encode(Coder& coder) const override {
    coder.codeClass(className());
    coder.encode("rows", rows);
  }
  static std::shared_ptr<RowPadding> decode(Coder& coder) {
    coder.codeClass("RowPadding");
    std::size_t count = 0;
    coder.decode("rows", count);
    return std::make_shared<RowPadding>(count);
  }
  std::size_t rows;
};

void addRowPadding(Coder& coder) {
  coder.setDecoder("RowPadding",
                   [](Coder& data, const std::shared_ptr<mtl::Device>&) { return RowPadding::decode(data); });
}

TEST(Coder, ASharedObjectIsOneAgain) {
  const std::shared_ptr<NNPadding> one = std::make_shared<RowPadding>(7);
  const std::shared_ptr<NNPadding> other = std::make_shared<RowPadding>(7);
  KeyedArchiver archiver;
  archiver.encode("first", one);
  archiver.encode("second", other);
  archiver.encode("third", one);
  archiver.encode("none", std::shared_ptr<NNPadding>());
  const Bytes bytes = archiver.encodedData();
  EXPECT_EQ(treeOf(bytes)["$objects"].size(), 2U);

  KeyedUnarchiver unarchiver(bytes);
  addRowPadding(unarchiver);
  std::shared_ptr<NNPadding> first;
  std::shared_ptr<NNPadding> second;
  std::shared_ptr<NNPadding> third;
  std::shared_ptr<NNPadding> none = one;
  unarchiver.decode("third", third);  // in another order than they were written
  unarchiver.decode("first", first);
  unarchiver.decode("second", second);
  unarchiver.decodeOptional("none", none);
  EXPECT_EQ(first, third);
  EXPECT_NE(first, second);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(std::dynamic_pointer_cast<RowPadding>(second)->rows, 7U);
  EXPECT_TRUE(names(errorOf([&] { unarchiver.decode("none", none); }), {"none", "null"}));
  std::shared_ptr<ImageAllocator> allocator;
  EXPECT_TRUE(names(errorOf([&] { unarchiver.decode("first", allocator); }),
                    {"first", "RowPadding", "another kind"}));
}

TEST(Coder, ObjectsOfTheLibrary) {
  KeyedArchiver archiver;
  std::shared_ptr<NNPadding> policy = NNDefaultPadding::paddingForTensorflowAveragePooling();
  archiver.encode("policy", policy);
  archiver.encode("permanent", Image::defaultAllocator());
  archiver.encode("temporary", TemporaryImage::defaultAllocator());
  const Bytes bytes = archiver.encodedData();
  KeyedUnarchiver unarchiver(bytes);
  std::shared_ptr<NNPadding> found;
  std::shared_ptr<ImageAllocator> permanent;
  std::shared_ptr<ImageAllocator> temporary;
  unarchiver.decode("policy", found);
  unarchiver.decode("permanent", permanent);
  unarchiver.decode("temporary", temporary);
  EXPECT_EQ(found->paddingMethod(), policy->paddingMethod());
  EXPECT_NE(std::dynamic_pointer_cast<NNDefaultPadding>(found), nullptr);
  EXPECT_EQ(permanent, Image::defaultAllocator());
  EXPECT_EQ(temporary, TemporaryImage::defaultAllocator());
}

TEST(Coder, LossScaleOnAnotherDevice) {
  LossScaleOptions options;
  options.growthInterval = 5;
  const auto scale = LossScale::create(mtl::newCPUDevice(1), options);
  scale->set(1024, 3, 2);
  const auto device = mtl::newCPUDevice(1);
  KeyedArchiver archiver;
  scale->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData(), device);
  const auto found = LossScale::decode(unarchiver);
  EXPECT_EQ(found->device(), device);
  EXPECT_EQ(found->scale(), 1024);
  EXPECT_EQ(found->finiteSteps(), 3U);
  EXPECT_EQ(found->skippedSteps(), 2U);
  EXPECT_EQ(found->options().growthInterval, 5U);
}

/// docs/decisions.md, D1: the device that is named comes before that of the coder, and that one before the system's.
TEST(Coder, D1ADeviceProviderNamesTheDevice) {
  KeyedArchiver archiver;
  LossScale::create(mtl::newCPUDevice(1))->encode(archiver);
  const Bytes bytes = archiver.encodedData();
  const auto device = mtl::newCPUDevice(1);
  const auto other = mtl::newCPUDevice(1);
  KeyedUnarchiver naming(bytes, device);
  const DeviceProvider& provider = naming;
  EXPECT_EQ(provider.mpsMTLDevice(), device);
  EXPECT_EQ(LossScale::decode(naming)->device(), device);
  KeyedUnarchiver overruled(bytes, device);
  EXPECT_EQ(LossScale::decode(overruled, other)->device(), other);
  KeyedUnarchiver silent(bytes);
  EXPECT_EQ(static_cast<const DeviceProvider&>(silent).mpsMTLDevice(), nullptr);
  EXPECT_EQ(LossScale::decode(silent)->device(), mtl::createSystemDefaultDevice());
}

TEST(Coder, WrongReferencesThrow) {
  const auto error = [](const json& reference, const json& objects) {
    KeyedUnarchiver unarchiver(bytesOf(json{{"value", reference}, {"$objects", objects}}));
    addRowPadding(unarchiver);
    std::shared_ptr<NNPadding> found;
    return errorOf([&] { unarchiver.decode("value", found); });
  };
  const json good{{"class", "RowPadding"}, {"version", 1U}, {"rows", 1U}};
  EXPECT_EQ(error(0U, json::array({good})), "");
  EXPECT_TRUE(names(error(1U, json::array({good})), {"value", "1", "one of 1 objects"}));
  EXPECT_TRUE(names(error("RowPadding", json::array({good})), {"a text", "number"}));
  EXPECT_TRUE(names(error(0U, json::array({json::object()})), {"without a class"}));
  EXPECT_TRUE(names(error(0U, json::array({json{{"class", "Other"}}})), {"a Other", "setDecoder"}));
  json more = good;
  more["columns"] = 2U;
  EXPECT_TRUE(names(error(0U, json::array({more})), {"RowPadding", "columns", "no such property"}));
}

/// Refers to another object, or to itself.
class Chain final : public NNPadding {
 public:
  [[nodiscard]] NNPaddingMethod paddingMethod() const override { return NNPaddingMethod::SizeSame; }
  static std::shared_ptr<Chain> decode(Coder& coder) {
    coder.codeClass("Chain");
    auto chain = std::make_shared<Chain>();
    coder.decodeOptional("next", chain->next);
    return chain;
  }
  std::shared_ptr<NNPadding> next;
};

TEST(Coder, CyclesAndLongChainsThrow) {
  const auto error = [](std::size_t length, bool closed) {
    json objects = json::array();
    for (std::size_t i = 0; i < length; ++i)
      objects.push_back({{"class", "Chain"}, {"version", 1U}, {"next", i + 1}});
    objects[length - 1]["next"] = closed ? json(0U) : json(nullptr);
    KeyedUnarchiver unarchiver(bytesOf(json{{"value", 0U}, {"$objects", objects}}));
    unarchiver.setDecoder(
        "Chain", [](Coder& data, const std::shared_ptr<mtl::Device>&) { return Chain::decode(data); });
    std::shared_ptr<NNPadding> found;
    return errorOf([&] { unarchiver.decode("value", found); });
  };
  EXPECT_EQ(error(10, false), "");
  EXPECT_TRUE(names(error(1, true), {"next", "itself"}));
  EXPECT_TRUE(names(error(3, true), {"next", "itself"}));
  EXPECT_FALSE(error(100000, false).empty());
}

TEST(Coder, SizesHaveALimit) {
  CodingLimits limits;
  limits.size = 100;
  const auto error = [&](const json& tree, const auto& decode) {
    const Bytes bytes = bytesOf(tree);
    KeyedUnarchiver unarchiver(bytes, nullptr, limits);
    return errorOf([&] { decode(unarchiver); });
  };
  const auto size = [&](std::uint64_t number) {
    return error(json{{"width", number}}, [](Coder& coder) {
      std::size_t value = 0;
      coder.codeSize("width", value);
    });
  };
  EXPECT_EQ(size(100), "");
  EXPECT_TRUE(names(size(101), {"width", "101", "at most 100 (CodingLimits::size)"}));
  EXPECT_FALSE(size(std::numeric_limits<std::uint64_t>::max()).empty());
  const auto sizeOrAll = [&](std::uint64_t number) {
    return error(json{{"count", number}}, [](Coder& coder) {
      std::size_t value = 0;
      coder.codeSizeOrAll("count", value);
    });
  };
  EXPECT_EQ(sizeOrAll(100), "");
  EXPECT_FALSE(sizeOrAll(101).empty());
  EXPECT_EQ(sizeOrAll(std::numeric_limits<std::uint64_t>::max()), "");
  const auto padding = [&](std::uint64_t channel) {
    return error(json{{"padding", {{"x", 1U}, {"y", 2U}, {"channel", channel}}}}, [](Coder& coder) {
      ImageCoordinate value{};
      coder.codeSize("padding", value);
    });
  };
  EXPECT_EQ(padding(100), "");
  EXPECT_FALSE(padding(101).empty());
  const auto region = [&](std::uint64_t origin, std::uint64_t width) {
    return error(json{{"clip",
                       {{"origin", {{"x", origin}, {"y", 0U}, {"z", 0U}}},
                        {"size", {{"width", width}, {"height", 1U}, {"depth", 1U}}}}}},
                 [](Coder& coder) {
                   mtl::Region value{};
                   coder.codeSizeOrAll("clip", value);
                 });
  };
  EXPECT_EQ(region(0, 100), "");
  EXPECT_EQ(region(0, std::numeric_limits<std::uint64_t>::max()), "");
  EXPECT_FALSE(region(0, 101).empty());
  EXPECT_FALSE(region(101, 1).empty());
}

TEST(Coder, WhatIsEncodedHasNoLimit) {
  std::size_t size = std::size_t{1} << 40U;
  KeyedArchiver archiver;
  archiver.codeSize("width", size);
  EXPECT_EQ(treeOf(archiver.encodedData())["width"], size);
}

TEST(Coder, AClassThatCannotBeCodedThrows) {
  class Plain final : public NNPadding {
    [[nodiscard]] NNPaddingMethod paddingMethod() const override { return NNPaddingMethod::SizeSame; }
  };
  KeyedArchiver archiver;
  const std::shared_ptr<NNPadding> policy = std::make_shared<Plain>();
  EXPECT_TRUE(names(errorOf([&] { archiver.encode("padding", policy); }), {"className()", "encode(coder)"}));
}

}  // namespace
}  // namespace mps::coder_test
