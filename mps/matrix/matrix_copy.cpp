#include "mps/matrix/matrix_copy.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "mps/core/array/matrix_encoding.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::MatrixArgument;
using detail::MatrixCopyProblem;
using detail::MatrixEncoding;
using detail::MatrixPart;
using detail::PreparedCall;

namespace {

constexpr const char* kDescriptor = "MatrixCopyDescriptor";
constexpr std::size_t kOffsetWords = sizeof(MatrixCopyOffsets) / sizeof(std::uint32_t);

void checkMatrices(const std::shared_ptr<Matrix>& source, const std::shared_ptr<Matrix>& destination) {
  if (!source) throw Error(kDescriptor, "sourceMatrix", "null", "a matrix");
  if (!destination) throw Error(kDescriptor, "destinationMatrix", "null", "a matrix");
}

}  // namespace

MatrixCopyDescriptor MatrixCopyDescriptor::create(std::shared_ptr<Matrix> sourceMatrix,
                                                  std::shared_ptr<Matrix> destinationMatrix,
                                                  const MatrixCopyOffsets& offsets) {
  MatrixCopyDescriptor descriptor(1);
  descriptor.setCopyOperation(0, std::move(sourceMatrix), std::move(destinationMatrix), offsets);
  return descriptor;
}

MatrixCopyDescriptor::MatrixCopyDescriptor(std::span<const std::shared_ptr<Matrix>> sourceMatrices,
                                           std::span<const std::shared_ptr<Matrix>> destinationMatrices,
                                           std::shared_ptr<Vector> offsetVector, std::size_t offset)
    : MatrixCopyDescriptor(sourceMatrices.size()) {
  if (destinationMatrices.size() != sourceMatrices.size())
    throw Error(kDescriptor, "destinationMatrices", std::to_string(destinationMatrices.size()) + " matrices",
                std::to_string(sourceMatrices.size()) + ", as sourceMatrices");
  for (std::size_t k = 0; k < sourceMatrices.size(); ++k)
    setCopyOperation(k, sourceMatrices[k], destinationMatrices[k], {});
  if (offset % sizeof(MatrixCopyOffsets) != 0)
    throw Error(kDescriptor, "offset", std::to_string(offset), "a multiple of 16");
  if (!offsetVector) return;
  if (offsetVector->dataType() != DataType::UInt32)
    throw Error(kDescriptor, "offsetVector", name(offsetVector->dataType()), "UInt32");
  const std::size_t first = offset / sizeof(std::uint32_t);
  const std::size_t words = kOffsetWords * sourceMatrices.size();
  if (first > offsetVector->length() || words > offsetVector->length() - first)
    throw Error(kDescriptor, "offsetVector", std::to_string(offsetVector->length()) + " elements",
                "at least " + std::to_string(words) + " from " + std::to_string(first) + " on");
  offsetVector_ = std::move(offsetVector);
  vectorOffset_ = offset;
}

void MatrixCopyDescriptor::setCopyOperation(std::size_t index, std::shared_ptr<Matrix> sourceMatrix,
                                            std::shared_ptr<Matrix> destinationMatrix,
                                            const MatrixCopyOffsets& offsets) {
  if (index >= operations_.size())
    throw Error(kDescriptor, "index", std::to_string(index),
                "less than the number of copies, " + std::to_string(operations_.size()));
  if (offsetVector_) throw Error(kDescriptor, "offsets", "given", "those of the offset vector");
  checkMatrices(sourceMatrix, destinationMatrix);
  operations_[index] = {std::move(sourceMatrix), std::move(destinationMatrix), offsets};
}

std::shared_ptr<MatrixCopy> MatrixCopy::create(const std::shared_ptr<mtl::Device>& device,
                                               std::size_t copyRows, std::size_t copyColumns,
                                               bool sourcesAreTransposed, bool destinationsAreTransposed) {
  return std::shared_ptr<MatrixCopy>(
      new MatrixCopy(device, copyRows, copyColumns, sourcesAreTransposed, destinationsAreTransposed));
}

namespace {

/// A matrix, and what may be read or written of it.
struct Place {
  MatrixPart whole, touched;
};

/// Copies from `first` on that have its matrices are one call: the first one that is not.
std::size_t endOfSameMatrices(const std::vector<MatrixCopyDescriptor::Operation>& operations,
                              std::size_t first) {
  constexpr auto most = static_cast<std::size_t>(MatrixCopyProblem::kMostCopies);
  const std::size_t limit = std::min(operations.size() - first, most) + first;
  std::size_t end = first + 1;
  while (end < limit && operations[end].source == operations[first].source &&
         operations[end].destination == operations[first].destination)
    ++end;
  return end;
}

/// The arguments of one encode.
struct Copies {
  std::vector<Place> sources, destinations;
  std::optional<MatrixPart> rowIndices, columnIndices;
  std::optional<MatrixPart> offsets;  ///< of a vector

  void checkAliasing(const MatrixEncoding& encoding) const {
    for (std::size_t k = 0; k < destinations.size(); ++k) {
      const MatrixPart* const written = &destinations[k].touched;
      encoding.checkApart(
          {written}, {MatrixPart::of(rowIndices), MatrixPart::of(columnIndices), MatrixPart::of(offsets)});
      for (const Place& source : sources) encoding.checkApart({written}, {&source.touched});
      for (std::size_t other = 0; other < k; ++other)
        encoding.checkApart({written}, {&destinations[other].touched});
    }
  }

