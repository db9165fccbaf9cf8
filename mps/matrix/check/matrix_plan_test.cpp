#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/run_on_device.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/matrix/check/matrix_cases.hpp"
#include "mps/matrix/check/matrix_reference.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

namespace mps::detail::matrix_plan_test {
namespace {

using enum ImageFeatureChannelFormat;

constexpr std::uint64_t kSeed = 20250211;
constexpr int kThreads = 3;

std::shared_ptr<mtl::Device> testDevice() {
  static const std::shared_ptr<mtl::Device> device = mtl::newCPUDevice(kThreads);
  return device;
}

/// Where the operands of a call lie: the CPU and, where there is one, a GPU.
std::vector<std::shared_ptr<mtl::Device>> places() {
  std::vector<std::shared_ptr<mtl::Device>> all{testDevice()};
  if (const auto gpus = mtl::cudaDevices(); !gpus.empty()) all.push_back(gpus.front());
  return all;
}

void execute(const Plan& plan, Operands operands, int threads = kThreads,
             const std::shared_ptr<mtl::Device>& place = testDevice()) {
  GuardedMemory scratch(place, plan.scratchBytes());
  operands.scratch = scratch.address();
  if (place->kind() == mtl::DeviceKind::CPU) {
    mtl::cpu::Stream stream(threads);
    plan.run(stream, operands);
  } else {
    runOnDevice(place, "matrix", [&](mtl::Stream& stream) { plan.run(stream, operands); });
    scratch.synchronize();
  }
  EXPECT_TRUE(scratch.guardsIntact());
}

/// A product with its operands.
class ProductCall {
 public:
  ProductCall(const MatrixMultiplicationProblem& problem, RandomKind kind,
              const std::shared_ptr<mtl::Device>& place = testDevice())
      : problem_(problem),
        place_(place),
        left_(place, problem.left, 1),
        right_(place, problem.right, 2),
        result_(place, problem.result, 3) {
    left_.write(values(problem.left, 1, kind));
    right_.write(values(problem.right, 2, kind));
    if (problem.beta != 0) result_.write(values(problem.result, 3, kind));
    if (problem.beta != 0) old_ = result_.reference();
  }

  void run(const Plan& plan, int threads = kThreads) {
    execute(plan,
            {.source = left_.address(), .secondary = right_.address(), .destination = result_.address()},
            threads, place_);
    EXPECT_TRUE(left_.isUnchanged() && right_.isUnchanged()) << "a factor was written";
    EXPECT_TRUE(result_.surroundingsIntact()) << "memory around the result was written";
  }

  Comparison judge(const MatrixMultiplicationProblem& problem, Tier tier) {
    return compare(matrixMultiplicationReference(problem, left_.reference(), right_.reference(), old_),
                   result_.read(), problem.result.format, tier, Zeros::Expected);
  }
  std::vector<double> found() { return result_.read(); }
  TestTensor& left() { return left_; }
  TestTensor& result() { return result_; }

 private:
  static std::vector<double> values(const TensorShape& shape, std::uint64_t seed, RandomKind kind) {
    return randomValues(static_cast<std::size_t>(shape.elements()), kSeed + seed, kind);
  }

