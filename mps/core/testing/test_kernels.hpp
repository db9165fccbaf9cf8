#pragma once

#include <algorithm>
#include <any>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/cnn_multiary_kernel.hpp"
#include "mps/core/kernel/pointwise.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/types/storage.hpp"

/// The smallest kernels of each base class, for tests of what the base classes do. Plain loops over one
/// element at a time.
namespace mps::testing {

/// A plan that calls a function.
class FunctionPlan final : public detail::Plan {
 public:
  explicit FunctionPlan(std::function<void(const detail::Operands&)> function, std::size_t scratchBytes = 0)
      : function_(std::move(function)), scratchBytes_(scratchBytes) {}
  void run(mtl::Stream&, const detail::Operands& operands) const override { function_(operands); }
  [[nodiscard]] std::size_t scratchBytes() const override { return scratchBytes_; }

 private:
  std::function<void(const detail::Operands&)> function_;
  std::size_t scratchBytes_;
};

inline detail::ChosenPlan planOf(std::function<void(const detail::Operands&)> function,
                                 std::size_t scratchBytes = 0) {
  return {std::make_shared<FunctionPlan>(std::move(function), scratchBytes), "test"};
}

inline float load(const detail::TensorShape& shape, const std::byte* tensor, std::int64_t n, std::int64_t y,
                  std::int64_t x, std::int64_t c) {
  return detail::withElementType(shape.format, [&](auto element) {
    using Element = decltype(element);
    return detail::loadFloat(reinterpret_cast<const Element*>(tensor) + shape.offset(n, y, x, c));
  });
}

inline void store(const detail::TensorShape& shape, std::byte* tensor, std::int64_t n, std::int64_t y,
                  std::int64_t x, std::int64_t c, float value) {
  detail::withElementType(shape.format, [&](auto element) {
    using Element = decltype(element);
    detail::storeFloat(value, reinterpret_cast<Element*>(tensor) + shape.offset(n, y, x, c));
  });
}

/// Stores function(n, y, x, c) in every element.
template <class Function>
void forEach(const detail::TensorShape& shape, std::byte* tensor, Function&& function) {
  for (std::int64_t n = 0; n < shape.images; ++n)
    for (std::int64_t y = 0; y < shape.height; ++y)
      for (std::int64_t x = 0; x < shape.width; ++x)
        for (std::int64_t c = 0; c < shape.channels; ++c)
          store(shape, tensor, n, y, x, c, function(n, y, x, c));
}

/// out = factor * in. With a state it saves the factor of each image, a float, for ScaleGradient.
class Scale : public CNNKernel {
 public:
  static std::shared_ptr<Scale> create(const std::shared_ptr<mtl::Device>& device, float factor = 2) {
    return std::shared_ptr<Scale>(new Scale(device, factor));
  }
  [[nodiscard]] std::string className() const override { return "Scale"; }
  void setFactor(float factor) { factor_ = factor; }
  [[nodiscard]] float factor() const { return factor_; }
  /// The next encodes make plans with that much scratch memory.
  void setScratchBytes(std::size_t bytes) { scratchBytes_ = bytes; }
  /// The next encodes record commands that throw.
  void setFailure(std::string message) { failure_ = std::move(message); }
  void setProducedChannels(std::size_t channels) { producedChannels_ = channels; }
  void setSharesState(bool shares) { sharesState_ = shares; }
  void setMakesState(bool makes) { makesState_ = makes; }
  void setWorksInPlace(bool worksInPlace) { worksInPlace_ = worksInPlace; }
  [[nodiscard]] bool worksInPlace() const override { return worksInPlace_; }
  [[nodiscard]] int encodes() const { return encodes_; }
  [[nodiscard]] bool isResultStateReusedAcrossBatch() const override { return sharesState_; }
  [[nodiscard]] std::shared_ptr<Scale> copy(const std::shared_ptr<mtl::Device>& device = nullptr) const {
    return detail::copyAs(*this, device);
  }

  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override {
    detail::PreparedCall prepared;
    prepared.savedBytes =
        call.wantsSavedFields ? static_cast<std::size_t>(call.source.images) * sizeof(float) : 0;
    prepared.plan = planOf(
        [from = call.source, to = call.destination, factor = factor_,
         failure = failure_](const detail::Operands& operands) {
          if (!failure.empty()) throw std::runtime_error(failure);
          forEach(to, operands.destination, [&](auto n, auto y, auto x, auto c) {
            return factor * load(from, operands.source, n, y, x, std::min(c, from.channels - 1));
          });
          for (std::int64_t n = 0; operands.saved != nullptr && n < from.images; ++n)
            std::memcpy(operands.saved + n * static_cast<std::int64_t>(sizeof factor), &factor,
                        sizeof factor);
        },
        scratchBytes_);
    return prepared;
  }

