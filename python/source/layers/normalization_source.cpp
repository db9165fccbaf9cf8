#include <cfloat>
#include <cstddef>
#include <memory>
#include <string>

#include "mps/core/layer/batch_normalization_data_source.hpp"
#include "mps/core/layer/image_normalization_data_source.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/layers/data_source.hpp"

namespace python {
namespace {

using mps::CNNBatchNormalizationDataSource;
using mps::CNNGroupNormalizationDataSource;
using mps::CNNInstanceNormalizationDataSource;
using Device = std::shared_ptr<mtl::Device>;
using GammaAndBeta = std::shared_ptr<mps::CNNNormalizationGammaAndBetaState>;
using MeanAndVariance = std::shared_ptr<mps::CNNNormalizationMeanAndVarianceState>;
using BatchState = std::shared_ptr<mps::CNNBatchNormalizationState>;

constexpr const char* gammaAndBetaExpected = "a CNNNormalizationGammaAndBetaState or None";
constexpr const char* meanAndVarianceExpected = "a CNNNormalizationMeanAndVarianceState or None";

/// What the three kinds read alike. @tparam Base the data source that it is
template <class Base>
class PythonNormalizationSource : public Base {
 public:
  [[nodiscard]] std::size_t numberOfFeatureChannels() const override {
    return count("number_of_feature_channels");
  }
  [[nodiscard]] std::span<const float> gamma() const override { return floats("gamma"); }
  [[nodiscard]] std::span<const float> beta() const override { return floats("beta"); }
  [[nodiscard]] std::string label() const override {
    const Locked locked;
    return attributeOr<std::string, Base>(*this, "label", {}, "text");
  }
  [[nodiscard]] float epsilon() const override {
    const Locked locked;
    return attributeOr<float, Base>(*this, "epsilon", FLT_MIN, "a number");
  }
  std::shared_ptr<Base> copy(const Device& device) override {
    return call<std::shared_ptr<Base>>("copy", "what copy() returns",
                                       "a data source of the same kind or None", device);
  }
  GammaAndBeta deviceGammaAndBeta(const Device& device) override {
    return call<GammaAndBeta>("device_gamma_and_beta", "what device_gamma_and_beta() returns",
                              gammaAndBetaExpected, device);
  }

 protected:
  [[nodiscard]] std::size_t count(const char* name) const {
    const Locked locked;
    return converted<std::size_t>(requiredAttribute<Base>(*this, name), name, "a number of channels");
  }
  [[nodiscard]] std::span<const float> floats(const char* name) const {
    const Locked locked;
    return arrays_.floats<Base>(*this, name);
  }
  template <class Result, class... Arguments>
  Result call(const char* name, const char* resultName, const char* expected, const Arguments&... arguments) {
    const Locked locked;
    return resultOf<Result>(callOverridden<Base>(*this, name, arguments...), resultName, expected);
  }
  bool loadNow() {
    const Locked locked;
    return loadSource<Base>(*this, arrays_);
  }
  void purgeNow() { purgeSource<Base>(*this, arrays_); }