  MatrixMultiplicationProblem problem_;
  std::shared_ptr<mtl::Device> place_;
  TestTensor left_;
  TestTensor right_;
  TestTensor result_;
  ReferenceTensor old_;
};

/// Whether an implementation may refuse a product; the last one of each place takes all.
bool mayRefuse(std::string_view implementation, const MatrixMultiplicationCase& item) {
  if (implementation == "matmul") return item.interior == 0;
  if (implementation == "cuBLASLt") return true;
  return implementation == "matrix-vector" && item.rows != 1 && item.columns != 1;
}

/// What mtl::cpu::oneDnnProduct refuses of oneDNN 3 alone.
bool isRefusedColumn(const MatrixMultiplicationCase& item, const Refusal& refusal) {
  return item.rows == 1 && item.transposeLeft && item.gap > 0 &&
         refusal.reason.ends_with("the left matrix is a transposed column with gaps");
}

void checkProducts(const std::shared_ptr<mtl::Device>& place,
                   std::span<const Implementation<MatrixMultiplicationProblem>> implementations) {
  for (const auto& implementation : implementations)
    for (const MatrixMultiplicationCase& item : matrixMultiplicationCases())
      for (const auto format : {Float32, Float16})
        for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
          MatrixMultiplicationProblem problem = item.problem(format);
          problem.threadCount = kThreads;
          problem.deviceName = place->name();
          SCOPED_TRACE(std::string(implementation.name) + " " + item.name + ": " + problem.describe());
          const Preparation preparation = implementation.prepare(problem);
          const auto* plan = std::get_if<std::shared_ptr<const Plan>>(&preparation);
          if (plan == nullptr) {
            const auto& refusal = std::get<Refusal>(preparation);
            EXPECT_TRUE(mayRefuse(implementation.name, item) || isRefusedColumn(item, refusal))
                << refusal.reason;
            continue;
          }
          ProductCall call(problem, tier == Tier::Exact ? RandomKind::SmallIntegers : RandomKind::Uniform,
                           place);
          call.run(**plan);
          const Comparison comparison = call.judge(problem, tier);
          EXPECT_TRUE(comparison.passed()) << comparison.report;
        }
}

TEST(MatrixMultiplicationPlan, EveryImplementationAgreesWithTheReference) {
  for (const auto& place : places()) {
    SCOPED_TRACE(place->name());
    checkProducts(place, matrixMultiplicationBackEnds.of(*place));
  }
}

void expectSameBitsFromAllThreads(const char* implementation, const MatrixMultiplicationProblem& problem) {
  const ForceImplementation force(implementation);
  const ChosenPlan chosen = preparePlan(matrixMultiplicationImplementationsCpu(), problem);
  ProductCall one(problem, RandomKind::Uniform);
  one.run(*chosen.plan, 1);
  ProductCall several(problem, RandomKind::Uniform);
  several.run(*chosen.plan, 7);
  EXPECT_EQ(one.found(), several.found()) << implementation;
}

TEST(MatrixMultiplicationPlan, ThreadCountDoesNotMatter) {
  const MatrixMultiplicationCase square{.name = "", .rows = 64, .columns = 64, .interior = 64};
  const MatrixMultiplicationCase wide{.name = "", .columns = 5003, .interior = 37, .matrices = 2};
  const MatrixMultiplicationCase tall{.name = "", .rows = 1003, .interior = 137, .matrices = 2};
  expectSameBitsFromAllThreads("dot products", square.problem(Float32));
  expectSameBitsFromAllThreads("matmul", wide.problem(Float32));
  expectSameBitsFromAllThreads("matmul", wide.problem(Float16));
  expectSameBitsFromAllThreads("matmul", tall.problem(Float32));
  expectSameBitsFromAllThreads("matmul", tall.problem(Float16));
}

TEST(MatrixMultiplicationPlan, BetaZeroDoesNotReadTheResult) {
  const MatrixMultiplicationCase item{.name = "", .rows = 5, .columns = 6, .interior = 7};
  for (const auto& place : places())
    for (const auto& implementation : matrixMultiplicationBackEnds.of(*place))
      for (const auto format : {Float32, Float16}) {
        if (mayRefuse(implementation.name, item)) continue;
        const auto problem = item.problem(format);
        ProductCall call(problem, RandomKind::SmallIntegers, place);
        call.result().write(std::vector<double>(30, std::nan("")));
        call.run(*std::get<std::shared_ptr<const Plan>>(implementation.prepare(problem)));
        EXPECT_TRUE(call.judge(problem, Tier::Exact).passed()) << implementation.name;
      }
}

TEST(MatrixMultiplicationPlan, NotANumberSpreadsOverItsRow) {
  const MatrixMultiplicationCase item{.name = "", .rows = 5, .columns = 6, .interior = 7};
  for (const auto& place : places())
    for (const auto& implementation : matrixMultiplicationBackEnds.of(*place)) {
      if (mayRefuse(implementation.name, item)) continue;
      const auto problem = item.problem(Float32);
      ProductCall call(problem, RandomKind::Uniform, place);
      std::vector<double> values = call.left().reference().values;
      values[8] = std::nan("");
      call.left().write(values);
      call.run(*std::get<std::shared_ptr<const Plan>>(implementation.prepare(problem)));
      EXPECT_TRUE(call.judge(problem, Tier::Bounded).passed()) << implementation.name;
      EXPECT_TRUE(std::isnan(call.found()[6]));
    }
}

/// A reference with one number changed must not agree, and is another key of the cache.
TEST(MatrixMultiplicationPlan, EveryFieldMatters) {
  const MatrixMultiplicationCase item{
      .name = "", .rows = 6, .columns = 6, .interior = 6, .matrices = 2, .alpha = 2, .beta = 3};
  const auto problem = item.problem(Float32);
  ProductCall call(problem, RandomKind::SmallIntegers);
  call.run(*preparePlan(matrixMultiplicationImplementationsCpu(), problem).plan);
  EXPECT_TRUE(call.judge(problem, Tier::Exact).passed());
  const auto expectSeen = [&](const char* what, bool showsInTheResult, auto change) {
    MatrixMultiplicationProblem other = problem;
    change(other);
    EXPECT_NE(call.judge(other, Tier::Bounded).passed(), showsInTheResult) << what;
    EXPECT_FALSE(other == problem) << what;
    EXPECT_NE(other.hash(), problem.hash()) << what;
  };
  expectSeen("transposeLeft", true, [](auto& p) { p.transposeLeft = true; });
  expectSeen("transposeRight", true, [](auto& p) { p.transposeRight = true; });
  expectSeen("alpha", true, [](auto& p) { p.alpha *= 1.001F; });
  expectSeen("beta", true, [](auto& p) { p.beta *= 1.001F; });
  expectSeen("interior", true, [](auto& p) { --p.left.channels; });
  expectSeen("rightStride", false, [](auto& p) { ++p.right.rowStride; });
  expectSeen("resultStride", false, [](auto& p) { ++p.result.rowStride; });
  expectSeen("threadCount", false, [](auto& p) { ++p.threadCount; });
  expectSeen("deviceName", false, [](auto& p) { p.deviceName = "cuda:1"; });
}

void checkCopies(const std::shared_ptr<mtl::Device>& place) {
  for (const auto& implementation : imageMatrixCopyBackEnds.of(*place))
    for (const ImageMatrixCopyCase& item : imageMatrixCopyCases())
      for (const auto format : {Float32, Float16, Unorm8, Unorm16})
        for (const bool toMatrix : {false, true})
          for (const bool channelsFirst : {false, true}) {
            const auto problem = item.problem(toMatrix, channelsFirst, format);
            SCOPED_TRACE(item.name + ": " + problem.describe());
            const Preparation preparation = implementation.prepare(problem);
            const auto* plan = std::get_if<std::shared_ptr<const Plan>>(&preparation);
            if (plan == nullptr) {
              const bool staysTogether =
                  !channelsFirst || item.channels == 1 || item.height * item.width == 1;
              EXPECT_EQ(implementation.name, staysTogether ? "transpose" : "copy")
                  << implementation.name << ": " << std::get<Refusal>(preparation).reason;
              continue;
            }
            TestTensor source(place, toMatrix ? problem.images : problem.matrix, 1);
            TestTensor destination(place, toMatrix ? problem.matrix : problem.images, 3);
            source.write(randomValues(static_cast<std::size_t>(problem.images.elements()), kSeed,
                                      RandomKind::Positive));
            execute(**plan, {.source = source.address(), .destination = destination.address()}, kThreads,
                    place);
            EXPECT_TRUE(source.isUnchanged());
            EXPECT_TRUE(destination.surroundingsIntact());
            const Comparison comparison = compare(imageMatrixCopyReference(problem, source.reference()),
                                                  destination.read(), format, Tier::Exact, Zeros::Expected);
            EXPECT_TRUE(comparison.passed()) << comparison.report;
          }
}

TEST(ImageMatrixCopyPlan, AgreesWithTheReferenceOnEveryInstructionSet) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    checkCopies(testDevice());
  });
}

