#include "mps/core/kernel/padding.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"

/// Sizes and offsets by padding policies.
namespace mps::padding_test {
namespace {

using detail::backwardPadding;
using detail::forwardPadding;
using detail::PaddedAxis;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using testing::WindowSum;
using Method = NNPaddingMethod;

constexpr Method bottomRight = Method::AddRemainderToBottomRight;

std::int64_t dilated(std::int64_t kernel, std::int64_t dilation) {
  return (kernel - 1) * dilation + 1;
}

/// The table of section 11.4, row by row.
TEST(PaddingTable, SizesAndOffsetsAreTheDocumentedOnes) {
  struct Row {
    std::int64_t size, kernel, stride, dilation;
    std::int64_t valid, validTopLeft, validBottomRight;
    std::int64_t same, sameTopLeft, sameBottomRight;
    std::int64_t full, fullTopLeft, fullBottomRight;
  };
  const Row rows[] = {
      {5, 3, 1, 1, 3, 1, 1, 5, 0, 0, 7, -1, -1},        {5, 2, 1, 1, 4, 1, 1, 5, 0, 1, 6, 0, 0},
      {6, 2, 2, 1, 3, 1, 1, 3, 1, 1, 4, 0, 0},          {7, 2, 2, 1, 3, 1, 1, 4, 0, 1, 4, 0, 1},
      {7, 3, 2, 1, 3, 1, 1, 4, 0, 0, 5, -1, -1},        {8, 3, 2, 1, 3, 1, 1, 4, 0, 1, 5, -1, 0},
      {224, 3, 2, 1, 111, 1, 1, 112, 0, 1, 113, -1, 0}, {224, 7, 2, 1, 109, 3, 3, 112, 0, 1, 115, -3, -2},
      {28, 5, 1, 1, 24, 2, 2, 28, 0, 0, 32, -2, -2},    {9, 3, 1, 2, 5, 2, 2, 9, 0, 0, 13, -2, -2},
      {9, 2, 1, 3, 6, 2, 2, 9, 0, 1, 12, -1, -1},       {227, 11, 4, 1, 55, 5, 5, 57, 1, 1, 60, -5, -5},
      {8, 3, 3, 1, 2, 1, 2, 3, 0, 1, 4, -1, -1},        {6, 1, 3, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1},
      {12, 3, 4, 1, 3, 1, 1, 3, 1, 1, 4, -1, 0}};
  for (const Row& row : rows) {
    SCOPED_TRACE("S " + std::to_string(row.size) + " k " + std::to_string(row.kernel) + " s " +
                 std::to_string(row.stride) + " d " + std::to_string(row.dilation));
    const auto check = [&](Method size, std::int64_t expectedSize, std::int64_t topLeft,
                           std::int64_t lowerRight) {
      const std::int64_t window = dilated(row.kernel, row.dilation);
      const PaddedAxis first = forwardPadding(size, true, row.size, window, row.stride);
      EXPECT_EQ(first.destinationSize, expectedSize);
      EXPECT_EQ(first.offset, topLeft);
      const PaddedAxis second = forwardPadding(size | bottomRight, false, row.size, window, row.stride);
      EXPECT_EQ(second.destinationSize, expectedSize);
      EXPECT_EQ(second.offset, lowerRight);
    };
    check(Method::SizeValidOnly, row.valid, row.validTopLeft, row.validBottomRight);
    check(Method::SizeSame, row.same, row.sameTopLeft, row.sameBottomRight);
    check(Method::SizeFull, row.full, row.fullTopLeft, row.fullBottomRight);
  }
}

/// Worked examples. Their last column is the left edge of the first window.
TEST(PaddingTable, TheExamplesOfTheMathematicsPartHold) {
  const auto check = [](std::int64_t size, std::int64_t kernel, std::int64_t stride, Method method,
                        bool first, std::int64_t count, std::int64_t offset, std::int64_t leftEdge) {
    const PaddedAxis axis = forwardPadding(method, first, size, kernel, stride);
    EXPECT_EQ(axis.destinationSize, count);
    EXPECT_EQ(axis.offset, offset);
    EXPECT_EQ(axis.offset - kernel / 2, leftEdge);
  };
  check(4, 2, 2, Method::SizeSame, true, 2, 1, 0);
  check(5, 2, 2, Method::SizeSame, true, 3, 0, -1);
  check(5, 2, 2, Method::SizeSame, false, 3, 1, 0);
  check(6, 4, 1, Method::SizeSame, true, 6, 0, -2);
  check(6, 4, 1, Method::SizeSame, false, 6, 1, -1);
  check(7, 2, 3, Method::SizeValidOnly, true, 2, 1, 0);
  check(7, 2, 3, Method::SizeValidOnly, false, 2, 2, 1);
  check(5, 3, 1, Method::SizeFull, true, 7, -1, -2);
}

/// Counts windows instead of using the formula.
TEST(PaddingFormulas, SizesAreNumbersOfWindows) {
  for (std::int64_t size = 1; size <= 14; ++size) {
    for (std::int64_t kernel = 1; kernel <= 5; ++kernel) {
      for (std::int64_t dilation = 1; dilation <= 3; ++dilation) {
        for (std::int64_t stride = 1; stride <= 4; ++stride) {
          const std::int64_t window = dilated(kernel, dilation);
          const auto count = [&](std::int64_t before, std::int64_t after) {
            std::int64_t windows = 0;
            for (std::int64_t left = -before; left + window <= size + after; left += stride) ++windows;
            return windows;
          };
          SCOPED_TRACE("S " + std::to_string(size) + " kD " + std::to_string(window) + " s " +
                       std::to_string(stride));
          const auto of = [&](Method method) {
            return forwardPadding(method, true, size, window, stride).destinationSize;
          };
          if (size >= window)
            EXPECT_EQ(of(Method::SizeValidOnly), count(0, 0));
          else
            EXPECT_LT(of(Method::SizeValidOnly), 1);
          EXPECT_EQ(of(Method::SizeFull), count(window - 1, window - 1));
          std::int64_t pixels = 0;
          for (std::int64_t x = 0; x < size; x += stride) ++pixels;
          EXPECT_EQ(of(Method::SizeSame), pixels);
        }
      }
    }
  }
}

/// Padding before and after, counted from the window positions, must be what the alignment promises.
TEST(PaddingFormulas, OffsetsSplitThePaddingAsTheBitsSay) {
  for (std::int64_t size = 1; size <= 14; ++size) {
    for (std::int64_t window = 1; window <= 7; ++window) {
      for (std::int64_t stride = 1; stride <= 4; ++stride) {
        for (const Method style : {Method::SizeValidOnly, Method::SizeSame, Method::SizeFull}) {
          if (style == Method::SizeValidOnly && size < window) continue;
          const auto padding = [&](Method method, bool first) {
            const PaddedAxis axis = forwardPadding(style | method, first, size, window, stride);
            const std::int64_t left = axis.offset - window / 2;  // of the first window
            const std::int64_t right = left + stride * (axis.destinationSize - 1) + window - size;
            return std::pair(-left, right);
          };
          SCOPED_TRACE("S " + std::to_string(size) + " kD " + std::to_string(window) + " s " +
                       std::to_string(stride));
          const auto [left, right] = padding(Method::AlignCentered, true);
          const auto [otherLeft, otherRight] = padding(Method::AlignCentered | bottomRight, false);
          EXPECT_EQ(left + right, otherLeft + otherRight);
          if (left + right >= 0) {
            EXPECT_TRUE(left == right || left == right + 1);
            EXPECT_EQ(std::pair(otherLeft, otherRight), std::pair(right, left));
          } else {
            // Pixels stay unread: the published arithmetic truncates towards zero.
            EXPECT_LE(std::abs(left - right), 2);
          }
          EXPECT_EQ(padding(Method::AlignBottomRight, true).first, 0);
          EXPECT_EQ(padding(Method::AlignTopLeft, true).second, 0);
        }
      }
    }
  }
}

TEST(PaddingFormulas, EnlargingKernelsAreTheReverse) {
  for (std::int64_t size = 1; size <= 9; ++size) {
    for (std::int64_t window = 1; window <= 6; ++window) {
      for (std::int64_t stride = 1; stride <= 4; ++stride) {
        const std::int64_t expanded = (size - 1) * stride + 1;
        const auto of = [&](Method method, bool first) {
          return backwardPadding(method, first, size, window, stride);
        };
        EXPECT_EQ(of(Method::SizeValidOnly, true).destinationSize, expanded - window + 1);
        EXPECT_EQ(of(Method::SizeSame, true).destinationSize, expanded);
        EXPECT_EQ(of(Method::SizeFull, true).destinationSize, expanded + window - 1);
        const bool odd = window % 2 == 1;
        EXPECT_EQ(of(Method::SizeValidOnly, true).offset, odd ? (window - 1) / 2 : window / 2);
        EXPECT_EQ(of(Method::SizeSame, true).offset, 0);
        EXPECT_EQ(of(Method::SizeSame | bottomRight, false).offset, odd ? 0 : 1);
        EXPECT_EQ(of(Method::SizeFull, true).offset, odd ? -(window - 1) / 2 : 1 - window / 2);
      }
    }
  }
}

TEST(PaddingMethod, BitsAreApples) {
  EXPECT_EQ(static_cast<int>(Method::AlignCentered | Method::AddRemainderToTopLeft | Method::SizeSame), 0x10);
  EXPECT_EQ(static_cast<int>(bottomRight | Method::SizeSame), 0x1C);
  EXPECT_EQ(static_cast<int>(Method::SizeFull), 0x20);
  EXPECT_EQ(static_cast<int>(Method::Custom), 0x4000);
  EXPECT_EQ(static_cast<int>(Method::CustomWhitelistForNodeFusion), 0x2000);
  EXPECT_EQ(static_cast<int>(Method::ExcludeEdges), 0x8000);
  EXPECT_EQ(NNDefaultPadding::paddingForTensorflowAveragePooling()->paddingMethod(),
            static_cast<Method>(0x401C));
  EXPECT_EQ(NNDefaultPadding::paddingForTensorflowAveragePoolingValidOnly()->paddingMethod(),
            static_cast<Method>(0x400C));
  EXPECT_EQ(detail::defaultPadding()->paddingMethod(), static_cast<Method>(0x10));
  EXPECT_NE(errorOf([] { NNDefaultPadding::padding(Method::Custom); }), "");
}

/// Section 11.1: 3 is no alignment, 0x30 and more no size, and the other bits mean nothing.
constexpr std::uint64_t undefinedBits[] = {0x3,   0x30,  0x40,   0x50,    0x70,      0x400,
                                           0x7F0, 0x800, 0x1000, 0x10000, 1UL << 63U};

TEST(PaddingMethod, BitsThatAppleDoesNotDefineAreRefused) {
  for (const std::uint64_t bits : undefinedBits)
    EXPECT_TRUE(names(errorOf([&] { NNDefaultPadding::padding(static_cast<Method>(bits)); }),
                      {"NNDefaultPadding", "paddingMethod", std::to_string(bits)}))
        << bits;
  EXPECT_TRUE(names(errorOf([&] {
                      NNDefaultPadding::padding(Method::SizeSame | Method::AlignTopLeft |
                                                static_cast<Method>(0x800));
                    }),
                    {"SizeSame | AlignTopLeft | 2048", "bits that have a name"}));
  for (const std::uint64_t align : {0U, 1U, 2U})
    for (const std::uint64_t remainder : {0U, 4U, 8U, 12U})
      for (const std::uint64_t style : {0x0U, 0x10U, 0x20U})
        for (const std::uint64_t flags : {0x0U, 0x2000U, 0x8000U, 0xA000U})
          EXPECT_EQ(errorOf([&] {
                      NNDefaultPadding::padding(static_cast<Method>(align | remainder | style | flags));
                    }),
                    "");
}

TEST(PaddingMethod, BitsThatAppleDoesNotDefineAreNotDecoded) {
  const auto decoded = [](std::uint64_t bits) {
    KeyedArchiver archiver;
    archiver.codeClass("NNDefaultPadding");
    archiver.encode("paddingMethod", bits);
    const auto bytes = archiver.encodedData();
    KeyedUnarchiver unarchiver(bytes);
    return NNDefaultPadding::decode(unarchiver)->paddingMethod();
  };
  for (const std::uint64_t bits : undefinedBits)
    EXPECT_TRUE(
        names(errorOf([&] { decoded(bits); }), {"NNDefaultPadding", "paddingMethod", std::to_string(bits)}))
        << bits;
  EXPECT_EQ(decoded(0xE01C), static_cast<Method>(0xE01C));
}

/// docs/decisions.md, D19: the remainder side is swapped where Same would shift; ValidOnly and Full change places.
TEST(Decisions, D19InversePoliciesSwapTheRemainderSide) {
  const auto inverseOf = [](Method method) {
    return NNDefaultPadding::padding(method)->inverse()->paddingMethod();
  };
  EXPECT_EQ(inverseOf(Method::SizeSame), Method::SizeSame | bottomRight);
  EXPECT_EQ(inverseOf(Method::SizeSame | bottomRight), Method::SizeSame);
  EXPECT_EQ(inverseOf(Method::SizeSame | Method::AddRemainderToTopRight),
            Method::SizeSame | Method::AddRemainderToBottomLeft);
  EXPECT_EQ(inverseOf(Method::SizeValidOnly | bottomRight), Method::SizeFull | bottomRight);
  EXPECT_EQ(inverseOf(Method::SizeFull), Method::SizeValidOnly);
  EXPECT_EQ(inverseOf(Method::SizeFull | Method::AlignTopLeft), Method::SizeValidOnly | Method::AlignTopLeft);
  EXPECT_EQ(NNDefaultPadding::paddingForTensorflowAveragePooling()->inverse()->paddingMethod(),
            Method::SizeSame);
  // What it is for: the enlarging kernel undoes the even forward window without a shift.
  for (const std::int64_t kernel : {2, 3, 4, 5}) {
    for (const Method method : {Method::SizeSame, Method::SizeSame | bottomRight}) {
      const auto forward = forwardPadding(method, detail::remainderToLeft(method), 8, kernel, 1);
      const Method inverse = inverseOf(method);
      const auto back = backwardPadding(inverse, detail::remainderToLeft(inverse), 8, kernel, 1);
      EXPECT_EQ(back.offset, -forward.offset + (kernel % 2 == 0 ? 1 : 0)) << "k " << kernel;
    }
  }
}

class PaddingOfKernels : public testing::DeviceTest {
 protected:
  ImageDescriptor describe(CNNKernel& kernel, const ImageDescriptor& size) {
    const std::shared_ptr<Image> images[] = {image(size)};
    return kernel.destinationImageDescriptor(images);
  }
};

TEST_F(PaddingOfKernels, XAndYAreSizedByTheirOwnRemainderBits) {
  const auto kernel = WindowSum::create(device_, 2);
  const auto offsetWith = [&](Method remainder) {
    kernel->setPadding(NNDefaultPadding::padding(Method::SizeSame | remainder));
    describe(*kernel, sizeOf(5, 6, 1));
    return kernel->offset();
  };
  EXPECT_EQ(offsetWith(Method::AddRemainderToTopLeft), (Offset{0, 0, 0}));
  EXPECT_EQ(offsetWith(Method::AddRemainderToTopRight), (Offset{1, 0, 0}));
  EXPECT_EQ(offsetWith(Method::AddRemainderToBottomLeft), (Offset{0, 1, 0}));
  EXPECT_EQ(offsetWith(Method::AddRemainderToBottomRight), (Offset{1, 1, 0}));
}

TEST_F(PaddingOfKernels, TheDescriptorFollowsSourceAndKernel) {
  const auto kernel = WindowSum::create(device_, 3, 2, 2);
  kernel->setOffset({7, 8, 9});
  ImageDescriptor size(ImageFeatureChannelFormat::Float16, 11, 7, 12, 3);
  const auto result = describe(*kernel, size);
  EXPECT_EQ(result.width(), 6U);
  EXPECT_EQ(result.height(), 4U);
  EXPECT_EQ(result.featureChannels(), 12U);
  EXPECT_EQ(result.numberOfImages(), 3U);
  EXPECT_EQ(result.channelFormat(), ImageFeatureChannelFormat::Float16);
  EXPECT_EQ(kernel->offset().z, 9) << "not touched";
  kernel->setSourceFeatureChannelOffset(8);
  EXPECT_EQ(describe(*kernel, size).featureChannels(), 4U);
  kernel->setSourceFeatureChannelMaxCount(3);
  EXPECT_EQ(describe(*kernel, size).featureChannels(), 3U);
  kernel->setDestinationFeatureChannelOffset(4);
  EXPECT_EQ(describe(*kernel, size).featureChannels(), 7U) << "produced channels behind the offset";
  size.setChannelFormat(ImageFeatureChannelFormat::Unorm8);
  EXPECT_EQ(describe(*kernel, size).channelFormat(), ImageFeatureChannelFormat::Float32)
      << "unorm is for sources";
  kernel->setPadding(NNDefaultPadding::padding(Method::SizeValidOnly));
  EXPECT_TRUE(names(errorOf([&] { describe(*kernel, sizeOf(4, 9, 1)); }), {"WindowSum", "5x5", "valid"}));
  EXPECT_NE(errorOf([&] { kernel->destinationImageDescriptor({}); }), "");
  const std::shared_ptr<Image> two[] = {image(sizeOf(9, 9, 1)), image(sizeOf(9, 9, 1))};
  EXPECT_NE(errorOf([&] { kernel->destinationImageDescriptor(two); }), "");
  const std::shared_ptr<Image> none[] = {nullptr};
  EXPECT_NE(errorOf([&] { kernel->destinationImageDescriptor(none); }), "");
  EXPECT_NE(errorOf([&] { kernel->setPadding(nullptr); }), "");
}

TEST_F(PaddingOfKernels, TensorflowPoliciesSetEdgeModeClampOnAnyKernel) {
  for (const auto& policy : {NNDefaultPadding::paddingForTensorflowAveragePooling(),
                             NNDefaultPadding::paddingForTensorflowAveragePoolingValidOnly()}) {
    const auto kernel = WindowSum::create(device_, 2);
    kernel->setPadding(policy);
    kernel->encode(commands(), image(sizeOf(5, 5, 1)));
    EXPECT_EQ(kernel->edgeMode(), ImageEdgeMode::Clamp) << "and it stays on the kernel";
    const auto join = testing::Join::create(device_);
    join->setPadding(policy);
    join->encode(commands(), image(sizeOf(5, 5, 1)), image(sizeOf(5, 5, 1)));
    EXPECT_EQ(join->secondaryEdgeMode(), ImageEdgeMode::Clamp);
  }
}

TEST_F(PaddingOfKernels, GivenDestinationsIgnoreThePolicy) {
  const auto kernel = WindowSum::create(device_, 3);
  kernel->setPadding(NNDefaultPadding::padding(Method::SizeValidOnly));
  const auto result = poisoned(sizeOf(3, 1, 1));
  const auto buffer = commands();
  kernel->encode(buffer, image(sizeOf(3, 1, 1), {1, 10, 100}), result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{11, 111, 110})) << "offset 0: centred on pixel 0";
  EXPECT_EQ(kernel->offset(), Offset{});
}

/// A policy as public programs have them.
class OwnPolicy : public NNPadding {
 public:
  [[nodiscard]] NNPaddingMethod paddingMethod() const override { return Method::Custom | Method::SizeSame; }
  ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>> sourceImages,
                                             std::span<const std::shared_ptr<State>> /*sourceStates*/,
                                             Kernel& kernel,
                                             const ImageDescriptor& suggestedDescriptor) override {
    suggested = suggestedDescriptor;
    sources = sourceImages.size();
    auto& unary = dynamic_cast<CNNKernel&>(kernel);
    seenOffset = unary.offset();
    unary.setOffset({unary.offset().x + 1, unary.offset().y, 0});
    unary.setEdgeMode(ImageEdgeMode::Clamp);
    ImageDescriptor changed = suggestedDescriptor;
    changed.setWidth(2);
    if (fails) throw Error("policy gave up");
    return changed;
  }
  std::optional<ImageDescriptor> suggested;
  std::optional<Offset> seenOffset;
  std::size_t sources = 0;
  bool fails = false;
};

