#include "mtl/cuda/test_fusions.hpp"

#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "mtl/cuda/api.hpp"

namespace mtl::cuda::testing {
namespace {

std::size_t bytesOf(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF ? 2 : 4;
}

CudnnDescriptor describe(std::int64_t id, const FusedTensor& tensor) {
  const Sizes& sizes = tensor.sizes;
  const Sizes strides{sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]};
  const bool isVirtual = tensor.numbers == Numbers::Nothing;
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, tensor.type);
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &isVirtual);
  descriptor.finalize();
  return descriptor;
}

CudnnDescriptor describe(const FusedWindow& window) {
  const auto both = [](std::int64_t number) { return std::array<std::int64_t, 2>{number, number}; };
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  CudnnDescriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  descriptor.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, both(1));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, both(window.stride));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, both(window.padding));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, both(window.padding));
  descriptor.finalize();
  return descriptor;
}

CudnnDescriptor describe(cudnnPointwiseMode_t mode) {
  CudnnDescriptor descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  descriptor.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  descriptor.finalize();
  return descriptor;
}

/// A convolution and its attributes: factors, geometry, larger image, weights, smaller image.
struct ConvolutionNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, geometry, large, weights, small;
};
ConvolutionNames namesOf(FusedConvolution operation) {
  switch (operation) {
    case FusedConvolution::DataGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case FusedConvolution::WeightsGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    case FusedConvolution::Forward:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
}

/// Random numbers of a kind, as many as repeat unnoticed.
std::vector<float> randomNumbers(Numbers numbers) {
  constexpr std::size_t kPeriod = 1'000'003;
  std::mt19937 random(7);
  const float most = numbers == Numbers::Weights ? 0.125F : 1.0F;
  const float least = numbers == Numbers::Positive ? 0.5F : -most;
  std::vector<float> drawn(kPeriod);
  for (float& number : drawn) number = least + (most - least) * static_cast<float>(random() >> 8U) * 0x1p-24F;
  return drawn;
}

std::vector<std::byte> stored(const std::vector<float>& numbers, cudnnDataType_t type) {
  std::vector<std::byte> bytes(numbers.size() * bytesOf(type));
  if (type != CUDNN_DATA_HALF) {
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const __half number = __float2half(numbers[i]);
    std::memcpy(&bytes[i * sizeof number], &number, sizeof number);
  }
  return bytes;
}

}  // namespace

std::int64_t elementsOf(const Sizes& sizes) {
  return sizes[0] * sizes[1] * sizes[2] * sizes[3];
}

std::size_t FusedTensor::bytes() const {
  return numbers == Numbers::Nothing ? 0 : static_cast<std::size_t>(elementsOf(sizes)) * bytesOf(type);
}

std::int64_t FusedGraph::tensor(const Sizes& sizes, cudnnDataType_t type, Numbers numbers) {
  tensors_.push_back({sizes, type, numbers});
  const auto id = static_cast<std::int64_t>(tensors_.size());
  descriptors_.push_back(describe(id, tensors_.back()));
  return id;
}

CudnnDescriptor& FusedGraph::keep(CudnnDescriptor descriptor) {
  others_.push_back(std::move(descriptor));
  return others_.back();
}

void FusedGraph::add(CudnnDescriptor operation) {
  operation.finalize();
  operations_.push_back(std::move(operation));
}

void FusedGraph::convolution(FusedConvolution operation, const FusedWindow& window, std::int64_t large,
                             std::int64_t weights, std::int64_t small) {
  const ConvolutionNames names = namesOf(operation);
  CudnnDescriptor made(names.type);
  made.set(names.alpha, 1.0F);
  made.set(names.beta, 0.0F);
  made.set(names.geometry, keep(describe(window)));
  made.set(names.large, descriptor(large));
  made.set(names.weights, descriptor(weights));
  made.set(names.small, descriptor(small));
  add(std::move(made));
}

void FusedGraph::pointwise(cudnnPointwiseMode_t mode, std::int64_t x, std::int64_t b, std::int64_t y) {
  CudnnDescriptor made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(describe(mode)));
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, descriptor(x));
  if (b != 0) made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, descriptor(b));
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, descriptor(y));
  add(std::move(made));
}