  /// At most the rows and columns that the sources have. @param problem but for sizes
  void record(const MatrixEncoding& encoding, MatrixCopyProblem problem, std::size_t kernelRows,
              std::size_t kernelColumns,
              const std::vector<MatrixCopyDescriptor::Operation>& operations) const {
    const auto clipped = [](std::size_t size, std::int64_t source) {
      return static_cast<std::int64_t>(std::min(size, static_cast<std::size_t>(source)));
    };
    const auto& device = encoding.kernel().device();
    for (std::size_t k = 0, end = 0; k < operations.size(); k = end) {
      end = endOfSameMatrices(operations, k);
      problem.copies = static_cast<std::int64_t>(end - k);
      problem.source = sources[k].whole.region.shape;
      problem.destination = destinations[k].whole.region.shape;
      const bool isTransposed = problem.sourceIsTransposed;
      problem.rows = clipped(kernelRows, isTransposed ? problem.source.channels : problem.source.height);
      problem.columns =
          clipped(kernelColumns, isTransposed ? problem.source.height : problem.source.channels);
      if (problem.rows == 0 || problem.columns == 0) continue;
      PreparedCall prepared;
      prepared.plan = detail::planFor(*device, detail::matrixCopyBackEnds, problem);
      if (offsets) {
        prepared.parameters[0] = MatrixEncoding::parameter(offsets->operand());
        prepared.parameters[0].byteOffset += k * sizeof(MatrixCopyOffsets);
      } else {
        std::vector<MatrixCopyOffsets> ofCopies;
        for (std::size_t copy = k; copy < end; ++copy) ofCopies.push_back(operations[copy].offsets);
        prepared.parameters[0].memory = device->newBuffer(std::as_bytes(std::span(ofCopies)))->memory();
      }
      if (rowIndices) prepared.parameters[1] = MatrixEncoding::parameter(rowIndices->operand());
      if (columnIndices) prepared.parameters[2] = MatrixEncoding::parameter(columnIndices->operand());
      encoding.record(prepared, {.source = &sources[k].whole, .destination = &destinations[k].whole});
    }
  }
};

/// @param isAnywhere rows x columns elements from the offsets on may be anywhere in the matrix
Place placeOf(const MatrixEncoding& encoding, const MatrixArgument& argument, const mtl::Origin& offsets,
              std::size_t rows, std::size_t columns, bool isAnywhere) {
  MatrixPart whole = encoding.part(argument, {}, static_cast<std::size_t>(argument.whole.height),
                                   static_cast<std::size_t>(argument.whole.channels));
  return {whole, isAnywhere ? whole : encoding.part(argument, offsets, rows, columns)};
}

}  // namespace

void MatrixCopy::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const MatrixCopyDescriptor& copyDescriptor) {
  encode(commandBuffer, copyDescriptor, nullptr, 0, nullptr, 0);
}

void MatrixCopy::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const MatrixCopyDescriptor& copyDescriptor,
                        const std::shared_ptr<Vector>& rowPermuteIndices, std::size_t rowPermuteOffset,
                        const std::shared_ptr<Vector>& columnPermuteIndices,
                        std::size_t columnPermuteOffset) {
  MatrixEncoding encoding(*this, commandBuffer);
  const auto& operations = copyDescriptor.operations();
  const std::size_t height = destinationsAreTransposed_ ? copyColumns_ : copyRows_;
  const std::size_t width = destinationsAreTransposed_ ? copyRows_ : copyColumns_;
  Copies copies;
  copies.rowIndices = encoding.readsNumbers("rowPermuteIndices", rowPermuteIndices, DataType::UInt32,
                                            rowPermuteOffset, height);
  copies.columnIndices = encoding.readsNumbers("columnPermuteIndices", columnPermuteIndices, DataType::UInt32,
                                               columnPermuteOffset, width);
  copies.offsets = encoding.readsNumbers("offsetVector", copyDescriptor.offsetVector(), DataType::UInt32,
                                         copyDescriptor.vectorOffset() / sizeof(std::uint32_t),
                                         kOffsetWords * operations.size());
  const bool isPermuted = copies.rowIndices || copies.columnIndices;
  for (std::size_t k = 0; k < operations.size(); ++k) {
    const auto& [from, to, offsets] = operations[k];
    if (!from)
      throw Error(describe(), "copyDescriptor", "copy " + std::to_string(k) + " not set", "all copies set");
    const MatrixArgument source = encoding.reads("sourceMatrix", from);
    const MatrixArgument destination = encoding.writes("destinationMatrix", to);
    if (source.dataType != destination.dataType)
      throw Error(describe(), "destinationMatrix", name(destination.dataType),
                  std::string(name(source.dataType)) + ", as the source");
    copies.sources.push_back(
        placeOf(encoding, source, {offsets.sourceRowOffset, offsets.sourceColumnOffset, 0},
                sourcesAreTransposed_ ? copyColumns_ : copyRows_,
                sourcesAreTransposed_ ? copyRows_ : copyColumns_, copies.offsets.has_value()));
    copies.destinations.push_back(placeOf(encoding, destination,
                                          {offsets.destinationRowOffset, offsets.destinationColumnOffset, 0},
                                          height, width, copies.offsets || isPermuted));
  }
  copies.checkAliasing(encoding);
  MatrixCopyProblem problem;
  problem.sourceIsTransposed = sourcesAreTransposed_;
  problem.destinationIsTransposed = destinationsAreTransposed_;
  problem.hasRowIndices = copies.rowIndices.has_value();
  problem.hasColumnIndices = copies.columnIndices.has_value();
  copies.record(encoding, problem, copyRows_, copyColumns_, operations);
  encoding.finish();
}

void MatrixCopy::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.code("copyRows", copyRows_);
  coder.code("copyColumns", copyColumns_);
  coder.code("sourcesAreTransposed", sourcesAreTransposed_);
  coder.code("destinationsAreTransposed", destinationsAreTransposed_);
}

}  // namespace mps
