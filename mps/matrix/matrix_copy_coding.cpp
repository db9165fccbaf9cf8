#include <algorithm>
#include <cstring>
#include <map>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/coding/coded_floats.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/types/error.hpp"
#include "mps/matrix/matrix_copy.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {
namespace {

constexpr const char* kCopyDescriptor = "MatrixCopyDescriptor";

/// A matrix as it is written: the values without gaps, so that what is read takes memory for its own bytes alone.
struct CodedMatrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t matrices = 0;
  DataType dataType = DataType::Float32;
  std::vector<std::byte> values;
};

/// A copy as it is written; 0 where no matrix is set, otherwise one more than its place.
struct CodedCopy {
  std::size_t source = 0;
  std::size_t destination = 0;
  MatrixCopyOffsets offsets;
};

void codeMatrix(Coder& coder, CodedMatrix& matrix) {
  coder.code("rows", matrix.rows);
  coder.code("columns", matrix.columns);
  coder.code("matrices", matrix.matrices);
  detail::codeElementType(coder, matrix.dataType);
  coder.code("values", matrix.values);
}

void codeCopy(Coder& coder, CodedCopy& copy, std::size_t matrices) {
  const auto codePlace = [&](const char* key, std::size_t& place) {
    coder.code(key, place);
    if (place > matrices) coder.refuse(key, std::to_string(place), "at most " + std::to_string(matrices));
  };
  codePlace("source", copy.source);
  codePlace("destination", copy.destination);
  if ((copy.source == 0) != (copy.destination == 0))
    coder.refuse("destination", "one of two", "both or none");
  coder.code("sourceRowOffset", copy.offsets.sourceRowOffset);
  coder.code("sourceColumnOffset", copy.offsets.sourceColumnOffset);
  coder.code("destinationRowOffset", copy.offsets.destinationRowOffset);
  coder.code("destinationColumnOffset", copy.offsets.destinationColumnOffset);
}

/// Calls visit(byte in the matrix's buffer, byte in its values, bytes) for each row; not for empty ones.
template <class Visit>
void forEachRow(const Matrix& matrix, Visit visit) {
  const std::size_t bytes = matrix.columns() * sizeInBytes(matrix.dataType());
  if (bytes == 0 || matrix.rows() == 0) return;
  std::size_t place = 0;
  for (std::size_t k = 0; k < matrix.matrices(); ++k)
    for (std::size_t row = 0; row < matrix.rows(); ++row, place += bytes)
      visit(matrix.offset() + k * matrix.matrixBytes() + row * matrix.rowBytes(), place, bytes);
}

CodedMatrix written(Matrix& matrix) {
  if (matrix.isTemporary())
    throw Error(kCopyDescriptor, "matrix", "a temporary one", "one that outlives its command buffer");
  CodedMatrix coded{matrix.rows(), matrix.columns(), matrix.matrices(), matrix.dataType(), {}};
  detail::bringToHost(*matrix.device(), *matrix.data()->memory());
  const std::byte* from = matrix.data()->memory()->contents();  // of a private buffer, too
  forEachRow(matrix, [&](std::size_t inBuffer, std::size_t /*inValues*/, std::size_t bytes) {
    coded.values.insert(coded.values.end(), from + inBuffer, from + inBuffer + bytes);
  });
  return coded;
}

std::shared_ptr<Matrix> made(const CodedMatrix& coded, const std::shared_ptr<mtl::Device>& device) {
  const auto product = [](std::size_t a, std::size_t b) {
    return detail::checkedProduct(kCopyDescriptor, a, b);
  };
  const std::size_t bytes =
      coded.rows == 0 || coded.matrices == 0
          ? 0
          : product(product(product(coded.columns, sizeInBytes(coded.dataType)), coded.rows), coded.matrices);
  if (coded.values.size() != bytes)
    throw Error(kCopyDescriptor, "values", std::to_string(coded.values.size()) + " bytes",
                std::to_string(bytes));
  const std::size_t rowBytes = product(coded.columns, sizeInBytes(coded.dataType));
  auto matrix = Matrix::create(
      device, MatrixDescriptor::matrixDescriptor(coded.rows, coded.columns, coded.matrices, rowBytes,
                                                 product(coded.rows, rowBytes), coded.dataType));
  if (bytes == 0) return matrix;
  const auto to = matrix->data()->contentsAs<std::byte>();
  forEachRow(*matrix, [&](std::size_t inBuffer, std::size_t inValues, std::size_t count) {
    std::memcpy(to.data() + inBuffer, coded.values.data() + inValues, count);
  });
  matrix->data()->didModifyRange(0, matrix->data()->length());
  return matrix;
}

}  // namespace