void FusedGraph::reluGradient(std::int64_t dy, std::int64_t x, std::int64_t dx) {
  CudnnDescriptor made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(describe(CUDNN_POINTWISE_RELU_BWD)));
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, descriptor(dy));
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, descriptor(x));
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, descriptor(dx));
  add(std::move(made));
}

void FusedGraph::statistics(std::int64_t x, std::int64_t sum, std::int64_t squares,
                            cudnnDataType_t precision) {
  const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
  CudnnDescriptor made(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
  made.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, precision);
  made.set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, descriptor(x));
  made.set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, descriptor(sum));
  made.set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, descriptor(squares));
  add(std::move(made));
}

void FusedGraph::batchNormalizationGradient(std::int64_t dy, const BatchNormalization& layer,
                                            const std::array<std::int64_t, 5>& results) {
  constexpr std::array kResults{
      CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
      CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
      CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS};
  CudnnDescriptor made(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT);
  made.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, descriptor(layer.source));
  made.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, descriptor(dy));
  made.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, descriptor(layer.mean));
  made.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, descriptor(layer.inverseDeviation));
  made.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, descriptor(layer.scale));
  for (std::size_t i = 0; i < results.size(); ++i) made.set(kResults[i], descriptor(results[i]));
  add(std::move(made));
}

void FusedGraph::finish() {
  std::vector<cudnnBackendDescriptor_t> addresses;
  for (const CudnnDescriptor& operation : operations_) addresses.push_back(operation.get());
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<std::int64_t>(addresses.size()), addresses.data());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CudnnHandle::forPreparing());
  graph.finalize();
  graph_.push_back(std::move(graph));
}

std::vector<CudnnDescriptor> FusedGraph::suggestions(cudnnBackendHeurMode_t mode, std::string& why) const {
  std::vector<CudnnDescriptor> found;
  try {
    CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_.front());
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    heuristics.finalize();
    const auto results = [&](std::int64_t count, void* values) {
      return heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, values);
    };
    const std::int64_t count = results(0, nullptr);
    std::vector<cudnnBackendDescriptor_t> addresses;
    for (std::int64_t i = 0; i < count; ++i) {
      found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      addresses.push_back(found.back().get());
    }
    if (count > 0)
      found.erase(found.begin() + std::min(count, results(count, addresses.data())), found.end());
  } catch (const CudnnError& error) {
    why = error.what();
    found.clear();
  }
  return found;
}

FusedEngine engineOf(const CudnnDescriptor& suggestion) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t address = engine.get();
  suggestion.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &address);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes.data());
  const std::span said(notes.data(), std::min(notes.size(), static_cast<std::size_t>(count)));
  const auto says = [&](cudnnBackendNumericalNote_t note) {
    return std::ranges::find(said, note) != said.end();
  };
  const bool isBounded = !says(CUDNN_NUMERICAL_NOTE_FFT) && !says(CUDNN_NUMERICAL_NOTE_WINOGRAD) &&
                         !says(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4) &&
                         !says(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) &&
                         !says(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13) &&
                         !says(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  return {engine.getNumber(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), !says(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC),
          isBounded};
}

FusedPlan planOf(const CudnnDescriptor& suggestion) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CudnnHandle::forPreparing());
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, suggestion);
  plan.finalize();
  const std::int64_t workspace = plan.getNumber(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  return {std::move(plan), engineOf(suggestion), workspace};
}

FusedMemory::FusedMemory(const FusedGraph& graph, std::int64_t workspace) : graph_(graph) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  handle_ = std::make_unique<CudnnHandle>(stream_);
  for (const FusedTensor& tensor : graph.tensors()) {
    void*& address = addresses_.emplace_back(nullptr);
    if (tensor.bytes() == 0) continue;
    check(cudaMalloc(&address, tensor.bytes()), "cudaMalloc");
    fill(address, tensor);
  }
  void*& address = addresses_.emplace_back(nullptr);
  if (workspace > 0) check(cudaMalloc(&address, static_cast<std::size_t>(workspace)), "cudaMalloc");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

