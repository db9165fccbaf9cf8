#include "mps/conform/testing/test_tensor.hpp"

#include <cstring>

#include "mps/conform/compare.hpp"

namespace mps::detail {
namespace {

/// By the C library: a sanitizer checks its ranges once.
bool areSameBytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// Calls visit(offset, length) in bytes for the elements of the tensor, in as long pieces as lie side by side.
template <class Visit>
void forEachPiece(const TensorShape& shape, Visit visit) {
  if (shape.elements() == 0) return;
  const std::size_t elementBytes = bytesPerChannel(shape.format);
  const bool areRows = shape.pixelStride == shape.channels;
  const std::int64_t pieces = areRows ? 1 : shape.width;
  const auto length = static_cast<std::size_t>(areRows ? shape.width * shape.channels : shape.channels);
  for (std::int64_t n = 0; n < shape.images; ++n)
    for (std::int64_t y = 0; y < shape.height; ++y)
      for (std::int64_t x = 0; x < pieces; ++x)
        visit(static_cast<std::size_t>(shape.offset(n, y, x, 0)) * elementBytes, length * elementBytes);
}

}  // namespace

std::size_t extentInBytes(const TensorShape& shape) {
  if (shape.elements() == 0) return 0;
  const std::int64_t last =
      shape.offset(shape.images - 1, shape.height - 1, shape.width - 1, shape.channels - 1);
  return static_cast<std::size_t>(last + 1) * bytesPerChannel(shape.format);
}

TestTensor::TestTensor(const std::shared_ptr<mtl::Device>& device, const TensorShape& shape,
                       std::size_t firstElement)
    : shape_(shape), memory_(device, extentInBytes(shape), firstElement * bytesPerChannel(shape.format)) {
  poison();
}

TestTensor::TestTensor(PageSide side, const TensorShape& shape)
    : shape_(shape), memory_(side, extentInBytes(shape), bytesPerChannel(shape.format)) {
  poison();
}

void TestTensor::write(std::span<const double> values) {
  fillWithPoison(memory_.bytes());
  writeTensor(shape_, memory_.bytes().data(), values);
  snapshot();
}

void TestTensor::poison() {
  fillWithGuard(memory_.bytes());
  forEachPiece(shape_, [&](std::size_t offset, std::size_t length) {
    fillWithPoison(memory_.bytes().subspan(offset, length));
  });
  snapshot();
}

void TestTensor::snapshot() {
  const auto bytes = memory_.bytes();
  written_.assign(bytes.begin(), bytes.end());
  memory_.didModify();
}

std::vector<double> TestTensor::read() {
  memory_.synchronize();
  return readTensor(shape_, memory_.bytes().data());
}

ReferenceTensor TestTensor::reference() const {
  ReferenceTensor tensor(shape_.images, shape_.height, shape_.width, shape_.channels);
  tensor.values = readTensor(shape_, written_.data());
  return tensor;
}

bool TestTensor::surroundingsIntact() {
  memory_.synchronize();
  const auto bytes = memory_.bytes();
  std::vector<std::byte> found(bytes.begin(), bytes.end());
  forEachPiece(shape_, [&](std::size_t offset, std::size_t length) {
    std::memcpy(found.data() + offset, written_.data() + offset, length);
  });
  return areSameBytes(found, written_) && memory_.guardsIntact();
}

bool TestTensor::isUnchanged() {
  memory_.synchronize();
  return areSameBytes(memory_.bytes(), written_) && memory_.guardsIntact();
}

}  // namespace mps::detail