 protected:
  Scale(std::shared_ptr<mtl::Device> device, float factor) : CNNKernel(std::move(device)), factor_(factor) {}
  Scale(const Scale&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override {
    return std::shared_ptr<Scale>(new Scale(*this));
  }
  [[nodiscard]] bool makesState() const override { return makesState_; }
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t read) const override {
    return producedChannels_ != 0 ? producedChannels_ : read;
  }
  void describeForward(std::any& family) const override { family = factor_; }
  void didEncode(const detail::ForwardCall& /*call*/) override { ++encodes_; }

 private:
  float factor_;
  std::size_t scratchBytes_ = 0;
  std::string failure_;
  std::size_t producedChannels_ = 0;
  bool sharesState_ = false;
  bool makesState_ = true;
  bool worksInPlace_ = false;
  int encodes_ = 0;
};

/// dIn = factor * g, the factor being the saved one where that fits, else the recorded one.
class ScaleGradient : public CNNGradientKernel {
 public:
  static std::shared_ptr<ScaleGradient> create(const std::shared_ptr<mtl::Device>& device) {
    return std::shared_ptr<ScaleGradient>(new ScaleGradient(device));
  }
  [[nodiscard]] std::string className() const override { return "ScaleGradient"; }
  [[nodiscard]] bool acceptsForward(const std::string& name) const override { return name == "Scale"; }
  /// Whether the last encode used saved fields.
  [[nodiscard]] bool usedSavedFields() const { return usedSavedFields_; }
  /// The images are taken one by one unless they are those of the forward batch in order.
  void setNeedsOrder(bool needsOrder) { needsOrder_ = needsOrder; }
  void setReadsSource(bool readsSource) { readsSource_ = readsSource; }
  /// The next encodes make plans with that much scratch memory.
  void setScratchBytes(std::size_t bytes) { scratchBytes_ = bytes; }
  void setWorksInPlace(bool worksInPlace) { worksInPlace_ = worksInPlace; }
  [[nodiscard]] bool worksInPlace() const override { return worksInPlace_; }
  /// The n-th recorded call of an encode fails while it is encoded; 0 for none.
  void setFailingCall(int call) { failingCall_ = call; }
  [[nodiscard]] int calls() const { return calls_; }

  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override {
    ++calls_;
    if (calls_ == failingCall_) throw Error(describe() + ": no plan");
    const detail::PointwiseGradient views = detail::pointwiseGradient(call);
    usedSavedFields_ = call.savedFieldsFit;
    const float factor = call.record ? std::any_cast<float>(call.record->family) : 1;
    detail::PreparedCall prepared = detail::preparedPointwise(
        views, planOf(
                   [from = views.gradient, to = views.destination, factor](const detail::Operands& operands) {
                     forEach(to, operands.destination, [&](auto n, auto y, auto x, auto c) {
                       float used = factor;
                       if (operands.saved != nullptr)
                         std::memcpy(&used, operands.saved + n * static_cast<std::int64_t>(sizeof used),
                                     sizeof used);
                       return used * load(from, operands.gradient, n, y, x, c);
                     });
                   },
                   scratchBytes_));
    prepared.readsSavedFields = call.savedFieldsFit;
    prepared.readsSource = readsSource_;
    return {prepared};
  }

