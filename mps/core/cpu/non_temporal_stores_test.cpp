#include "mps/core/cpu/non_temporal_stores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/core/neuron/neuron_span.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

namespace mps::detail::non_temporal_stores_test {
namespace {

using enum ImageFeatureChannelFormat;

NNNeuronDescriptor rectifier() {
  return NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.25F);
}

/// Room for values that begin `behind` elements behind a cache line, and for more around them.
template <class T>
class Room {
 public:
  Room(std::size_t behind, std::size_t count) : bytes_(kLine * 3 + count * sizeof(T), kUntouched) {
    const std::size_t inLine = reinterpret_cast<std::uintptr_t>(bytes_.data()) % kLine;
    first_ = kLine - inLine + behind * sizeof(T);
    size_ = count * sizeof(T);
  }

  [[nodiscard]] T* values() { return reinterpret_cast<T*>(bytes_.data() + first_); }
  [[nodiscard]] bool holdsTheSame(Room& other) { return std::memcmp(values(), other.values(), size_) == 0; }
  [[nodiscard]] bool surroundingsIntact() const {
    const auto isUntouched = [](std::byte b) { return b == kUntouched; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(first_);
    return std::all_of(bytes_.begin(), begin, isUntouched) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(size_), bytes_.end(), isUntouched);
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::byte kUntouched{0xA5};
  std::vector<std::byte> bytes_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

/// The same values, non-temporal and not, from addresses on that are aligned to vectors or are not.
template <class T>
void compareStores() {
  forEachTarget([](const std::string& target) {
    for (const std::size_t behind : std::initializer_list<std::size_t>{0, 1, 8, 15})
      for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 5, 16, 33, 64, 257}) {
        SCOPED_TRACE(target + ": " + std::to_string(behind) + " elements behind a line, " +
                     std::to_string(count));
        const auto drawn = randomValues(count, 1, RandomKind::Uniform);
        const std::vector<float> x(drawn.begin(), drawn.end());
        const NeuronRun run{1, static_cast<std::int64_t>(count), 0};
        Room<T> ordinary(behind, count);
        Room<T> nonTemporal(behind, count);
        neuronValues(rectifier(), run, x.data(), FloatRun(ordinary.values()));
        FloatRun past(nonTemporal.values());
        past.isNonTemporal = true;
        neuronValues(rectifier(), run, x.data(), past);
        finishNonTemporalStores();
        EXPECT_TRUE(nonTemporal.holdsTheSame(ordinary));
        EXPECT_TRUE(nonTemporal.surroundingsIntact());
      }
  });
}

TEST(NonTemporalStores, Float32) {
  compareStores<float>();
}
TEST(NonTemporalStores, Float16) {
  compareStores<mps::Float16>();
}

TEST(NonTemporalStores, OnlyOfLargeResults) {
  EXPECT_FALSE(usesNonTemporalStores(std::int64_t{48} << 20U));
  EXPECT_TRUE(usesNonTemporalStores((std::int64_t{48} << 20U) + 1));
  const TensorShape small = TensorShape::dense(64, 64, 64, 24);  // 24 MiB, beside an input of 24 MiB
  const TensorShape large = TensorShape::dense(65, 64, 64, 24);
  std::byte memory[64];
  float buffer[24];
  const Tile tile{0, 1, 0, 24};
  EXPECT_FALSE(runTarget(small, memory, tile, buffer).isNonTemporal);
  EXPECT_TRUE(runTarget(large, memory, tile, buffer).isNonTemporal);
  EXPECT_FALSE(runTarget(large, memory, tile, buffer, true).isNonTemporal)
      << "what is added to is read first";
  EXPECT_FALSE(runTarget(TensorShape::dense(260, 64, 64, 24, Unorm8), memory, tile, buffer).isNonTemporal)
      << "the buffer stays in the cache";
  EXPECT_TRUE(runTarget(TensorShape::dense(130, 64, 64, 24, Float16), memory, tile, buffer).isNonTemporal);
}

TEST(NonTemporalStores, OfSmallResultsForChecks) {
  {
    const NonTemporalFrom always(0);
    EXPECT_TRUE(usesNonTemporalStores(1));
    EXPECT_FALSE(usesNonTemporalStores(0));
    {
      const NonTemporalFrom larger(100);
      EXPECT_FALSE(usesNonTemporalStores(100));
      EXPECT_TRUE(usesNonTemporalStores(101));
    }
    EXPECT_TRUE(usesNonTemporalStores(1));
  }
  EXPECT_FALSE(usesNonTemporalStores(std::int64_t{48} << 20U));
}

TEST(NonTemporalStores, RowsOnlyWhereEachBeginsALine) {
  const std::int64_t large = std::int64_t{64} << 20U;
  EXPECT_TRUE(usesNonTemporalStoresForRows(large, TensorShape::dense(8, 56, 56, 64)));
  EXPECT_FALSE(usesNonTemporalStoresForRows(std::int64_t{48} << 20U, TensorShape::dense(8, 56, 56, 64)));
  EXPECT_FALSE(usesNonTemporalStoresForRows(large, TensorShape::dense(8, 56, 56, 3)))
      << "672 bytes are 10 lines and a half";
  EXPECT_TRUE(usesNonTemporalStoresForRows(large, TensorShape::dense(8, 64, 64, 3)));
  EXPECT_FALSE(usesNonTemporalStoresForRows(large, TensorShape::dense(8, 56, 56, 3, Float16)));
}

/// On several threads; pixels of 21 channels begin anywhere in a line.
TEST(NonTemporalStores, TilesOfALargeTensor) {
  for (const auto format : {Float16, Float32}) {
    const TensorShape shape = TensorShape::dense(format == Float16 ? 150 : 75, 64, 64, 21, format);
    const auto device = mtl::newCPUDevice(3);
    TestTensor destination(device, shape);
    mtl::cpu::Stream stream(3);
    const auto valueOf = [](std::int64_t element) { return static_cast<float>(element % 2039 - 1000); };
    forEachTile(stream, Tiling(shape.pixels(), shape.channels), [&](const Tile& tile) {
      float x[Tiling::capacity];
      for (std::int64_t i = 0; i < tile.elements(); ++i) x[i] = valueOf(tile.firstPixel * shape.channels + i);
      const FloatRun target = runTarget(shape, destination.address(), tile, nullptr);
      EXPECT_TRUE(target.isNonTemporal);
      neuronValues(rectifier(), {tile.pixels, tile.channels, 0}, x, target);
    });
    EXPECT_TRUE(destination.surroundingsIntact());
    const std::vector<double> found = destination.read();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double x = valueOf(static_cast<std::int64_t>(i));
      wrong += found[i] != roundTo(x < 0 ? 0.25 * x : x, format) ? 1U : 0U;
    }
    EXPECT_EQ(wrong, 0U);
  }
}

TEST(NonTemporalStores, TilesBeginAtWholeVectors) {
  for (const std::int64_t channels : {1, 10, 21, 64, 96, 100, 128})
    for (std::int64_t i = 0; i < 8; ++i)
      EXPECT_EQ(Tiling(100000, channels)[i].firstPixel * channels % 16, 0) << channels << " channels";
}

}  // namespace
}  // namespace mps::detail::non_temporal_stores_test
