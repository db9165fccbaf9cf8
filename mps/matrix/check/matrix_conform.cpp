#include <algorithm>
#include <array>
#include <cstring>

#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/test_matrices.hpp"
#include "mps/matrix/check/matrix_cases.hpp"
#include "mps/matrix/check/matrix_layers_conform.hpp"
#include "mps/matrix/check/matrix_reference.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

// -------------------------------------------------------------------------------------------------
// Products
// -------------------------------------------------------------------------------------------------

using ProductImplementation = Implementation<MatrixMultiplicationProblem>;

void runProduct(ConformRun& run, const ProductImplementation& implementation,
                const MatrixMultiplicationCase& item, Tier tier) {
  MatrixMultiplicationProblem problem = item.problem(run.format());
  problem.threadCount = run.device()->threadCount();
  problem.deviceName = run.device()->name();
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const RandomKind kind = valuesFor(tier, run.format());
  TestTensor left = run.source(problem.left, kind, 1);
  TestTensor right = run.source(problem.right, kind, 2);
  TestTensor result =
      problem.beta != 0 ? run.source(problem.result, kind, 3) : run.destination(problem.result, 3);
  const ReferenceTensor old = problem.beta != 0 ? result.reference() : ReferenceTensor();
  run.execute(*plan,
              {.source = left.address(), .secondary = right.address(), .destination = result.address()});
  run.require(left.isUnchanged() && right.isUnchanged(), "a factor was written");
  run.check(matrixMultiplicationReference(problem, left.reference(), right.reference(), old), result,
            Zeros::Expected);
}

void runProductKernel(ConformRun& run, const MatrixMultiplicationCase& item, Tier tier) {
  const MatrixMultiplicationProblem problem = item.problem(run.format());
  const RandomKind kind = valuesFor(tier, run.format());
  const TestMatrix left(run, problem.left, kind);
  const TestMatrix right(run, problem.right, kind);
  const TestMatrix result(run, problem.result, kind);
  const auto kernel = MatrixMultiplication::create(
      run.device(), problem.transposeLeft, problem.transposeRight, static_cast<std::size_t>(item.rows),
      static_cast<std::size_t>(item.columns), static_cast<std::size_t>(item.interior),
      static_cast<double>(item.alpha), static_cast<double>(item.beta));
  kernel->setLeftMatrixOrigin(TestMatrix::origin);
  kernel->setRightMatrixOrigin(TestMatrix::origin);
  kernel->setResultMatrixOrigin(TestMatrix::origin);
  if (!encodeMatrices(run, {&left, &right}, {&result}, [&](const auto& commandBuffer) {
        kernel->encode(commandBuffer, left.matrix, right.matrix, result.matrix);
      }))
    return;
  run.check(matrixMultiplicationReference(problem, left.before, right.before, result.before), result.read(),
            run.format(), Zeros::Expected);
}

/// op(A) x of the cases' left factors; `columns` is not used.
void runVectorKernel(ConformRun& run, const MatrixMultiplicationCase& item, Tier tier) {
  const RandomKind kind = valuesFor(tier, run.format());
  const TestMatrix matrix(run, item.problem(run.format()).left, kind);
  const TestVector input(run, item.interior, item.matrices, kind);
  const TestVector result(run, item.rows, item.matrices, kind);
  const auto kernel = MatrixVectorMultiplication::create(
      run.device(), item.transposeLeft, static_cast<std::size_t>(item.rows),
      static_cast<std::size_t>(item.interior), static_cast<double>(item.alpha),
      static_cast<double>(item.beta));
  kernel->setPrimarySourceMatrixOrigin(TestMatrix::origin);
  kernel->setSecondarySourceMatrixOrigin({TestVector::kFirst, 0, 0});
  kernel->setResultMatrixOrigin({TestVector::kFirst, 0, 0});
  if (!encodeMatrices(run, {&matrix, &input}, {&result}, [&](const auto& commandBuffer) {
        kernel->encode(commandBuffer, matrix.matrix, input.vector, result.vector);
      }))
    return;
  MatrixMultiplicationProblem problem = item.problem(run.format());
  problem.transposeRight = false;
  problem.result = TensorShape::dense(item.matrices, item.rows, 1, 1, run.format());
  const auto column = [](ReferenceTensor vector) {
    std::swap(vector.height, vector.channels);
    return vector;
  };
  const ReferenceTensor expected =
      matrixMultiplicationReference(problem, matrix.before, column(input.before), column(result.before));
  run.check(expected, result.read(), run.format(), Zeros::Expected);
}