FusedMemory::~FusedMemory() {
  handle_ = nullptr;
  for (void* const address : addresses_) cudaFree(address);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void FusedMemory::fill(void* address, const FusedTensor& tensor) {
  auto* const bytes = static_cast<std::byte*>(address);
  if (tensor.numbers == Numbers::Result)
    return check(cudaMemset(bytes, 0xFF, tensor.bytes()), "cudaMemset");  // NaNs
  const std::vector<std::byte> drawn = stored(randomNumbers(tensor.numbers), tensor.type);
  std::size_t done = std::min(drawn.size(), tensor.bytes());
  check(cudaMemcpy(bytes, drawn.data(), done, cudaMemcpyHostToDevice), "cudaMemcpy");
  while (done < tensor.bytes()) {
    const std::size_t more = std::min(done, tensor.bytes() - done);
    check(cudaMemcpy(bytes + done, bytes, more, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    done += more;
  }
}

CudnnDescriptor FusedMemory::variant() const {
  std::vector<std::int64_t> ids;
  std::vector<const void*> addresses;
  for (std::size_t i = 0; i < graph_.tensors().size(); ++i) {
    if (addresses_[i] == nullptr) continue;
    ids.push_back(static_cast<std::int64_t>(i + 1));
    addresses.push_back(addresses_[i]);
  }
  CudnnDescriptor made(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  made.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  made.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<std::int64_t>(addresses.size()), addresses.data());
  made.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &addresses_.back());
  made.finalize();
  return made;
}

void FusedMemory::launch(const FusedPlan& plan, const CudnnDescriptor& variant) const {
  const Cudnn& cudnn = Cudnn::library();
  cudnn.check(cudnn.execute(handle_->get(), plan.plan.get(), variant.get()), "cudnnBackendExecute");
}

void FusedMemory::run(const FusedPlan& plan) const {
  const CudnnDescriptor addresses = variant();
  launch(plan, addresses);
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

double FusedMemory::microseconds(const FusedPlan& plan) const {
  const CudnnDescriptor addresses = variant();
  for (int i = 0; i < 3; ++i) launch(plan, addresses);
  constexpr std::size_t kRuns = 10;
  std::array<cudaEvent_t, kRuns + 1> events{};
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "cudaEventCreate");
  for (std::size_t i = 0; i <= kRuns; ++i) {
    if (i > 0) launch(plan, addresses);
    check(cudaEventRecord(events[i], stream_), "cudaEventRecord");
  }
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  std::array<float, kRuns> times{};
  for (std::size_t i = 0; i < kRuns; ++i)
    check(cudaEventElapsedTime(&times[i], events[i], events[i + 1]), "cudaEventElapsedTime");
  for (cudaEvent_t event : events) cudaEventDestroy(event);
  std::ranges::nth_element(times, times.begin() + kRuns / 2);
  return 1000.0 * times[kRuns / 2];
}

std::vector<float> FusedMemory::eightChannels(std::int64_t id, std::int64_t first) const {
  const FusedTensor& tensor = graph_.at(id);
  constexpr std::size_t kChannels = 8;
  const std::size_t size = bytesOf(tensor.type);
  const auto pixels = static_cast<std::size_t>(elementsOf(tensor.sizes) / tensor.sizes[1]);
  const auto* const from = static_cast<const std::byte*>(addresses_[static_cast<std::size_t>(id - 1)]) +
                           static_cast<std::size_t>(first) * size;
  std::vector<std::byte> bytes(pixels * kChannels * size);
  check(cudaMemcpy2D(bytes.data(), kChannels * size, from, static_cast<std::size_t>(tensor.sizes[1]) * size,
                     kChannels * size, pixels, cudaMemcpyDeviceToHost),
        "cudaMemcpy2D");
  std::vector<float> numbers(pixels * kChannels);
  if (tensor.type != CUDNN_DATA_HALF) {
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    __half number;
    std::memcpy(&number, &bytes[i * sizeof number], sizeof number);
    numbers[i] = __half2float(number);
  }
  return numbers;
}

}  // namespace mtl::cuda::testing