TEST_F(PaddingOfKernels, Behaviour16ACustomPolicySetsOffsetAndEdgeModeAndReturnsAChangedDescriptor) {
  const auto policy = std::make_shared<OwnPolicy>();
  const auto kernel = WindowSum::create(device_, 3);
  kernel->setPadding(policy);
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  const auto source = image(sizeOf(3, 1, 1), {1, 10, 100});
  const auto buffer = commands();
  const auto result = kernel->encode(buffer, source);
  run(buffer);
  EXPECT_EQ(policy->suggested, sizeOf(3, 1, 1)) << "the built-in computation comes first";
  EXPECT_EQ(policy->seenOffset, Offset{});
  EXPECT_EQ(policy->sources, 1U);
  ASSERT_EQ(result->width(), 2U);
  // Windows around pixels 1 and 2, edges repeated: three rows of the same sums.
  EXPECT_EQ(valuesOf(*result), (Values{3 * 111, 3 * 210}));
  EXPECT_EQ(kernel->edgeMode(), ImageEdgeMode::Clamp);
  EXPECT_EQ(kernel->offset().x, 1) << "left as used";
  kernel->encode(commands(), source);
  EXPECT_EQ(kernel->offset().x, 1) << "computed anew: relative changes of the offset do not add up";
}

TEST_F(PaddingOfKernels, ACustomPolicyThatThrowsLeavesNoCommandAndTheOldOffset) {
  const auto policy = std::make_shared<OwnPolicy>();
  policy->fails = true;
  const auto kernel = WindowSum::create(device_, 3);
  kernel->setPadding(policy);
  kernel->setOffset({5, 6, 0});
  const auto buffer = commands();
  EXPECT_EQ(errorOf([&] { kernel->encode(buffer, image(sizeOf(3, 1, 1))); }), "policy gave up");
  EXPECT_EQ(buffer->commandCount(), 0U);
  EXPECT_EQ(kernel->offset(), (Offset{5, 6, 0}));
}