void conformProducts(Conform& conform) {
  for (const ProductImplementation& implementation : conform.implementations(matrixMultiplicationBackEnds))
    for (const auto format : kGradientFormats)
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        std::vector<ConformCase> cases;
        for (const MatrixMultiplicationCase& item : matrixMultiplicationCases()) {
          cases.push_back({item.name, [=](ConformRun& run) { runProduct(run, implementation, item, tier); }});
          if (item.interior > 0)
            cases.push_back(
                {"Kernel" + item.name, [=](ConformRun& run) { runProductKernel(run, item, tier); }});
        }
        const std::string name(implementation.name);
        conformRow(conform, {"MatrixMultiplication", Direction::Forward, format, name, tier}, cases);
        cases.clear();
        std::vector<MatrixMultiplicationCase> items = matrixMultiplicationCases();
        items.push_back({.name = "LongVectors", .rows = 3000, .interior = 40, .matrices = 4});
        for (const MatrixMultiplicationCase& item : items)
          if (item.interior > 0)
            cases.push_back({item.name, [=](ConformRun& run) { runVectorKernel(run, item, tier); }});
        conformRow(conform, {"MatrixVectorMultiplication", Direction::Forward, format, name, tier}, cases);
      }
}

// -------------------------------------------------------------------------------------------------
// Copies
// -------------------------------------------------------------------------------------------------

using CopyImplementation = Implementation<ImageMatrixCopyProblem>;

RandomKind kindFor(ImageFeatureChannelFormat format) {
  return isUnorm(format) ? RandomKind::Positive : RandomKind::Uniform;
}

void runCopy(ConformRun& run, const CopyImplementation& implementation,
             const ImageMatrixCopyProblem& problem) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor source =
      run.source(problem.toMatrix ? problem.images : problem.matrix, kindFor(run.format()), 1);
  TestTensor destination = run.destination(problem.toMatrix ? problem.matrix : problem.images, 3);
  run.execute(*plan, {.source = source.address(), .destination = destination.address()});
  run.require(source.isUnchanged(), "the source was written");
  run.check(imageMatrixCopyReference(problem, source.reference()), destination, Zeros::Expected);
}

void runCopyKernel(ConformRun& run, const KernelBatch& batch, bool toMatrix, bool channelsFirst) {
  const ImageMatrixCopyCase item{.name = "",
                                 .images = static_cast<std::int64_t>(batch.count),
                                 .height = static_cast<std::int64_t>(batch.height),
                                 .width = static_cast<std::int64_t>(batch.width),
                                 .channels = static_cast<std::int64_t>(batch.channels)};
  const ImageMatrixCopyProblem problem = item.problem(toMatrix, channelsFirst, run.format());
  const DataLayout layout =
      channelsFirst ? DataLayout::FeatureChannelsxHeightxWidth : DataLayout::HeightxWidthxFeatureChannels;
  const ImageDescriptor descriptor = batch.descriptor(run.format());
  const TestMatrix matrix(run, problem.matrix, kindFor(run.format()));
  if (toMatrix) {
    const TestImages images = run.sources(batch.form, descriptor, batch.count, kindFor(run.format()));
    const auto kernel = ImageCopyToMatrix::create(run.device(), layout);
    kernel->setDestinationMatrixOrigin(TestMatrix::origin);
    if (!encodeMatrices(run, {}, {&matrix}, [&](const auto& commandBuffer) {
          kernel->encodeBatch(commandBuffer, images.batch(), matrix.matrix);
        }))
      return;
    run.require(images.isUnchanged(), "the source was written");
    run.check(imageMatrixCopyReference(problem, images.reference()), matrix.read(), run.format(),
              Zeros::Expected);
    return;
  }
  const TestImages images = run.destinations(batch.form, descriptor, batch.count);
  const auto kernel = MatrixCopyToImage::create(run.device(), layout);
  kernel->setSourceMatrixOrigin(TestMatrix::origin);
  if (!encodeMatrices(run, {&matrix}, {}, [&](const auto& commandBuffer) {
        kernel->encodeBatch(commandBuffer, matrix.matrix, images.batch());
      }))
    return;
  run.check(imageMatrixCopyReference(problem, matrix.before), images, Zeros::Expected);
}

