#include "mps/core/image/writable.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "mps/core/image/image_storage.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"
#include "mtl/read_only_memory.hpp"

/// Kernels read memory that commands may not write, and refuse to write it.
namespace mps::testing::writable_test {
namespace {

class Writable : public ScaleTest {
 protected:
  /// Over memory of an image's, which stays alive.
  std::shared_ptr<Image> readOnly(const std::shared_ptr<Image>& original) {
    auto memory = std::make_shared<mtl::ReadOnlyMemory>(original->storage()->memoryForReading(), "a copy",
                                                        "an original");
    return Image::create(std::make_shared<mtl::Buffer>(device_, std::move(memory), mtl::StorageMode::Shared),
                         0, size_);
  }
  /// Of what a call throws; empty when nothing.
  template <class Call>
  static std::string errorOf(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  const ImageDescriptor size_ = sizeOf(2, 2, 1);
  const Values in_ = counted(4);
  const std::shared_ptr<Image> source_ = image(size_, in_);
  const std::string refusal_ = scale_->describe() + ": destination is a copy, expected an original";
};

TEST_F(Writable, AReadOnlyImageIsASourceAndNoDestination) {
  const auto original = image(size_, in_);
  const auto copy = readOnly(original);
  const auto buffer = commands();
  EXPECT_EQ(errorOf([&] { scale_->encode(buffer, source_, copy); }), refusal_);
  const auto fromCopy = image(size_);
  const auto fromOriginal = image(size_);
  scale_->encode(buffer, copy, fromCopy);
  scale_->encode(buffer, original, fromOriginal);
  run(buffer);
  EXPECT_EQ(valuesOf(*fromCopy), valuesOf(*fromOriginal));
  EXPECT_EQ(valuesOf(*original), in_) << "what was refused left nothing behind";
}

TEST_F(Writable, NorIsItAmongTheDestinationsOfABatch) {
  const auto copy = readOnly(image(size_, in_));
  const ImageBatch sources{source_, source_};
  EXPECT_EQ(errorOf([&] {
              scale_->encodeBatch(commands(), sources, ImageBatch{image(size_), copy});
            }),
            refusal_);
}

}  // namespace
}  // namespace mps::testing::writable_test