TEST(ImageMatrixCopyPlan, AgreesWithTheReferenceOnEveryDevice) {
  for (const auto& place : places()) {
    SCOPED_TRACE(place->name());
    checkCopies(place);
  }
}

/// Bits, not numbers: a signalling NaN arrives as it is.
TEST(ImageMatrixCopyPlan, CopiesBits) {
  for (const bool channelsFirst : {false, true}) {
    const ImageMatrixCopyCase item{.name = "", .height = 5, .width = 4, .channels = 6};
    const auto problem = item.problem(true, channelsFirst, Float32);
    const std::vector<std::uint32_t> source(120, 0x7f812345);
    std::vector<std::uint32_t> destination(120);
    execute(*preparePlan(imageMatrixCopyImplementationsCpu(), problem).plan,
            {.source = reinterpret_cast<const std::byte*>(source.data()),
             .destination = reinterpret_cast<std::byte*>(destination.data())});
    EXPECT_EQ(destination, source);
  }
}

/// More than 64 MiB are written by non-temporal stores, from any address on.
template <class Bits>
void checkLargeCopy(ImageFeatureChannelFormat format, std::int64_t images) {
  const ImageMatrixCopyCase item{.name = "", .images = images, .height = 61, .width = 67, .channels = 37};
  for (const bool toMatrix : {false, true})
    for (const bool channelsFirst : {false, true}) {
      const auto problem = item.problem(toMatrix, channelsFirst, format);
      SCOPED_TRACE(problem.describe());
      const auto elements = static_cast<std::size_t>(problem.images.elements());
      ASSERT_GT(2 * elements * sizeof(Bits), std::size_t{1} << 26U);
      std::vector<Bits> source(elements);
      for (std::size_t i = 0; i < elements; ++i) source[i] = static_cast<Bits>(i * 2654435761U >> 7U);
      constexpr Bits kGuard = 77;
      std::vector<Bits> destination(elements + 2, kGuard);
      execute(*preparePlan(imageMatrixCopyImplementationsCpu(), problem).plan,
              {.source = reinterpret_cast<const std::byte*>(source.data()),
               .destination = reinterpret_cast<std::byte*>(destination.data() + 1)});
      EXPECT_EQ(destination.front(), kGuard);
      EXPECT_EQ(destination.back(), kGuard);
      std::size_t mismatches = 0;
      constexpr std::size_t kPlane = 61 * 67;
      constexpr std::size_t kChannels = 37;
      for (std::size_t i = 0; i < elements; ++i) {
        const std::size_t inImage = i % (kPlane * kChannels);
        const std::size_t column = inImage % kChannels * kPlane + inImage / kChannels;
        const std::size_t row = channelsFirst ? i - inImage + column : i;
        mismatches += source[toMatrix ? i : row] != destination[(toMatrix ? row : i) + 1] ? 1 : 0;
      }
      EXPECT_EQ(mismatches, 0U);
    }
}

