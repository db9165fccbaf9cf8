#pragma once

#include <initializer_list>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"

/// Kernels that treat every element of some tensors of the same sizes by itself, 16 bytes of channels at once
/// where addresses and strides allow that.
namespace mps::detail::cuda {

/// Where in the tensors an element lies, or the first one of a vector.
struct ElementPlace {
  std::int32_t image;
  std::int32_t y;
  std::int32_t x;
  std::int32_t channel;
};

/// A tensor as kernels see it. @tparam Byte std::byte, or const std::byte for what is only read
template <class Byte>
struct TensorView {
  Byte* memory = nullptr;
  std::int64_t image = 0;
  std::int64_t row = 0;
  std::int32_t pixel = 0;
  bool oneChannel = false;  ///< which stands for all
  ImageFeatureChannelFormat format = ImageFeatureChannelFormat::None;

  TensorView() = default;
  /// @param channels of the other tensors; this one may have 1
  TensorView(const TensorShape& shape, Byte* address, std::int64_t channels)
      : memory(address),
        image(shape.imageStride),
        row(shape.rowStride),
        pixel(static_cast<std::int32_t>(shape.pixelStride)),
        oneChannel(shape.channels < channels),
        format(shape.format) {}
  TensorView(const TensorShape& shape, Byte* address) : TensorView(shape, address, shape.channels) {}

  [[nodiscard]] __device__ std::int64_t offset(const ElementPlace& place) const {
    return place.image * image + place.y * row + static_cast<std::int64_t>(place.x) * pixel +
           (oneChannel ? 0 : place.channel);
  }
};
using SourceView = TensorView<const std::byte>;
using ResultView = TensorView<std::byte>;

// How kernels access tensors: `lanes` adjacent channels at once, as float32.

/// Sixteen bytes at once, of elements of type T, float or Float16.
template <class T>
struct InVectors {
  static constexpr int lanes = kLanes<T>;
  using Values = Lanes<T>;
  using Fetched = uint4;  ///< as memory has it

  __device__ static Fetched fetch(const SourceView& view, const ElementPlace& place) {
    const T* const from = reinterpret_cast<const T*>(view.memory) + view.offset(place);
    if (!view.oneChannel) return *reinterpret_cast<const uint4*>(from);
    const float value = cuda::load(from);
    const unsigned bits = sizeof(T) == sizeof(float) ? __float_as_uint(value) : toHalves(value, value);
    return {bits, bits, bits, bits};
  }
  /// @param fetched by value: of a reference to memory the four words of float16 would be read one by one
  __device__ static Values valuesOf(Fetched fetched) {
    return lanesOf(fetched, static_cast<const T*>(nullptr));
  }
  __device__ static Values load(const SourceView& view, const ElementPlace& place) {
    return valuesOf(fetch(view, place));
  }
  /// @param accumulate add to what is there
  __device__ static void store(Values values, const ResultView& view, const ElementPlace& place,
                               bool accumulate = false) {
    T* const to = reinterpret_cast<T*>(view.memory) + view.offset(place);
    if (accumulate) {
      const Values old = loadLanes(to);
      for (int lane = 0; lane < lanes; ++lane) values.values[lane] += old.values[lane];
    }
    storeLanes(values, to);
  }
  __device__ static void storeVector(const Values& values, std::byte* memory, std::uint32_t vector) {
    storeLanes(values, reinterpret_cast<T*>(memory) + static_cast<std::int64_t>(vector) * lanes);
  }
};

/// One element at once, of any format and with any strides.
struct OneByOne {
  static constexpr int lanes = 1;
  struct Values {
    float values[1];
  };
  using Fetched = Values;