TEST_F(PaddingOfKernels, APolicyWithBitsThatAppleDoesNotDefineIsRefusedWhereItIsUsed) {
  class Undefined : public NNPadding {
   public:
    explicit Undefined(std::uint64_t bits) : bits_(bits) {}
    [[nodiscard]] NNPaddingMethod paddingMethod() const override { return static_cast<Method>(bits_); }

   private:
    std::uint64_t bits_;
  };
  const auto source = image(sizeOf(3, 1, 1), {1, 2, 3});
  const auto unary = WindowSum::create(device_, 1);
  const auto binary = testing::Join::create(device_);
  const auto multiary = testing::Digits::create(device_, 2);
  for (const std::uint64_t bits : undefinedBits) {
    const auto policy = std::make_shared<Undefined>(bits);
    unary->setPadding(policy);
    binary->setPadding(policy);
    multiary->setPadding(policy);
    const std::string number = std::to_string(bits);
    EXPECT_TRUE(names(errorOf([&] { unary->encode(commands(), source); }), {"WindowSum", "padding", number}));
    EXPECT_TRUE(
        names(errorOf([&] { binary->encode(commands(), source, source); }), {"Join", "padding", number}));
    EXPECT_TRUE(names(errorOf([&] {
                        multiary->encode(commands(), std::vector{source, source});
                      }),
                      {"Digits", "padding", number}));
  }
}