 private:
  mutable LentArrays arrays_;
};

class PythonBatchSource final : public PythonNormalizationSource<CNNBatchNormalizationDataSource> {
 public:
  [[nodiscard]] std::span<const float> mean() const override { return floats("mean"); }
  [[nodiscard]] std::span<const float> variance() const override { return floats("variance"); }
  bool load() override { return loadNow(); }
  void purge() override { purgeNow(); }
  MeanAndVariance updateMeanAndVariance(const CommandBufferPointer& commandBuffer,
                                        const BatchState& state) override {
    return call<MeanAndVariance>("update_mean_and_variance_with_command_buffer", "what the update returns",
                                 meanAndVarianceExpected, commandBuffer, state);
  }
  GammaAndBeta updateGammaAndBeta(const CommandBufferPointer& commandBuffer,
                                  const BatchState& state) override {
    return call<GammaAndBeta>("update_gamma_and_beta_with_command_buffer", "what the update returns",
                              gammaAndBetaExpected, commandBuffer, state);
  }
  bool updateMeanAndVariance(const BatchState& state) override {
    return call<bool>("update_mean_and_variance_with_state", "what the update returns", "True or False",
                      state);
  }
  bool updateGammaAndBeta(const BatchState& state) override {
    return call<bool>("update_gamma_and_beta_with_state", "what the update returns", "True or False", state);
  }
  MeanAndVariance deviceMeanAndVariance(const Device& device) override {
    return call<MeanAndVariance>("device_mean_and_variance", "what device_mean_and_variance() returns",
                                 meanAndVarianceExpected, device);
  }
};

/// Of instance and group normalisation.
template <class Base>
class PythonImageSource : public PythonNormalizationSource<Base> {
 public:
  GammaAndBeta updateGammaAndBeta(const CommandBufferPointer& commandBuffer,
                                  const mps::StateBatch& states) override {
    return this->template call<GammaAndBeta>("update_gamma_and_beta_with_command_buffer",
                                             "what the update returns", gammaAndBetaExpected, commandBuffer,
                                             states);
  }
  bool updateGammaAndBeta(const mps::StateBatch& states) override {
    return this->template call<bool>("update_gamma_and_beta_with_states", "what the update returns",
                                     "True or False", states);
  }
};

class PythonInstanceSource final : public PythonImageSource<CNNInstanceNormalizationDataSource> {
 public:
  bool load() override { return loadNow(); }
  void purge() override { purgeNow(); }
};

class PythonGroupSource final : public PythonImageSource<CNNGroupNormalizationDataSource> {
 public:
  [[nodiscard]] std::size_t numberOfGroups() const override { return count("number_of_groups"); }
};

constexpr const char* updateDocumentation =
    "Device-side update, called by NNGraph right after the gradient pass is encoded (style UpdateDeviceGPU): "
    "encode work "
    "that reads the state or states and return a state with the new values; the kernel is reloaded from it. "
    "None, the default: "
    "no update. Take one read off a temporary state each (optimiser encodes do).";
constexpr const char* hostUpdateDocumentation =
    "Host-side update, called by NNGraph in the completion handler (style UpdateDeviceCPU), the state or "
    "states readable: "
    "change the attributes and return True; the kernel is reloaded from this source. False unless "
    "overridden.";
constexpr const char* deviceDocumentation =
    "Parameters that live on the device and that updates change in place: kernels on that device use these "
    "very buffers, and "
    "reloads have nothing to do. None, the default: kernels have a copy.";

std::vector<float> numbersOf(std::span<const float> values) {
  return {values.begin(), values.end()};
}

/// What Python calls of the base class, and what a subclass defines.
template <class PythonClass, class Base, class Class>
void bindCommon(Class& source) {
  bindAttribute<PythonClass>(
      source, "number_of_feature_channels", [](Base& self) { return self.numberOfFeatureChannels(); },
      "Feature channels of the images to normalise.");
  bindAttribute<PythonClass>(
      source, "gamma", [](Base& self) { return numbersOf(self.gamma()); },
      "Scale factors, one for each channel; none, or None: 1.");
  bindAttribute<PythonClass>(
      source, "beta", [](Base& self) { return numbersOf(self.beta()); },
      "Biases, one for each channel; none, or None: 0.");
  bindAttribute<PythonClass>(
      source, "epsilon", [](Base& self) { return self.epsilon(); },
      "Added to the variance under the root. The smallest normal float32 unless given, which only "
      "avoids a division by 0; 1e-3 and 1e-5 are usual.");
  bindAttribute<PythonClass>(
      source, "label", [](Base& self) { return self.label(); },
      "Name for the kernel; a node's label goes before.");
  source.def(nb::init<>())
      .def(
          "copy",
          [](Base& self, const Device& device) {
            return isOf<PythonClass>(self) ? nullptr : self.copy(device);
          },
          "device"_a,
          "For a copy of the kernel, or of a graph, on that device, which may be this source's. None, the "
          "default: the copy "
          "shares this source.")
      .def(
          "device_gamma_and_beta",
          [](Base& self, const Device& device) {
            return isOf<PythonClass>(self) ? nullptr : self.deviceGammaAndBeta(device);
          },
          "device"_a, deviceDocumentation);
}

template <class PythonClass, class Base, class Class>
void bindLoad(Class& source) {
  source
      .def(
          "load", [](Base& self) { return isOf<PythonClass>(self) || self.load(); },
          "The data is needed soon. False makes the construction of the kernel raise Error. True unless "
          "overridden.")
      .def(
          "purge",
          [](Base& self) {
            if (!isOf<PythonClass>(self)) self.purge();
          },
          "The data is not needed any more; balances each load().");
}

template <class PythonClass, class Base, class Class>
void bindImageUpdates(Class& source) {
  source
      .def(
          "update_gamma_and_beta_with_command_buffer",
          [](Base& self, const CommandBufferPointer& commandBuffer, const mps::StateBatch& states) {
            return isOf<PythonClass>(self) ? nullptr : self.updateGammaAndBeta(commandBuffer, states);
          },
          "command_buffer"_a, "gradient_states"_a, Released(), updateDocumentation)
      .def(
          "update_gamma_and_beta_with_states",
          [](Base& self, const mps::StateBatch& states) {
            return !isOf<PythonClass>(self) && self.updateGammaAndBeta(states);
          },
          "gradient_states"_a, Released(), hostUpdateDocumentation);
}

void bindBatchSource(nb::module_& module) {
  using Base = CNNBatchNormalizationDataSource;
  nb::class_<Base, PythonBatchSource, mps::SecureCoding> source(
      module, "CNNBatchNormalizationDataSource",
      "Where the parameters of a batch normalisation come from and how they are updated. "
      "TrainableBatchNormalization is a "
      "ready-made one. A subclass has at least `number_of_feature_channels`, and what else it needs of the "
      "attributes below: of "
      "the class, of the instance or as properties; and it may define the methods. The library calls load(), "
      "reads, copies and "
      "calls purge() when a kernel is made and when it is reloaded, from any thread. Running statistics are "
      "the data source's "
      "business.");
  bindCommon<PythonBatchSource, Base>(source);
  bindLoad<PythonBatchSource, Base>(source);
  bindAttribute<PythonBatchSource>(
      source, "mean", [](Base& self) { return numbersOf(self.mean()); },
      "Running means, one for each channel; none, or None: 0.");
  bindAttribute<PythonBatchSource>(
      source, "variance", [](Base& self) { return numbersOf(self.variance()); },
      "Running variances without epsilon, one for each channel; none, or None: 1.");
  source
      .def(
          "update_mean_and_variance_with_command_buffer",
          [](Base& self, const CommandBufferPointer& commandBuffer, const BatchState& state) {
            return isOf<PythonBatchSource>(self) ? nullptr : self.updateMeanAndVariance(commandBuffer, state);
          },
          "command_buffer"_a, "batch_normalization_state"_a, Released(), updateDocumentation)
      .def(
          "update_gamma_and_beta_with_command_buffer",
          [](Base& self, const CommandBufferPointer& commandBuffer, const BatchState& state) {
            return isOf<PythonBatchSource>(self) ? nullptr : self.updateGammaAndBeta(commandBuffer, state);
          },
          "command_buffer"_a, "batch_normalization_state"_a, Released(), updateDocumentation)
      .def(
          "update_mean_and_variance_with_state",
          [](Base& self, const BatchState& state) {
            return !isOf<PythonBatchSource>(self) && self.updateMeanAndVariance(state);
          },
          "batch_normalization_state"_a, Released(), hostUpdateDocumentation)
      .def(
          "update_gamma_and_beta_with_state",
          [](Base& self, const BatchState& state) {
            return !isOf<PythonBatchSource>(self) && self.updateGammaAndBeta(state);
          },
          "batch_normalization_state"_a, Released(), hostUpdateDocumentation)
      .def(
          "device_mean_and_variance",
          [](Base& self, const Device& device) {
            return isOf<PythonBatchSource>(self) ? nullptr : self.deviceMeanAndVariance(device);
          },
          "device"_a, deviceDocumentation);
}

void bindImageSources(nb::module_& module) {
  using Instance = CNNInstanceNormalizationDataSource;
  nb::class_<Instance, PythonInstanceSource, mps::SecureCoding> instance(
      module, "CNNInstanceNormalizationDataSource",
      "Where the parameters of an instance normalisation come from and how they are updated; as "
      "CNNBatchNormalizationDataSource. TrainableInstanceNormalization is a ready-made one.");
  bindCommon<PythonInstanceSource, Instance>(instance);
  bindLoad<PythonInstanceSource, Instance>(instance);
  bindImageUpdates<PythonInstanceSource, Instance>(instance);
  using Group = CNNGroupNormalizationDataSource;
  nb::class_<Group, PythonGroupSource, mps::SecureCoding> group(
      module, "CNNGroupNormalizationDataSource",
      "Where the parameters of a group normalisation come from and how they are updated; as "
      "CNNBatchNormalizationDataSource, and a subclass has `number_of_groups`, too. "
      "TrainableGroupNormalization is a "
      "ready-made one.");
  bindAttribute<PythonGroupSource>(
      group, "number_of_groups", [](Group& self) { return self.numberOfGroups(); },
      "Groups of adjacent channels that have mean and variance in common; divides the channels.");
  bindCommon<PythonGroupSource, Group>(group);
  bindImageUpdates<PythonGroupSource, Group>(group);
}

}  // namespace

void bindNormalizationSource(nb::module_& module) {
  bindBatchSource(module);
  bindImageSources(module);
}

}  // namespace python
