#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"

/// Predicates and the functions that choose a device (section 21).
namespace mps::predicate_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class PredicateTest : public testing::ScaleTest {
 protected:
  /// Runs one encode under a predicate.
  Values underValue(std::uint32_t value) {
    const auto result = poisoned(sizeOf(4, 1, 4));
    const auto buffer = CommandBuffer::create(queue_);
    buffer->setPredicate(predicateOf(value));
    scale_->encode(buffer, source_, result);
    run(buffer);
    return valuesOf(*result);
  }
  [[nodiscard]] std::shared_ptr<Predicate> predicateOf(std::uint32_t value) const {
    auto predicate = Predicate::create(device_);
    predicate->predicateBuffer()->contentsAs<std::uint32_t>()[0] = value;
    return predicate;
  }

  const Values in_ = counted(16);
  const Values untouched_ = Values(16, poison);
  std::shared_ptr<Image> source_ = image(sizeOf(4, 1, 4), in_);
};

TEST_F(PredicateTest, ZeroLeavesTheDestinationAsItWasAndAnyOtherValueRuns) {
  EXPECT_EQ(underValue(0), untouched_);
  EXPECT_EQ(underValue(1), scaled(in_));
  EXPECT_EQ(underValue(0x80000000U), scaled(in_)) << "all 32 bits count";
}

TEST_F(PredicateTest, TheValueAtItsOffsetCounts) {
  const auto values = device_->newBuffer(16);
  values->contentsAs<std::uint32_t>()[2] = 7;
  for (const std::size_t offset : {0U, 4U, 8U, 12U}) {
    const auto predicate = Predicate::create(values, offset);
    EXPECT_EQ(predicate->predicateBuffer(), values);
    EXPECT_EQ(predicate->predicateOffset(), offset);
    const auto result = poisoned(sizeOf(4, 1, 4));
    const auto buffer = CommandBuffer::create(queue_);
    buffer->setPredicate(predicate);
    scale_->encode(buffer, source_, result);
    run(buffer);
    EXPECT_EQ(valuesOf(*result), offset == 8 ? scaled(in_) : untouched_) << offset;
  }
}

TEST_F(PredicateTest, AnOffsetThatIsNoMultipleOf4OrOutsideIsRefused) {
  const auto values = device_->newBuffer(16);
  for (const std::size_t offset : {1U, 2U, 6U, 16U, 20U})
    EXPECT_TRUE(names(errorOf([&] { Predicate::create(values, offset); }),
                      {"Predicate", "offset", std::to_string(offset), "16 bytes"}))
        << offset;
  EXPECT_EQ(errorOf([&] { Predicate::create(values, 12); }), "");
  EXPECT_TRUE(names(errorOf([&] { Predicate::create(values, static_cast<std::size_t>(-4)); }),
                    {"Predicate", "offset", "16 bytes"}));
  EXPECT_TRUE(
      names(errorOf([] { Predicate::create(std::shared_ptr<mtl::Buffer>(), 0); }), {"Predicate", "buffer"}));
  EXPECT_TRUE(
      names(errorOf([] { Predicate::create(std::shared_ptr<mtl::Device>()); }), {"Predicate", "device"}));
}

TEST_F(PredicateTest, OneOfTheDevicesOwnIsZeroAtFirst) {
  const auto predicate = Predicate::create(device_);
  EXPECT_EQ(predicate->predicateOffset(), 0U);
  ASSERT_GE(predicate->predicateBuffer()->length(), 4U);
  EXPECT_EQ(predicate->predicateBuffer()->contentsAs<std::uint32_t>()[0], 0U);
}

TEST_F(PredicateTest, OneOfAnotherDeviceIsRefused) {
  const auto other = Predicate::create(mtl::newCPUDevice(1));
  const auto buffer = CommandBuffer::create(queue_);
  EXPECT_TRUE(names(errorOf([&] { buffer->setPredicate(other); }), {"Predicate", "another device"}));
  EXPECT_EQ(buffer->predicate(), nullptr);
}

TEST_F(PredicateTest, TheValueIsReadWhenTheWorkIsDue) {
  const auto predicate = predicateOf(0);
  const auto result = poisoned(sizeOf(4, 1, 4));
  const auto buffer = CommandBuffer::create(queue_);
  buffer->setPredicate(predicate);
  scale_->encode(buffer, source_, result);
  predicate->predicateBuffer()->contentsAs<std::uint32_t>()[0] = 1;
  run(buffer);
  EXPECT_EQ(valuesOf(*result), scaled(in_));
}

TEST_F(PredicateTest, ReadCountsFallAllTheSame) {
  for (const std::uint32_t value : {0U, 1U}) {
    const auto buffer = CommandBuffer::create(queue_);
    const auto temporary = TemporaryImage::create(buffer, source_->descriptor());
    temporary->setReadCount(2);
    scale_->encode(buffer, source_, temporary);
    buffer->setPredicate(predicateOf(value));
    scale_->encode(buffer, temporary, image(sizeOf(4, 1, 4)));
    EXPECT_EQ(temporary->readCount(), 1U) << value;
    scale_->encode(buffer, temporary, image(sizeOf(4, 1, 4)));
    EXPECT_EQ(temporary->readCount(), 0U) << value;
    run(buffer);
  }
}