TEST_F(PaddingOfKernels, CustomWithoutAnOverrideIsAnError) {
  class Incomplete : public NNPadding {
   public:
    [[nodiscard]] NNPaddingMethod paddingMethod() const override { return Method::Custom; }
  };
  const auto kernel = WindowSum::create(device_, 1);
  kernel->setPadding(std::make_shared<Incomplete>());
  EXPECT_TRUE(
      names(errorOf([&] { kernel->encode(commands(), image(sizeOf(3, 1, 1))); }), {"WindowSum", "padding"}));
}

/// Section 11.7: built-in rule, then each state in order, then the policy.
TEST_F(PaddingOfKernels, StatesEditTheDescriptorInOrderAndBeforeThePolicy) {
  class Editor : public State {
   public:
    Editor(const std::shared_ptr<mtl::Device>& device, std::size_t add)
        : State(device, StateResourceList{}), add_(add) {}
    ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>>,
                                               std::span<const std::shared_ptr<State>>, Kernel&,
                                               const ImageDescriptor& suggested) override {
      ImageDescriptor changed = suggested;
      changed.setHeight(changed.height() * 10 + add_);
      return changed;
    }

   private:
    std::size_t add_;
  };
  const auto policy = std::make_shared<OwnPolicy>();
  const auto kernel = WindowSum::create(device_, 1);
  kernel->setPadding(policy);
  const std::shared_ptr<Image> images[] = {image(sizeOf(4, 3, 1))};
  const std::shared_ptr<State> states[] = {std::make_shared<Editor>(device_, 1),
                                           std::make_shared<Editor>(device_, 2)};
  const auto result = kernel->destinationImageDescriptor(images, states);
  EXPECT_EQ(result.height(), 312U);
  EXPECT_EQ(policy->suggested->height(), 312U);
  EXPECT_EQ(result.width(), 2U);
}

}  // namespace
}  // namespace mps::padding_test