void conformCopies(Conform& conform) {
  constexpr std::array<ImageFeatureChannelFormat, 4> formats{
      ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16,
      ImageFeatureChannelFormat::Unorm8, ImageFeatureChannelFormat::Unorm16};
  for (const CopyImplementation& implementation : conform.implementations(imageMatrixCopyBackEnds))
    for (const bool toMatrix : {true, false})
      for (const auto format : formats) {
        std::vector<ConformCase> cases;
        for (const bool channelsFirst : {true, false}) {
          for (const ImageMatrixCopyCase& item : imageMatrixCopyCases())
            cases.push_back({item.name, [=](ConformRun& run) {
                               runCopy(run, implementation, item.problem(toMatrix, channelsFirst, format));
                             }});
          if (!toMatrix && isUnorm(format)) continue;  // unorm images are sources only
          for (const KernelBatch& batch : kernelBatches())
            cases.push_back(
                {batch.name, [=](ConformRun& run) { runCopyKernel(run, batch, toMatrix, channelsFirst); }});
        }
        conformRow(conform,
                   {toMatrix ? "ImageCopyToMatrix" : "MatrixCopyToImage", Direction::Forward, format,
                    std::string(implementation.name), Tier::Exact},
                   cases);
      }
}

// -------------------------------------------------------------------------------------------------
// Random numbers
// -------------------------------------------------------------------------------------------------

using RandomImplementation = Implementation<MatrixRandomProblem>;

std::uint32_t foldedSeed(std::uint64_t seed) {
  return static_cast<std::uint32_t>(seed) ^ static_cast<std::uint32_t>(seed >> 32U);
}

std::vector<std::uint32_t> wordsOf(RandomGenerator generator, std::uint64_t seed, std::uint64_t skipped,
                                   std::size_t count) {
  return generator == RandomGenerator::Philox
             ? philoxReference(seed, skipped / 4, count)
             : mtgp32Reference(foldedSeed(seed), static_cast<std::size_t>(skipped), count);
}

/// Words seen as pairs of unorm16, so that all their bits are compared.
TensorShape inHalves(TensorShape shape) {
  shape.format = ImageFeatureChannelFormat::Unorm16;
  for (std::int64_t* size : {&shape.channels, &shape.pixelStride, &shape.rowStride, &shape.imageStride})
    *size *= 2;
  return shape;
}

void runRandom(ConformRun& run, const RandomImplementation& implementation, RandomGenerator generator,
               MatrixRandomCase item) {
  item.seed += run.nextSeed();
  const MatrixRandomProblem problem = item.problem(generator);
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor destination = run.destination(
      problem.numbers == RandomNumbers::Words ? inHalves(problem.destination) : problem.destination, 2);
  // The state of MTGP32, and what a second fill must find in it.
  GuardedMemory state(run.device(), kMTGP32StateWords * sizeof(std::uint32_t));
  std::array<std::uint32_t, kMTGP32StateWords> seeded{};
  seedMTGP32(foldedSeed(item.seed), seeded);
  std::memcpy(state.bytes().data(), seeded.data(), sizeof seeded);
  state.didModify();
  Operands operands;
  operands.destination = destination.address();
  operands.scalars[0] = static_cast<double>(item.skippedBlocks);
  if (generator == RandomGenerator::MTGP32) operands.parameters[0] = state.address();
  const auto count = static_cast<std::size_t>(problem.destination.elements());
  const std::uint64_t skipped = generator == RandomGenerator::Philox ? item.skipped() : 0;
  run.execute(*plan, operands);
  run.check(matrixRandomReference(problem, wordsOf(generator, item.seed, skipped, count)), destination,
            Zeros::Expected);
  state.synchronize();
  run.require(state.guardsIntact(), "memory around the state was written");
  if (generator == RandomGenerator::Philox) return;
  destination.poison();
  run.execute(*plan, operands);
  run.check(matrixRandomReference(problem, wordsOf(generator, item.seed, count, count)), destination,
            Zeros::Expected);
}

void conformRandom(Conform& conform) {
  for (const RandomImplementation& implementation : conform.implementations(matrixRandomBackEnds))
    for (const auto generator : {RandomGenerator::MTGP32, RandomGenerator::Philox})
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        std::vector<ConformCase> cases;
        for (const MatrixRandomCase& item : matrixRandomCases())
          if ((item.numbers == RandomNumbers::Normal) == (tier == Tier::Bounded))
            cases.push_back(
                {item.name, [=](ConformRun& run) { runRandom(run, implementation, generator, item); }});
        conformRow(conform,
                   {generator == RandomGenerator::Philox ? "MatrixRandomPhilox" : "MatrixRandomMTGP32",
                    Direction::Forward, kFloat32, std::string(implementation.name), tier},
                   cases);
      }
}

}  // namespace

void conformMatrix(Conform& conform) {
  conformRandom(conform);
  conformCopies(conform);
  conformProducts(conform);
  conformMatrixLayers(conform);
}

}  // namespace mps::detail