  __device__ static Values fetch(const SourceView& view, const ElementPlace& place) {
    return {{loadAs(view.format, view.memory, view.offset(place))}};
  }
  __device__ static Values valuesOf(const Values& fetched) { return fetched; }
  __device__ static Values load(const SourceView& view, const ElementPlace& place) {
    return fetch(view, place);
  }
  __device__ static void store(Values values, const ResultView& view, const ElementPlace& place,
                               bool accumulate = false) {
    const std::int64_t offset = view.offset(place);
    const float old = accumulate ? loadAs(view.format, view.memory, offset) : 0.0F;
    storeAs(accumulate ? old + values.values[0] : values.values[0], view.format, view.memory, offset);
  }
};

/// Calls launch(InVectors<float>()), launch(InVectors<Float16>()) or launch(OneByOne()).
/// @param format of vectors; None: single elements
template <class Launch>
void withAccess(ImageFeatureChannelFormat format, Launch launch) {
  if (format == ImageFeatureChannelFormat::Float32)
    launch(InVectors<float>());
  else if (format == ImageFeatureChannelFormat::Float16)
    launch(InVectors<Float16>());
  else
    launch(OneByOne());
}

/// The format of all shapes, or None. Null stands for a tensor that is not there; not the first one.
inline ImageFeatureChannelFormat commonFormat(std::initializer_list<const TensorShape*> shapes) {
  const ImageFeatureChannelFormat format = (*shapes.begin())->format;
  for (const TensorShape* shape : shapes)
    if (shape != nullptr && shape->format != format) return ImageFeatureChannelFormat::None;
  return format;
}

/// How a grid goes over all elements of tensors of one size.
class ElementGrid {
 public:
  static constexpr std::int64_t kLongestRow = 0x7FFFFFFF - 0x20000;

  /// Whether the numbers are small enough.
  static bool fits(const TensorShape& shape) {
    return shape.pixelStride <= 0x7FFFFFFF && shape.images * shape.height <= 0x7FFFFFFF &&
           shape.width * shape.channels <= kLongestRow;
  }
  static constexpr const char* kTooLarge = "a row of about 2^31 elements, or 2^31 rows";

  ElementGrid() = default;
  /// @param shape of the tensors, not empty
  /// @param lanes elements of a vector
  /// @param batch vectors that a thread works on at once
  ElementGrid(const TensorShape& shape, int lanes, int batch)
      : rows_(shape.images * shape.height, shape.width * (shape.channels / lanes), batch),
        height_(shape.height),
        vectors_(shape.channels / lanes) {}

  [[nodiscard]] dim3 grid() const { return rows_.grid; }
  [[nodiscard]] dim3 block() const { return rows_.block; }

  /// For the vectors of this thread, in batches: load(i, place) for all of a batch, then finish(i, place), with
  /// i from 0 to batch - 1. A block's batch is one stretch of memory: far fewer pages at a time are in use.
  template <int batch, int lanes, class Load, class Finish>
  __device__ void forEachBatch(Load load, Finish finish) const {
    forEachRow(rows_, [&](std::uint32_t row) {
      const std::uint32_t image = height_.divide(row);
      const ElementPlace start{static_cast<std::int32_t>(image),
                               static_cast<std::int32_t>(row - image * height_.divisor()), 0, 0};
      const std::uint32_t step = blockDim.x;
      for (std::uint32_t first = batch * step * blockIdx.x + threadIdx.x; first < rows_.pieces;
           first += batch * step * gridDim.x) {
        ElementPlace places[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
          const std::uint32_t piece = first + static_cast<std::uint32_t>(i) * step;
          if (piece >= rows_.pieces) continue;
          const std::uint32_t x = vectors_.divide(piece);
          places[i] = start;
          places[i].x = static_cast<std::int32_t>(x);
          places[i].channel = static_cast<std::int32_t>((piece - x * vectors_.divisor()) * lanes);
          load(i, places[i]);
        }
#pragma unroll
        for (int i = 0; i < batch; ++i)
          if (first + static_cast<std::uint32_t>(i) * step < rows_.pieces) finish(i, places[i]);
      }
    });
  }

