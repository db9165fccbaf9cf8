#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "fuzz/random_calls/arrays.hpp"
#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/images.hpp"
#include "mps/matrix/matrix_copy.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/matrix/matrix_sum.hpp"

namespace unmetal::random_calls {
namespace {

constexpr std::size_t kMostElements = 100'000;

/// Rows and columns, the other way around of a transposed matrix.
ArraySizes oneMatrix(mps::DataType type, std::size_t rows, std::size_t columns, bool isTransposed) {
  if (isTransposed) std::swap(rows, columns);
  return {type, rows, columns, 1};
}

ArraySizes grown(ArraySizes sizes, std::size_t rows, std::size_t columns) {
  sizes.rows += rows;
  sizes.columns += columns;
  return sizes;
}

/// Positions in another order behind one that the kernel is told to skip; at times one that is none.
std::shared_ptr<mps::Vector> makePermutation(Call& call, std::size_t count) {
  RandomNumbers& random = call.random;
  constexpr std::size_t skipped = 7777;
  std::vector<std::size_t> positions(count + 1);
  std::iota(positions.begin() + 1, positions.end(), std::size_t{0});
  positions[0] = skipped;
  for (std::size_t i = count; i > 1; --i) std::swap(positions[i], positions[random.size(1, i)]);
  if (count > 2 && random.chance(0.2)) positions[1] = 100'000;
  return makeSourceArrays(call, "permutation", ArraySizes::vectors(mps::DataType::UInt32, count + 1, 1),
                          [&](std::size_t i) { return static_cast<double>(positions[i]); })
      .vector;
}

mps::DataType typeOf(mps::ImageFeatureChannelFormat format) {
  using Format = mps::ImageFeatureChannelFormat;
  if (format == Format::Float32) return mps::DataType::Float32;
  if (format == Format::Float16) return mps::DataType::Float16;
  return format == Format::Unorm8 ? mps::DataType::UInt8 : mps::DataType::UInt16;
}

}  // namespace

void callMatrixSum(Call& call) {
  RandomNumbers& random = call.random;
  const auto type = random.chance(0.5) ? mps::DataType::Float16 : mps::DataType::Float32;
  const std::size_t count = call.noted("count", random.size(1, random.chance(0.1) ? 40 : 4));
  std::size_t rows = call.matrixSide();
  std::size_t columns = call.matrixSide();
  reduceTo(kMostElements / count, rows, columns);
  const bool isTransposed = call.noted("transposed", random.chance(0.5));
  call.stage = "sources";
  std::vector<std::shared_ptr<mps::Matrix>> sources;
  for (std::size_t i = 0; i < count; ++i)
    sources.push_back(makeSourceArrays(call, "source", {type, rows, columns, 1}, Numbers::Uniform).matrix);
  const std::size_t start = call.noted("start", random.size(0, 2));
  const auto scales = makeSourceArrays(
      call, "scales", ArraySizes::vectors(mps::DataType::Float32, count + start, 1), Numbers::Uniform);
  // Pairs of a row and a column in the sum.
  const auto offsets =
      makeSourceArrays(call, "offsets", ArraySizes::vectors(mps::DataType::UInt32, 2 * (count + start), 1),
                       [&](std::size_t) { return static_cast<double>(random.integer(0, 3)); });
  const ArraySizes sumSizes = oneMatrix(type, rows, columns, isTransposed);
  const auto biases =
      makeSourceArrays(call, "biases", ArraySizes::vectors(type, sumSizes.columns, 1), Numbers::Uniform);
  const mtl::Origin origin = matrixOrigin(call);
  const auto result =
      makeDestinationArrays(call, "result", grown(sumSizes, origin.x, origin.y), {.factor = 2});
  const auto kernel = mps::MatrixSum::create(call.device, count, rows, columns, isTransposed);
  kernel->setResultMatrixOrigin(origin);
  if (random.chance(0.4)) kernel->setNeuronType(mps::CNNNeuronType::ReLU, 0.1F, 0, 0);
  call.noted("neuron", kernel->neuronType());
  const auto scaleVector = call.noted("scales", random.chance(0.5)) ? scales.vector : nullptr;
  const auto offsetVector = call.noted("offsets", random.chance(0.4)) ? offsets.vector : nullptr;
  const auto biasVector = call.noted("biases", random.chance(0.5)) ? biases.vector : nullptr;
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encode(commandBuffer, std::span<const std::shared_ptr<mps::Matrix>>(sources), result.matrix,
                 scaleVector, offsetVector, biasVector, start);
  call.finish(commandBuffer);
}

void callMatrixCopy(Call& call) {
  RandomNumbers& random = call.random;
  const auto type = random.oneOf({mps::DataType::Float32, mps::DataType::Float16, mps::DataType::UInt32,
                                  mps::DataType::UInt16, mps::DataType::UInt8});
  std::size_t rows = call.matrixSide();
  std::size_t columns = call.matrixSide();
  reduceTo(kMostElements, rows, columns);
  const bool ofTransposed = call.noted("sourcesTransposed", random.chance(0.5));
  const bool toTransposed = call.noted("destinationsTransposed", random.chance(0.5));
  const std::size_t count = random.size(1, 3);
  call.stage = "sources";
  mps::MatrixCopyDescriptor copies(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto offset = [&] { return static_cast<std::uint32_t>(random.size(0, 3)); };
    const mps::MatrixCopyOffsets offsets{offset(), offset(), offset(), offset()};
    const auto source = makeSourceArrays(call, "source",
                                         grown(oneMatrix(type, rows, columns, ofTransposed),
                                               offsets.sourceRowOffset, offsets.sourceColumnOffset),
                                         Numbers::Probabilities);
    const auto destination =
        makeDestinationArrays(call, "destination",
                              grown(oneMatrix(type, rows, columns, toTransposed),
                                    offsets.destinationRowOffset, offsets.destinationColumnOffset),
                              {.isExact = true});
    copies.setCopyOperation(i, source.matrix, destination.matrix, offsets);
  }
  const auto kernel = mps::MatrixCopy::create(call.device, rows, columns, ofTransposed, toTransposed);
  std::shared_ptr<mps::Vector> permutedRows;
  std::shared_ptr<mps::Vector> permutedColumns;
  const bool isPermuted = call.noted("permuted", random.chance(0.5));
  if (isPermuted) {
    const ArraySizes sizes = oneMatrix(type, rows, columns, toTransposed);
    if (random.chance(0.7)) permutedRows = makePermutation(call, sizes.rows);
    if (random.chance(0.7)) permutedColumns = makePermutation(call, sizes.columns);
  }
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  if (isPermuted)
    kernel->encode(commandBuffer, copies, permutedRows, 1, permutedColumns, 1);
  else
    kernel->encode(commandBuffer, copies);
  call.finish(commandBuffer);
}

void callImageMatrixCopy(Call& call) {
  RandomNumbers& random = call.random;
  mps::ImageDescriptor size = call.imageSizes(5, 50'000);
  const bool toMatrix = call.noted("toMatrix", random.chance(0.5));
  if (!toMatrix) size.setChannelFormat(call.floatFormat());  // results are not unorm
  const auto layout =
      call.noted("layout", random.chance(0.5) ? mps::DataLayout::HeightxWidthxFeatureChannels
                                              : mps::DataLayout::FeatureChannelsxHeightxWidth);
  const std::size_t imageCount = call.imageCount();
  const std::size_t matrixCount = random.chance(0.6) ? 1 : random.size(1, 3);
  const std::size_t index = call.noted("batchIndex", random.size(0, matrixCount - 1));
  const mtl::Origin origin = matrixOrigin(call);
  call.description << " origin=" << origin.x << ',' << origin.y;
  const std::size_t elements = size.width() * size.height() * size.featureChannels();
  const ArraySizes matrixSizes{typeOf(size.channelFormat()), imageCount + origin.x, elements + origin.y,
                               matrixCount};
  const Tolerance exact{.isExact = true};
  call.stage = "sources";
  const CommandBufferPointer commandBuffer = call.begin();
  if (toMatrix) {
    const auto images = makeSources(call, "images", size, imageCount, Numbers::Uniform);
    const auto matrix = makeDestinationArrays(call, "matrix", matrixSizes, exact);
    const auto kernel = mps::ImageCopyToMatrix::create(call.device, layout);
    kernel->setDestinationMatrixOrigin(origin);
    kernel->setDestinationMatrixBatchIndex(index);
    call.stage = "encode";
    kernel->encodeBatch(commandBuffer, images.batch, matrix.matrix);
  } else {
    const auto matrix = makeSourceArrays(call, "matrix", matrixSizes, Numbers::Uniform);
    const auto images = makeDestinations(call, "images", size, imageCount, exact);
    const auto kernel = mps::MatrixCopyToImage::create(call.device, layout);
    kernel->setSourceMatrixOrigin(origin);
    kernel->setSourceMatrixBatchIndex(index);
    call.stage = "encode";
    kernel->encodeBatch(commandBuffer, matrix.matrix, images.batch);
  }
  call.finish(commandBuffer);
}

}  // namespace unmetal::random_calls
