#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"
#include "mtl/buffer.hpp"
#include "onnx/export/step.hpp"

/// Normalisations by statistics of a batch, or of one picture's channels.
namespace unmetal::onnx::detail {
namespace {

std::vector<float> numbersIn(const Step& step, const mtl::Buffer& buffer) {
  return step.numbers({buffer.memory(), 0, buffer.length() / sizeof(float)});
}

/// One number for each channel.
std::string perChannel(const Step& step, const std::string& role, const mtl::Buffer& buffer) {
  return step.model.constant(role, {step.source().channels}, numbersIn(step, buffer));
}

std::string addInstances(const Step& step, const mps::detail::ImageNormalizationParameters& parameters) {
  return step.add("InstanceNormalization",
                  {step.source().value, perChannel(step, "gamma", *parameters.gamma),
                   perChannel(step, "beta", *parameters.beta)},
                  {{"epsilon", parameters.epsilon}});
}

/// The operator GroupNormalization is younger than the operator set: a group is a channel of as many pixels.
std::string addGroups(const Step& step, const mps::detail::ImageNormalizationParameters& parameters) {
  const auto groups = static_cast<std::int64_t>(parameters.groups);
  const Picture& source = step.source();
  const std::string flat = step.add(
      "Reshape", {source.value, step.model.constant("groups", std::vector<std::int64_t>{0, groups, -1})});
  const std::string normalised =
      step.add("InstanceNormalization",
               {flat, step.model.constant("one", {groups}, std::vector<float>(parameters.groups, 1)),
                step.model.constant("zero", {groups}, std::vector<float>(parameters.groups, 0))},
               {{"epsilon", parameters.epsilon}});
  const std::string shaped = step.add(
      "Reshape",
      {normalised, step.model.constant(
                       "shape", std::vector<std::int64_t>{0, source.channels, source.height, source.width})});
  const auto spread = [&](const char* role, const mtl::Buffer& buffer) {
    return step.model.constant(role, {source.channels, 1, 1}, numbersIn(step, buffer));
  };
  return step.add("Add", {step.add("Mul", {shaped, spread("gamma", *parameters.gamma)}),
                          spread("beta", *parameters.beta)});
}

}  // namespace

std::optional<std::string> translateBatchNormalization(const Step& step) {
  const auto* normalization = step.as<mps::CNNBatchNormalization>();
  if (normalization == nullptr) return std::nullopt;
  if (normalization->computesStatistics())
    throw step.refusal(
        "it computes the statistics of each batch; make the graph without gradients, or set its flags to "
        "CalculateStatisticsNever");
  const mps::detail::BatchNormalizationParameters& parameters = normalization->parameters();
  const std::string value =
      step.add("BatchNormalization",
               {step.source().value, perChannel(step, "gamma", *parameters.gamma),
                perChannel(step, "beta", *parameters.beta), perChannel(step, "mean", *parameters.mean),
                perChannel(step, "variance", *parameters.variance)},
               {{"epsilon", parameters.epsilon}});
  return addNeuron(step, value, normalization->fusedNeuronDescriptor(), step.source().channels);
}

std::optional<std::string> translateImageNormalization(const Step& step) {
  const auto* normalization = step.as<mps::detail::ImageNormalizationKernel>();
  if (normalization == nullptr) return std::nullopt;
  const bool hasGroups = step.as<mps::CNNGroupNormalization>() != nullptr;
  return hasGroups ? addGroups(step, normalization->parameters())
                   : addInstances(step, normalization->parameters());
}

}  // namespace unmetal::onnx::detail