 private:
  RowGrid rows_;
  Divider height_;
  Divider vectors_;
};

/// Which axes joinAxes() may join: Pixels, those of an image; AllPixels, images, too.
enum class JoinedAxes { None, Pixels, AllPixels, OfAnImage, All };

/// Joins axes along which every tensor goes on without a gap, or is repeated, so that rows get longer. The
/// tensors have the same sizes, but for those of 1 channel. Strides along axes of size 1 become 0. Null stands
/// for a tensor that is not there; not the first one.
inline void joinAxes(std::initializer_list<TensorShape*> shapes, JoinedAxes joined) {
  const TensorShape& result = **shapes.begin();
  const auto all = [&](auto holds) {
    return std::all_of(shapes.begin(), shapes.end(),
                       [&](const TensorShape* shape) { return shape == nullptr || holds(*shape); });
  };
  const auto change = [&](auto how) {
    for (TensorShape* shape : shapes)
      if (shape != nullptr) how(*shape);
  };
  const auto takes = [&](std::int64_t factor) {
    return result.width * result.channels * factor <= ElementGrid::kLongestRow;
  };
  if (joined != JoinedAxes::None && takes(result.height) && all([](const TensorShape& s) {
        return s.height == 1 || s.width == 1 || s.rowStride == s.width * s.pixelStride;
      }))
    change([](TensorShape& s) {
      if (s.width == 1) s.pixelStride = s.rowStride;
      s.width *= s.height;
      s.height = 1;
    });
  const bool joinsImages = joined == JoinedAxes::AllPixels || joined == JoinedAxes::All;
  if (joinsImages && result.height == 1 && takes(result.images) && all([](const TensorShape& s) {
        return s.images == 1 || s.width == 1 || s.imageStride == s.width * s.pixelStride;
      }))
    change([](TensorShape& s) {
      if (s.width == 1) s.pixelStride = s.imageStride;
      s.width *= s.images;
      s.images = 1;
    });
  const std::int64_t channels = result.channels;
  const bool joinsChannels = joined == JoinedAxes::OfAnImage || joined == JoinedAxes::All;
  if (joinsChannels && all([&](const TensorShape& s) {
        return s.channels == channels && (s.width == 1 || s.pixelStride == s.channels);
      }))
    change([](TensorShape& s) {
      s.channels *= s.width;
      s.width = 1;
    });
  change([](TensorShape& s) {
    if (s.images == 1) s.imageStride = 0;
    if (s.height == 1) s.rowStride = 0;
    if (s.width == 1) s.pixelStride = 0;
  });
}

template <int inputs>
struct MapArguments {
  ElementGrid grid;
  SourceView sources[inputs];
  ResultView destination;
  bool accumulate = false;
};

/// Vectors that a thread loads from each input before it stores a result: 64 bytes of all. Code that works
/// element by element is long: it knows all formats.
template <class Access, int inputs>
inline constexpr int kBatch = std::max(1, (Access::lanes == 1 ? 2 : 4) / inputs);

/// Stores function's results: function(place, inputs, result), on vectors of values.
template <class Access, int inputs, class Function>
__global__ void mapElements(MapArguments<inputs> a, Function function) {
  constexpr int batch = kBatch<Access, inputs>;
  typename Access::Fetched fetched[batch][inputs];
  a.grid.template forEachBatch<batch, Access::lanes>(
      [&](int i, const ElementPlace& place) {
#pragma unroll
        for (int k = 0; k < inputs; ++k) fetched[i][k] = Access::fetch(a.sources[k], place);
      },
      [&](int i, const ElementPlace& place) {
        typename Access::Values values[inputs];
#pragma unroll
        for (int k = 0; k < inputs; ++k) values[k] = Access::valuesOf(fetched[i][k]);
        typename Access::Values result;
        function(place, values, result);
        Access::store(result, a.destination, place, a.accumulate);
      });
}

/// How the vectors of tensors whose pixels are one row are counted.
struct PixelVectors {
  Divider ofPixel;
  /// Pixels between two images of a tensor that has one pixel for each.
  Divider pixelsOfImage;
  std::uint32_t count = 0;
};

/// mapElements for tensors whose pixels are one row, a vector for each thread. A place's image is that of a tensor
/// with one pixel for each image; the strides between the images of all others are 0.
template <class Access, int inputs, class Function>
__global__ void __launch_bounds__(mtl::cuda::kBlockThreads)
    mapPixels(PixelVectors vectors, MapArguments<inputs> a, Function function) {
  const std::uint32_t vector = mtl::cuda::kBlockThreads * blockIdx.x + threadIdx.x;
  if (vector >= vectors.count) return;
  const std::uint32_t pixel = vectors.ofPixel.divide(vector);
  const ElementPlace place{
      static_cast<std::int32_t>(vectors.pixelsOfImage.divide(pixel)), 0, static_cast<std::int32_t>(pixel),
      static_cast<std::int32_t>((vector - pixel * vectors.ofPixel.divisor()) * Access::lanes)};
  typename Access::Values values[inputs];
#pragma unroll
  for (int k = 0; k < inputs; ++k) values[k] = Access::load(a.sources[k], place);
  typename Access::Values result;
  function(place, values, result);
  Access::store(result, a.destination, place, a.accumulate);
}

/// A tensor whose pixels are one row, counted in vectors of 16 bytes.
template <class Byte>
struct VectorView {
  Byte* memory = nullptr;
  std::uint32_t image = 0;  ///< from one to the next
  std::uint32_t pixel = 0;