TEST_F(PredicateTest, CoversWhatIsEncodedThroughItsWrapperWhileItIsSet) {
  const auto outer = CommandBuffer::create(queue_);
  const auto inner = CommandBuffer::create(std::static_pointer_cast<mtl::CommandBuffer>(outer));
  const auto before = poisoned(sizeOf(4, 1, 4));
  const auto under = poisoned(sizeOf(4, 1, 4));
  const auto besides = poisoned(sizeOf(4, 1, 4));
  const auto nextPiece = poisoned(sizeOf(4, 1, 4));
  const auto after = poisoned(sizeOf(4, 1, 4));
  scale_->encode(inner, source_, before);
  inner->setPredicate(predicateOf(0));
  scale_->encode(inner, source_, under);
  scale_->encode(outer, source_, besides);
  inner->commitAndContinue();
  scale_->encode(inner, source_, nextPiece);
  inner->setPredicate(nullptr);
  scale_->encode(inner, source_, after);
  run(inner);
  for (const auto& ran : {before, besides, after}) EXPECT_EQ(valuesOf(*ran), scaled(in_));
  for (const auto& skipped : {under, nextPiece}) EXPECT_EQ(valuesOf(*skipped), untouched_);
}

TEST_F(PredicateTest, ABatchOfLooseImagesIsLeftOutWhole) {
  const auto b = image(sizeOf(4, 1, 4), in_);
  const auto resultOfA = poisoned(sizeOf(4, 1, 4));
  const auto gap = poisoned(sizeOf(4, 1, 4));
  const auto resultOfB = poisoned(sizeOf(4, 1, 4));
  const auto buffer = CommandBuffer::create(queue_);
  buffer->setPredicate(predicateOf(0));
  scale_->encodeBatch(buffer, ImageBatch{b, source_}, ImageBatch{resultOfB, resultOfA});
  run(buffer);
  for (const auto& result : {resultOfA, gap, resultOfB}) EXPECT_EQ(valuesOf(*result), untouched_);
}

TEST_F(PredicateTest, OutlivesTheCallerWhoLetsGoOfIt) {
  const auto result = poisoned(sizeOf(4, 1, 4));
  const auto buffer = CommandBuffer::create(queue_);
  buffer->setPredicate(predicateOf(1));
  scale_->encode(buffer, source_, result);
  buffer->setPredicate(nullptr);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), scaled(in_));
}

/// Sets an environment variable for one scope.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST(DeviceChoice, AGPUWhereThereIsOneAndLowPowerPrefersTheCPU) {
  unsetenv("MPS_PREFERRED_DEVICE");
  const auto devices = mtl::copyAllDevices();
  ASSERT_EQ(devices[0]->kind(), mtl::DeviceKind::CPU);
  const auto& expected = devices.size() > 1 ? devices[1] : devices[0];
  EXPECT_EQ(GetPreferredDevice(DeviceOptions::Default)->name(), expected->name());
  EXPECT_EQ(GetPreferredDevice(DeviceOptions::SkipRemovable)->name(), expected->name());
  EXPECT_EQ(GetPreferredDevice(DeviceOptions::LowPower), devices[0]);
}

TEST(DeviceChoice, TheEnvironmentVariableChoosesByIndex) {
  const auto devices = mtl::copyAllDevices();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Environment environment("MPS_PREFERRED_DEVICE", std::to_string(i).c_str());
    EXPECT_EQ(GetPreferredDevice(DeviceOptions::Default)->name(), devices[i]->name());
    EXPECT_EQ(GetPreferredDevice(DeviceOptions::LowPower)->name(), devices[i]->name());
  }
  const auto usual = GetPreferredDevice(DeviceOptions::LowPower);
  for (const char* none : {"", "-1"}) {
    const Environment environment("MPS_PREFERRED_DEVICE", none);
    EXPECT_EQ(GetPreferredDevice(DeviceOptions::LowPower), usual) << none;
  }
}

TEST(DeviceChoice, AMeaninglessEnvironmentVariableIsNamed) {
  for (const char* meaningless : {"gpu", "1000000", "-10", "0 ", "0x0", "99999999999999999999999"}) {
    const Environment environment("MPS_PREFERRED_DEVICE", meaningless);
    EXPECT_TRUE(names(errorOf([] { GetPreferredDevice(DeviceOptions::LowPower); }),
                      {"MPS_PREFERRED_DEVICE", std::string("\"") + meaningless + "\"", "0"}))
        << meaningless;
  }
}

TEST(DeviceChoice, MinusOnePrintsTheDevices) {
  std::string expected;
  const auto devices = mtl::copyAllDevices();
  for (std::size_t i = 0; i < devices.size(); ++i)
    expected += "unmetal: MPS_PREFERRED_DEVICE=" + std::to_string(i) + ": " + devices[i]->name() + "\n";
  const auto printed = [](const char* choice) {
    const Environment environment("MPS_PREFERRED_DEVICE", choice);
    ::testing::internal::CaptureStderr();
    GetPreferredDevice(DeviceOptions::Default);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(printed("-1"), expected);
  EXPECT_EQ(printed("0"), "");
}

TEST(DeviceChoice, EveryDeviceIsSupportedAndNullIsNot) {
  for (const auto& device : mtl::copyAllDevices()) EXPECT_TRUE(SupportsMTLDevice(device)) << device->name();
  EXPECT_TRUE(SupportsMTLDevice(mtl::newCPUDevice(1)));
  EXPECT_FALSE(SupportsMTLDevice(nullptr));
}

TEST(DeviceChoice, HintsRecordNothingAndTakeNoMemory) {
  const auto device = mtl::newCPUDevice(1);
  const auto buffer = device->newCommandQueue()->commandBuffer();
  const std::size_t before = device->currentAllocatedSize();
  HintTemporaryMemoryHighWaterMark(buffer, std::size_t{1} << 40U);
  SetHeapCacheDuration(buffer, 10);
  const std::vector<ImageDescriptor> descriptors{sizeOf(64, 64, 64)};
  TemporaryImage::prefetchStorage(buffer, descriptors);
  EXPECT_EQ(buffer->commandCount(), 0U);
  EXPECT_EQ(device->currentAllocatedSize(), before);
}

}  // namespace
}  // namespace mps::predicate_test