void MatrixCopyDescriptor::encode(Coder& coder) const {
  coder.codeClass(kCopyDescriptor);
  std::vector<CodedMatrix> matrices;
  std::map<const Matrix*, std::size_t> places;
  const auto placeOf = [&](const std::shared_ptr<Matrix>& matrix) -> std::size_t {
    if (!matrix) return 0;
    const auto [found, isNew] = places.try_emplace(matrix.get(), matrices.size() + 1);
    if (isNew) matrices.push_back(written(*matrix));
    return found->second;
  };
  std::vector<CodedCopy> copies;
  for (const auto& [source, destination, offsets] : operations_)
    copies.push_back({placeOf(source), placeOf(destination), offsets});
  coder.codeList("matrices", matrices, [&](CodedMatrix& matrix) { codeMatrix(coder, matrix); });
  coder.codeList("copies", copies, [&](CodedCopy& copy) { codeCopy(coder, copy, matrices.size()); });
  coder.encode("hasOffsetVector", offsetVector_ != nullptr);
  coder.encode("vectorOffset", vectorOffset_);
  if (!offsetVector_) return;
  if (offsetVector_->isTemporary())
    throw Error(kCopyDescriptor, "offsetVector", "a temporary one", "one that outlives its command buffer");
  detail::bringToHost(*offsetVector_->device(), *offsetVector_->data()->memory());
  std::vector<std::uint32_t> words(offsetVector_->length());
  if (!words.empty())
    std::memcpy(words.data(), offsetVector_->data()->memory()->contents() + offsetVector_->offset(),
                words.size() * sizeof(std::uint32_t));
  coder.encode("offsetVector", words);
}

MatrixCopyDescriptor MatrixCopyDescriptor::decode(Coder& coder, const std::shared_ptr<mtl::Device>& device) {
  const auto on = detail::deviceToDecodeOn(coder, device);
  coder.codeClass(kCopyDescriptor);
  std::vector<CodedMatrix> codedMatrices;
  coder.codeList("matrices", codedMatrices, [&](CodedMatrix& matrix) { codeMatrix(coder, matrix); });
  std::vector<CodedCopy> copies;
  coder.codeList("copies", copies, [&](CodedCopy& copy) { codeCopy(coder, copy, codedMatrices.size()); });
  std::vector<std::shared_ptr<Matrix>> matrices;
  for (const CodedMatrix& coded : codedMatrices) matrices.push_back(made(coded, on));
  MatrixCopyDescriptor descriptor(copies.size());
  std::vector<std::shared_ptr<Matrix>> sources, destinations;
  for (std::size_t k = 0; k < copies.size(); ++k) {
    if (copies[k].source == 0) continue;
    sources.push_back(matrices[copies[k].source - 1]);
    destinations.push_back(matrices[copies[k].destination - 1]);
    descriptor.setCopyOperation(k, sources.back(), destinations.back(), copies[k].offsets);
  }
  bool hasOffsetVector = false;
  coder.decode("hasOffsetVector", hasOffsetVector);
  std::size_t vectorOffset = 0;
  coder.decode("vectorOffset", vectorOffset);
  std::shared_ptr<Vector> offsets;
  if (hasOffsetVector) {
    std::vector<std::uint32_t> words;
    coder.decode("offsetVector", words);
    offsets = Vector::create(on->newBuffer(std::as_bytes(std::span(words))),
                             VectorDescriptor::vectorDescriptor(words.size(), DataType::UInt32));
    if (sources.size() != copies.size())
      coder.refuse("copies", "some not set", "all, as the offsets are a vector's");
    return {sources, destinations, std::move(offsets), vectorOffset};
  }
  if (vectorOffset != 0) coder.refuse("vectorOffset", std::to_string(vectorOffset), "0 without a vector");
  return descriptor;
}

}  // namespace mps