  VectorView() = default;
  VectorView(const TensorView<Byte>& view, int lanes)
      : memory(view.memory),
        image(static_cast<std::uint32_t>(view.image / lanes)),
        pixel(static_cast<std::uint32_t>(view.pixel / lanes)) {}
  /// Whether 32 bits count all vectors.
  static bool takes(const TensorView<Byte>& view, int lanes, std::int64_t images, const TensorShape& shape) {
    constexpr std::int64_t most = 0xFFFFFFFF;
    return !view.oneChannel && view.image / lanes <= most &&
           images <= (most - shape.width * (view.pixel / lanes) - shape.channels) /
                         std::max<std::int64_t>(1, view.image / lanes);
  }
};

/// The tensors of a map, if no source has one channel and nothing is added to the destination.
template <int inputs>
struct VectorViews {
  VectorView<const std::byte> sources[inputs];
  VectorView<std::byte> destination;

  VectorViews(const MapArguments<inputs>& a, int lanes) : destination(a.destination, lanes) {
    for (int k = 0; k < inputs; ++k) sources[k] = {a.sources[k], lanes};
  }
  /// @param images of a tensor that has one pixel for each
  static bool takes(const MapArguments<inputs>& a, int lanes, std::int64_t images, const TensorShape& shape) {
    return !a.accumulate && VectorView<std::byte>::takes(a.destination, lanes, images, shape) &&
           std::all_of(std::begin(a.sources), std::end(a.sources), [&](const SourceView& source) {
             return VectorView<const std::byte>::takes(source, lanes, images, shape);
           });
  }
};

/// mapPixels, where addresses would take longer than all there is to compute.
template <class Access, int inputs, class Function>
__global__ void __launch_bounds__(mtl::cuda::kBlockThreads)
    mapPixelVectors(PixelVectors vectors, VectorViews<inputs> views, Function function) {
  const std::uint32_t vector = mtl::cuda::kBlockThreads * blockIdx.x + threadIdx.x;
  if (vector >= vectors.count) return;
  const std::uint32_t pixel = vectors.ofPixel.divide(vector);
  const std::uint32_t image = vectors.pixelsOfImage.divide(pixel);
  const std::uint32_t ofPixel = vector - pixel * vectors.ofPixel.divisor();
  const auto vectorIn = [&](const auto& view) { return image * view.image + pixel * view.pixel + ofPixel; };
  typename Access::Values values[inputs];
#pragma unroll
  for (int k = 0; k < inputs; ++k)
    values[k] = Access::valuesOf(reinterpret_cast<const typename Access::Fetched*>(
        views.sources[k].memory)[vectorIn(views.sources[k])]);
  typename Access::Values result;
  function(ElementPlace{static_cast<std::int32_t>(image), 0, static_cast<std::int32_t>(pixel),
                        static_cast<std::int32_t>(ofPixel * Access::lanes)},
           values, result);
  Access::storeVector(result, views.destination.memory, vectorIn(views.destination));
}

/// Starts mapElements, or what does the same faster. `shape` is that of the destination, not empty.
/// @param pixelsOfImage where a source has one pixel for each image, and those of all others are joined to a row:
/// how many of theirs belong to an image
template <class Access, int inputs, class Function>
void launchMap(mtl::Stream& stream, MapArguments<inputs> arguments, const TensorShape& shape,
               const Function& function, std::int64_t pixelsOfImage = ElementGrid::kLongestRow) {
  const std::int64_t vectors = shape.width * (shape.channels / Access::lanes);
  const auto count = static_cast<std::uint32_t>(vectors);
  const dim3 blocks(mtl::cuda::blocksFor(vectors));
  const dim3 threads(mtl::cuda::kBlockThreads);
  if (shape.images == 1 && shape.height == 1) {
    const PixelVectors pixels{Divider(shape.channels / Access::lanes), Divider(pixelsOfImage), count};
    if constexpr (Access::lanes > 1)
      if (VectorViews<inputs>::takes(arguments, Access::lanes, shape.width / pixelsOfImage + 1, shape))
        return mtl::cuda::launch(stream, mapPixelVectors<Access, inputs, Function>, blocks, threads, 0,
                                 pixels, VectorViews<inputs>(arguments, Access::lanes), function);
    return mtl::cuda::launch(stream, mapPixels<Access, inputs, Function>, blocks, threads, 0, pixels,
                             arguments, function);
  }
  arguments.grid = ElementGrid(shape, Access::lanes, kBatch<Access, inputs>);
  mtl::cuda::launch(stream, mapElements<Access, inputs, Function>, arguments.grid.grid(),
                    arguments.grid.block(), 0, arguments, function);
}

}  // namespace mps::detail::cuda