TEST(ImageMatrixCopyPlan, LargeCopiesOfFloat32) {
  checkLargeCopy<std::uint32_t>(Float32, 56);
}

TEST(ImageMatrixCopyPlan, LargeCopiesOfFloat16) {
  checkLargeCopy<std::uint16_t>(Float16, 111);
}

/// A transposed part of a matrix of more than 24 MiB, which is written by non-temporal stores, with some rows left out.
template <class Bits>
void checkLargeExchange(ImageFeatureChannelFormat format, std::uint32_t firstColumn) {
  constexpr std::int64_t kRows = 3100;  // more than one tile for each thread
  constexpr std::int64_t kColumns = 203;
  constexpr std::int64_t width = (std::int64_t{9} << 10U) / std::int64_t{sizeof(Bits)};
  MatrixCopyProblem problem;
  problem.rows = kRows;
  problem.columns = kColumns;
  problem.sourceIsTransposed = true;
  problem.hasRowIndices = true;
  problem.source = TensorShape::dense(1, kColumns + 1, 1, kRows + 2, format);
  problem.destination = TensorShape::dense(1, kRows, 1, width, format);
  SCOPED_TRACE(problem.describe() + " from column " + std::to_string(firstColumn));
  ASSERT_GT(problem.destination.bytes(), std::int64_t{24} << 20U);
  std::vector<Bits> source(static_cast<std::size_t>(problem.source.elements()));
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<Bits>(i * 2654435761U >> 7U);
  constexpr Bits kBefore = 77;
  constexpr std::size_t kLine = 64 / sizeof(Bits);
  std::vector<Bits> memory(static_cast<std::size_t>(problem.destination.elements()) + kLine, kBefore);
  const std::size_t behind = reinterpret_cast<std::uintptr_t>(memory.data()) % 64 / sizeof(Bits);
  Bits* const destination = memory.data() + (kLine - behind) % kLine;
  // Each row goes to the mirrored one, those behind the last row nowhere.
  std::vector<std::uint32_t> offsets{1, 2, 5, firstColumn};
  std::vector<std::uint32_t> rows(kRows);
  for (std::uint32_t row = 0; row < kRows; ++row) rows[row] = kRows - 1 - row;
  Operands operands;
  operands.source = reinterpret_cast<const std::byte*>(source.data());
  operands.destination = reinterpret_cast<std::byte*>(destination);
  operands.parameters[0] = reinterpret_cast<std::byte*>(offsets.data());
  operands.parameters[1] = reinterpret_cast<std::byte*>(rows.data());
  execute(*preparePlan(matrixCopyImplementationsCpu(), problem).plan, operands);
  std::size_t mismatches = 0;
  for (std::int64_t y = 0; y < kRows; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t column = x - firstColumn;
      const bool isCopied = y >= 5 && column >= 0 && column < kColumns;
      const std::int64_t row = kRows - 1 - (y - 5);
      const Bits expected =
          isCopied ? source[static_cast<std::size_t>((column + 1) * (kRows + 2) + row + 2)] : kBefore;
      mismatches += destination[y * width + x] != expected ? 1 : 0;
    }
  EXPECT_EQ(mismatches, 0U);
}

