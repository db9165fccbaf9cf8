#include "mps/core/cpu/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/core/cpu/vector_io_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_io-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

template <class T>
void convertTo(const T* from, float* to, std::size_t count) {
  convertToFloats(from, to, count);
}
void float32ToFloats(const float* from, float* to, std::size_t count) {
  convertTo(from, to, count);
}
void float16ToFloats(const Float16* from, float* to, std::size_t count) {
  convertTo(from, to, count);
}
void unorm8ToFloats(const Unorm8* from, float* to, std::size_t count) {
  convertTo(from, to, count);
}
void unorm16ToFloats(const Unorm16* from, float* to, std::size_t count) {
  convertTo(from, to, count);
}

void float32FromFloats(const float* from, float* to, std::size_t n) {
  convertFromFloats(from, to, n);
}
void float16FromFloats(const float* from, Float16* to, std::size_t n) {
  convertFromFloats(from, to, n);
}
void unorm8FromFloats(const float* from, Unorm8* to, std::size_t n) {
  convertFromFloats(from, to, n);
}
void unorm16FromFloats(const float* from, Unorm16* to, std::size_t n) {
  convertFromFloats(from, to, n);
}

/// In vectors of as many lanes as those of float64 have.
template <class T>
void streamTo(const float* from, T* to, std::size_t count) {
  const hn::Rebind<float, hn::ScalableTag<double>> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d))
    storeOrStream(d, hn::LoadU(d, from + i), to + i, true);
}
void streamToFloat32(const float* from, float* to, std::size_t count) {
  streamTo(from, to, count);
}
void streamToFloat16(const float* from, Float16* to, std::size_t count) {
  streamTo(from, to, count);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace mps::detail {
namespace {

HWY_EXPORT(float32ToFloats);
HWY_EXPORT(float16ToFloats);
HWY_EXPORT(unorm8ToFloats);
HWY_EXPORT(unorm16ToFloats);
HWY_EXPORT(float32FromFloats);
HWY_EXPORT(float16FromFloats);
HWY_EXPORT(unorm8FromFloats);
HWY_EXPORT(unorm16FromFloats);
HWY_EXPORT(streamToFloat32);
HWY_EXPORT(streamToFloat16);

void toFloats(const float* from, float* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(float32ToFloats)(from, to, n);
}
void toFloats(const Float16* from, float* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(float16ToFloats)(from, to, n);
}
void toFloats(const Unorm8* from, float* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(unorm8ToFloats)(from, to, n);
}
void toFloats(const Unorm16* from, float* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(unorm16ToFloats)(from, to, n);
}
void fromFloats(const float* from, float* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(float32FromFloats)(from, to, n);
}
void fromFloats(const float* from, Float16* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(float16FromFloats)(from, to, n);
}
void fromFloats(const float* from, Unorm8* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(unorm8FromFloats)(from, to, n);
}
void fromFloats(const float* from, Unorm16* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(unorm16FromFloats)(from, to, n);
}

/// Each test runs once for each instruction set of this machine.
class VectorIo : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

bool sameBits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

template <class T>
void expectLoadsEveryCode(std::uint32_t codes) {
  std::vector<T> memory(codes);
  for (std::uint32_t i = 0; i < codes; ++i) memory[i].bits = static_cast<decltype(T::bits)>(i);
  std::vector<float> found(codes);
  toFloats(memory.data(), found.data(), codes);
  for (std::uint32_t i = 0; i < codes; ++i) {
    const float expected = loadFloat(&memory[i]);
    const bool same = std::isnan(expected) ? std::isnan(found[i]) : sameBits(found[i], expected);
    EXPECT_TRUE(same) << "code " << i << " gave " << found[i] << ", expected " << expected;
  }
}

TEST_P(VectorIo, LoadsEveryFloat16) {
  expectLoadsEveryCode<Float16>(0x10000);
}
TEST_P(VectorIo, LoadsEveryUnorm8) {
  expectLoadsEveryCode<Unorm8>(0x100);
}
TEST_P(VectorIo, LoadsEveryUnorm16) {
  expectLoadsEveryCode<Unorm16>(0x10000);
}

TEST_P(VectorIo, UnormLoadsAreTheNearestFloats) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const Unorm16 code{static_cast<std::uint16_t>(i)};
    EXPECT_EQ(loadFloat(&code), static_cast<float>(i / 65535.0));
  }
}

/// Every float16, every unorm16 code, the middles between them and their neighbours, and what is out of
/// range.
std::vector<float> awkwardValues() {
  std::vector<float> values;
  const auto addWithNeighbours = [&](float value) {
    for (const float v : {value, std::nextafter(value, 1e38F), std::nextafter(value, -1e38F)}) {
      values.push_back(v);
      values.push_back(-v);
    }
  };
  for (std::uint32_t i = 0; i < 0x7C00U; ++i) {
    const Float16 low{static_cast<std::uint16_t>(i)};
    const Float16 high{static_cast<std::uint16_t>(i + 1)};
    addWithNeighbours(toFloat(low));
    addWithNeighbours(i == 0x7BFFU ? 65520.0F : (toFloat(low) + toFloat(high)) / 2);
  }
  for (std::uint32_t i = 0; i < 0x10000U; ++i) {
    addWithNeighbours(static_cast<float>(i) / 65535.0F);
    addWithNeighbours((static_cast<float>(i) + 0.5F) / 65535.0F);
    addWithNeighbours((static_cast<float>(i) + 0.5F) / 255.0F);
  }
  for (const float v : {1e30F, 3e38F, std::numeric_limits<float>::infinity(), 1e-45F, 1e-38F}) {
    values.push_back(v);
    values.push_back(-v);
  }
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  return values;
}

template <class T>
void expectStoresLikeScalars() {
  const std::vector<float> values = awkwardValues();
  std::vector<T> found(values.size());
  fromFloats(values.data(), found.data(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    T expected{};
    storeFloat(values[i], &expected);
    const bool same = std::isnan(values[i]) && std::is_same_v<T, Float16> ? std::isnan(loadFloat(&found[i]))
                                                                          : found[i].bits == expected.bits;
    EXPECT_TRUE(same) << values[i] << " gave " << found[i].bits << ", expected " << expected.bits;
  }
}

TEST_P(VectorIo, StoresFloat16LikeScalars) {
  expectStoresLikeScalars<Float16>();
}
TEST_P(VectorIo, StoresUnorm8LikeScalars) {
  expectStoresLikeScalars<Unorm8>();
}
TEST_P(VectorIo, StoresUnorm16LikeScalars) {
  expectStoresLikeScalars<Unorm16>();
}

TEST(Unorm, ClampsAndRoundsToNearestEven) {
  EXPECT_EQ(toUnorm<Unorm8>(-1.0F).bits, 0);
  EXPECT_EQ(toUnorm<Unorm8>(2.0F).bits, 255);
  EXPECT_EQ(toUnorm<Unorm8>(std::numeric_limits<float>::infinity()).bits, 255);
  EXPECT_EQ(toUnorm<Unorm8>(std::numeric_limits<float>::quiet_NaN()).bits, 0);
  EXPECT_EQ(toUnorm<Unorm8>(0.5F).bits, 128);         // 127.5, a tie
  EXPECT_EQ(toUnorm<Unorm8>(0.5F / 255.0F).bits, 1);  // this float is a little above the middle of 0 and 1
  EXPECT_EQ(toUnorm<Unorm16>(0.5F).bits, 32768);      // 32767.5, a tie
  EXPECT_EQ(toUnorm<Unorm16>(1.0F / 3.0F).bits, 21845);
}

/// Memory that ends where the next access faults.
class MemoryBeforeFence {
 public:
  explicit MemoryBeforeFence(std::size_t bytes) : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    void* pages = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages, MAP_FAILED);
    pages_ = static_cast<std::byte*>(pages);
    EXPECT_EQ(mprotect(pages_ + page_, page_, PROT_NONE), 0);
    begin_ = pages_ + page_ - bytes;
  }
  ~MemoryBeforeFence() { munmap(pages_, 2 * page_); }
  MemoryBeforeFence(const MemoryBeforeFence&) = delete;
  MemoryBeforeFence& operator=(const MemoryBeforeFence&) = delete;
  [[nodiscard]] std::byte* begin() const { return begin_; }

 private:
  std::size_t page_;
  std::byte* pages_ = nullptr;
  std::byte* begin_ = nullptr;
};