 protected:
  explicit ScaleGradient(std::shared_ptr<mtl::Device> device) : CNNGradientKernel(std::move(device)) {}
  ScaleGradient(const ScaleGradient&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override {
    return std::shared_ptr<ScaleGradient>(new ScaleGradient(*this));
  }
  [[nodiscard]] bool needsStatesInOrder() const override { return needsOrder_; }

 private:
  mutable bool usedSavedFields_ = false;
  mutable int calls_ = 0;
  int failingCall_ = 0;
  std::size_t scratchBytes_ = 0;
  bool needsOrder_ = false;
  bool readsSource_ = true;
  bool worksInPlace_ = false;
};

/// out = sum over the taps of the window; taps outside are 0 or repeat the edge.
class WindowSum : public CNNKernel {
 public:
  static std::shared_ptr<WindowSum> create(const std::shared_ptr<mtl::Device>& device, std::size_t size,
                                           std::size_t stride = 1, std::size_t dilation = 1) {
    return std::shared_ptr<WindowSum>(new WindowSum(device, size, stride, dilation));
  }
  [[nodiscard]] std::string className() const override { return "WindowSum"; }
  [[nodiscard]] std::size_t kernelWidth() const override { return size_; }
  [[nodiscard]] std::size_t kernelHeight() const override { return size_; }
  [[nodiscard]] std::size_t strideInPixelsX() const override { return stride_; }
  [[nodiscard]] std::size_t strideInPixelsY() const override { return stride_; }
  [[nodiscard]] std::size_t dilationRateX() const override { return dilation_; }
  [[nodiscard]] std::size_t dilationRateY() const override { return dilation_; }

  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override {
    detail::PreparedCall prepared;
    prepared.plan = planOf([call](const detail::Operands& operands) {
      forEach(call.destination, operands.destination, [&](auto n, auto y, auto x, auto c) {
        float sum = 0;
        for (std::int64_t q = 0; q < call.y.kernelSize; ++q)
          for (std::int64_t p = 0; p < call.x.kernelSize; ++p)
            sum += tap(call, operands.source, n, position(call.y, y, q), position(call.x, x, p), c);
        return sum;
      });
    });
    return prepared;
  }

 protected:
  WindowSum(std::shared_ptr<mtl::Device> device, std::size_t size, std::size_t stride, std::size_t dilation)
      : CNNKernel(std::move(device)), size_(size), stride_(stride), dilation_(dilation) {}
  WindowSum(const WindowSum&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override {
    return std::shared_ptr<WindowSum>(new WindowSum(*this));
  }
  [[nodiscard]] bool hasWindow() const override { return true; }

 private:
  static std::int64_t position(const detail::WindowAxis& axis, std::int64_t window, std::int64_t tap) {
    return axis.offset + axis.stride * window - ((axis.kernelSize - 1) * axis.dilation + 1) / 2 +
           axis.dilation * tap;
  }
  static float tap(const detail::ForwardCall& call, const std::byte* source, std::int64_t n, std::int64_t y,
                   std::int64_t x, std::int64_t c) {
    const bool inside = y >= 0 && y < call.source.height && x >= 0 && x < call.source.width;
    if (!inside && call.edgeMode == ImageEdgeMode::Zero) return 0;
    return load(call.source, source, n, std::clamp<std::int64_t>(y, 0, call.source.height - 1),
                std::clamp<std::int64_t>(x, 0, call.source.width - 1), c);
  }

  std::size_t size_;
  std::size_t stride_;
  std::size_t dilation_;
};

inline std::vector<std::shared_ptr<State>> statesOf(const StateBatch& batch) {
  std::vector<std::shared_ptr<State>> states;
  for (std::size_t i = 0; i < batch.count(); ++i) states.push_back(batch[i]);
  return states;
}

/// out = 10 * primary + secondary, over whole images.
class Join : public CNNBinaryKernel {
 public:
  static std::shared_ptr<Join> create(const std::shared_ptr<mtl::Device>& device) {
    return std::shared_ptr<Join>(new Join(device));
  }
  [[nodiscard]] std::string className() const override { return "Join"; }
  void setScratchBytes(std::size_t bytes) { scratchBytes_ = bytes; }
  void setMakesState(bool makes) { makesState_ = makes; }
  void setSharesState(bool shares) { sharesState_ = shares; }
  [[nodiscard]] bool isResultStateReusedAcrossBatch() const override { return sharesState_; }
  /// States of the last encode.
  [[nodiscard]] const std::vector<std::shared_ptr<State>>& encodedStates() const { return encodedStates_; }

 protected:
  explicit Join(std::shared_ptr<mtl::Device> device) : CNNBinaryKernel(std::move(device)) {}
  Join(const Join&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override {
    return std::shared_ptr<Join>(new Join(*this));
  }
  [[nodiscard]] bool makesState() const override { return makesState_; }
  void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primary,
                  const ImageBatch& secondary, const StateBatch& destinationStates,
                  const ImageBatch& destinations) override {
    encodedStates_ = statesOf(destinationStates);
    const detail::BatchOperand a(primary);
    const detail::BatchOperand b(secondary);
    const detail::BatchOperand to(destinations, true);
    detail::PreparedCall prepared;
    prepared.plan = planOf(
        [a = a.shape(), b = b.shape(), to = to.shape()](const detail::Operands& operands) {
          forEach(to, operands.destination, [&](auto n, auto y, auto x, auto c) {
            return 10 * load(a, operands.source, n, y, x, c) + load(b, operands.secondary, n, y, x, c);
          });
        },
        scratchBytes_);
    detail::recordCall(*commandBuffer, describe(), prepared, {&a, &b, nullptr, &to, nullptr, 0});
  }