TEST(MatrixCopyPlan, LargeTransposedCopies) {
  for (const std::uint32_t firstColumn : {0U, 3U, 64U}) {
    checkLargeExchange<std::uint32_t>(Float32, firstColumn);
    checkLargeExchange<std::uint16_t>(Float16, firstColumn);
    checkLargeExchange<std::uint8_t>(Unorm8, firstColumn);
  }
}

TEST(MatrixCopyPlan, LargeTransposedCopiesOnEveryInstructionSet) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    checkLargeExchange<std::uint32_t>(Float32, 16);
    checkLargeExchange<std::uint16_t>(Float16, 16);
  });
}

TEST(ImageMatrixCopyPlan, EveryFieldMatters) {
  const ImageMatrixCopyCase item{.name = "", .images = 2, .height = 3, .width = 4, .channels = 5};
  const auto problem = item.problem(true, true, Float32);
  TestTensor source(testDevice(), problem.images);
  TestTensor destination(testDevice(), problem.matrix);
  source.write(randomValues(120, kSeed, RandomKind::Uniform));
  execute(*preparePlan(imageMatrixCopyImplementationsCpu(), problem).plan,
          {.source = source.address(), .destination = destination.address()});
  const auto agrees = [&](const ImageMatrixCopyProblem& other) {
    ReferenceTensor images(other.images.images, other.images.height, other.images.width,
                           other.images.channels);
    images.values = source.reference().values;
    return compare(imageMatrixCopyReference(other, images), destination.read(), Float32, Tier::Exact)
        .passed();
  };
  EXPECT_TRUE(agrees(problem));
  const auto expectSeen = [&](const char* what, bool showsInTheResult, auto change) {
    ImageMatrixCopyProblem other = problem;
    change(other);
    if (showsInTheResult) {
      EXPECT_FALSE(agrees(other)) << what;
    }
    EXPECT_FALSE(other == problem) << what;
    EXPECT_NE(other.hash(), problem.hash()) << what;
  };
  expectSeen("channelsFirst", true, [](auto& p) { p.channelsFirst = false; });
  expectSeen("size", true, [](auto& p) { std::swap(p.images.height, p.images.channels); });
  expectSeen("toMatrix", false, [](auto& p) { p.toMatrix = false; });
  expectSeen("matrix", false, [](auto& p) { ++p.matrix.rowStride; });
}

}  // namespace
}  // namespace mps::detail::matrix_plan_test