template <class T>
void expectTouchesNothingElse() {
  for (std::size_t count = 0; count <= 40; ++count) {
    const MemoryBeforeFence memory(count * sizeof(T));
    auto* elements = reinterpret_cast<T*>(memory.begin());
    std::vector<float> values(count + 1, 1.0F);
    fromFloats(values.data(), elements, count);
    std::vector<float> found(count + 1, -1.0F);
    toFloats(elements, found.data(), count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(found[i], 1.0F) << i << " of " << count;
    EXPECT_EQ(found[count], -1.0F) << "wrote beyond " << count;
  }
}

TEST_P(VectorIo, PartialVectorsTouchNothingElse) {
  expectTouchesNothingElse<float>();
  expectTouchesNothingElse<Float16>();
  expectTouchesNothingElse<Unorm8>();
  expectTouchesNothingElse<Unorm16>();
}

void stream(const float* from, float* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(streamToFloat32)(from, to, count);
}
void stream(const float* from, Float16* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(streamToFloat16)(from, to, count);
}

template <class T>
void expectStreamsNothingElse() {
  constexpr std::size_t count = 32;  // whole vectors of every instruction set
  const MemoryBeforeFence memory(count * sizeof(T));
  auto* elements = reinterpret_cast<T*>(memory.begin());
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  stream(values.data(), elements, count);
  std::vector<float> found(count);
  toFloats(elements, found.data(), count);
  EXPECT_EQ(found, values);
}

/// A non-temporal store writes 16 bytes or more, and some of these vectors have 8.
TEST_P(VectorIo, NonTemporalStoresTouchNothingElse) {
  expectStreamsNothingElse<float>();
  expectStreamsNothingElse<Float16>();
}

INSTANTIATE_TEST_SUITE_P(Targets, VectorIo, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace mps::detail

#endif