 private:
  std::size_t scratchBytes_ = 0;
  bool makesState_ = false;
  bool sharesState_ = false;
  // Not the batch, which holds this kernel to make its states.
  std::vector<std::shared_ptr<State>> encodedStates_;
};

/// out = source 0 + 10 * source 1 + 100 * source 2 ..., over whole images of one size; the sources are added
/// one after the other.
class Digits : public CNNMultiaryKernel {
 public:
  static std::shared_ptr<Digits> create(const std::shared_ptr<mtl::Device>& device, std::size_t sourceCount) {
    return std::shared_ptr<Digits>(new Digits(device, sourceCount));
  }
  [[nodiscard]] std::string className() const override { return "Digits"; }
  void setMakesState(bool makes) { makesState_ = makes; }
  void setSharesState(bool shares) { sharesState_ = shares; }
  [[nodiscard]] bool isResultStateReusedAcrossBatch() const override { return sharesState_; }
  /// The next encodes fail when they come to this source, with the ones before it recorded.
  void setFailingSource(std::size_t index) { failingSource_ = index; }
  /// States of the last encode that had any.
  [[nodiscard]] const std::vector<std::shared_ptr<State>>& encodedStates() const { return encodedStates_; }

 protected:
  Digits(std::shared_ptr<mtl::Device> device, std::size_t sourceCount)
      : CNNMultiaryKernel(std::move(device), sourceCount) {}
  Digits(const Digits&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override {
    return std::shared_ptr<Digits>(new Digits(*this));
  }
  [[nodiscard]] bool makesState() const override { return makesState_; }
  void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                  const ImageBatch& destinations) override {
    const detail::BatchOperand to(destinations);
    float factor = 1;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (i == failingSource_) throw Error(describe() + ": no plan");
      const detail::BatchOperand from(sources[i]);
      detail::PreparedCall prepared;
      prepared.plan =
          planOf([from = from.shape(), to = to.shape(), factor](const detail::Operands& operands) {
            forEach(to, operands.destination, [&](auto n, auto y, auto x, auto c) {
              const float before = factor == 1 ? 0 : load(to, operands.destination, n, y, x, c);
              return before + factor * load(from, operands.source, n, y, x, c);
            });
          });
      detail::recordCall(*commandBuffer, describe(), prepared, {&from, nullptr, nullptr, &to, nullptr, 0});
      factor *= 10;
    }
    encodedStates_ = statesOf(destinationStates);
  }

 private:
  bool makesState_ = false;
  bool sharesState_ = false;
  std::size_t failingSource_ = static_cast<std::size_t>(-1);
  // Not the batch, which holds this kernel to make its states.
  std::vector<std::shared_ptr<State>> encodedStates_;
};

/// Scale into permanent images.
class ScaleTest : public DeviceTest {
 protected:
  static Values scaled(Values values, float factor = 2) {
    for (float& value : values) value *= factor;
    return values;
  }
  static Values valuesOfBatch(const ImageBatch& batch) {
    Values values;
    for (std::size_t i = 0; i < batch.count(); ++i) {
      const Values part = valuesOf(*batch[i]);
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  }
  std::shared_ptr<Scale> permanentScale() {
    auto kernel = Scale::create(device_);
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  std::shared_ptr<Scale> scale_ = permanentScale();
};

/// A forward kernel that triples and its gradient kernel, whose results are permanent images.
class ScaleGradientTest : public DeviceTest {
 protected:
  ScaleGradientTest() { gradient_->setDestinationImageAllocator(Image::defaultAllocator()); }

  /// The state of a forward pass that has run.
  std::shared_ptr<State> forward(const std::shared_ptr<Image>& source, const std::shared_ptr<Image>& result) {
    auto state = scale_->resultState(source);
    const auto buffer = commands();
    scale_->encode(buffer, source, state, result);
    run(buffer);
    return state;
  }
  std::shared_ptr<Scale> scale_ = Scale::create(device_, 3);
  std::shared_ptr<ScaleGradient> gradient_ = ScaleGradient::create(device_);
};

}  // namespace mps::testing
