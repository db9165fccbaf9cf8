#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/types/float16.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

/// What the tests of matrix kernels share.
namespace mps::testing {

class MatrixTest : public ::testing::Test {
 protected:
  static constexpr float kPoison = -77;

  std::shared_ptr<mtl::Device> device_ = mtl::newCPUDevice(2);
  std::shared_ptr<mtl::CommandQueue> queue_ = device_->newCommandQueue();

  /// With a gap of 8 bytes behind each row; what `values` does not reach is poison.
  [[nodiscard]] std::shared_ptr<Matrix> matrix(std::size_t rows, std::size_t columns,
                                               const Values& values = {}, std::size_t matrices = 1) const {
    return matrixOfType<float>(DataType::Float32, rows, columns, values, matrices);
  }
  [[nodiscard]] std::shared_ptr<Matrix> halfMatrix(std::size_t rows, std::size_t columns,
                                                   const Values& values = {}) const {
    return matrixOfType<Float16>(DataType::Float16, rows, columns, values, 1);
  }
  /// All elements of a matrix of either; the gaps must be poison.
  static Values valuesOf(Matrix& matrix) {
    return matrix.dataType() == DataType::Float16 ? valuesOfType<Float16>(matrix)
                                                  : valuesOfType<float>(matrix);
  }
  /// Without gaps that count.
  [[nodiscard]] std::shared_ptr<Matrix> matrixOf(std::size_t rows, std::size_t columns, DataType type) const {
    return Matrix::create(device_, MatrixDescriptor::matrixDescriptor(
                                       rows, columns, MatrixDescriptor::rowBytes(columns, type), type));
  }
  /// Of no rows or no columns, so that the other numbers may be any.
  [[nodiscard]] std::shared_ptr<Matrix> emptyMatrix(std::size_t rows, std::size_t columns,
                                                    std::size_t matrices) const {
    return Matrix::create(
        device_, MatrixDescriptor::matrixDescriptor(rows, columns, matrices, columns * sizeof(float),
                                                    rows * columns * sizeof(float), DataType::Float32));
  }
  [[nodiscard]] std::shared_ptr<Vector> vector(const Values& values) const {
    auto made = Vector::create(device_, VectorDescriptor::vectorDescriptor(values.size(), DataType::Float32));
    std::copy(values.begin(), values.end(), made->data()->contentsAs<float>().begin());
    return made;
  }
  [[nodiscard]] std::shared_ptr<Vector> halfVector(const Values& values) const {
    auto made = Vector::create(device_, VectorDescriptor::vectorDescriptor(values.size(), DataType::Float16));
    std::transform(values.begin(), values.end(), made->data()->contentsAs<Float16>().begin(),
                   [](float value) { return toFloat16(value); });
    return made;
  }
  static Values valuesOf(Vector& vector) {
    Values values;
    if (vector.dataType() == DataType::Float16)
      for (const Float16 value : vector.data()->contentsAs<Float16>()) values.push_back(toFloat(value));
    else
      for (const float value : vector.data()->contentsAs<float>()) values.push_back(value);
    return values;
  }
  void run(const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode) {
    const auto commandBuffer = queue_->commandBuffer();
    encode(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  /// What an encode throws; then it leaves nothing in the command buffer.
  std::string refusal(const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode) {
    const auto commandBuffer = queue_->commandBuffer();
    std::string error = errorOf([&] { encode(commandBuffer); });
    EXPECT_TRUE(error.empty() || commandBuffer->commandCount() == 0) << error;
    return error;
  }

 private:
  static void store(float value, float& to) { to = value; }
  static void store(float value, Float16& to) { to = toFloat16(value); }
  static float load(float value) { return value; }
  static float load(Float16 value) { return toFloat(value); }

  template <class T>
  [[nodiscard]] std::shared_ptr<Matrix> matrixOfType(DataType type, std::size_t rows, std::size_t columns,
                                                     const Values& values, std::size_t matrices) const {
    const std::size_t stride = columns + 8 / sizeof(T);
    const std::size_t rowBytes = stride * sizeof(T);
    auto made = Matrix::create(device_, MatrixDescriptor::matrixDescriptor(rows, columns, matrices, rowBytes,
                                                                           rows * rowBytes, type));
    const auto contents = made->data()->contentsAs<T>();
    for (T& element : contents) store(kPoison, element);
    for (std::size_t i = 0; i < values.size(); ++i)
      store(values[i], contents[i / columns * stride + i % columns]);
    made->data()->didModifyRange(0, made->data()->length());
    return made;
  }
  template <class T>
  static Values valuesOfType(Matrix& matrix) {
    Values values;
    const auto contents = matrix.data()->contentsAs<T>();
    const std::size_t stride = matrix.rowBytes() / sizeof(T);
    for (std::size_t row = 0; row < matrix.rows() * matrix.matrices(); ++row)
      for (std::size_t i = 0; i < stride; ++i) {
        const float value = load(contents[row * stride + i]);
        if (i < matrix.columns())
          values.push_back(value);
        else
          EXPECT_EQ(value, kPoison) << "a gap was written";
      }
    return values;
  }
};

}  // namespace mps::testing
