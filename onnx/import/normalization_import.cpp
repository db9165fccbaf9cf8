#include "onnx/import/node_import.hpp"
#include "onnx/import/weight_orders.hpp"

/// Normalisations.
namespace unmetal::onnx::detail {
namespace {

using Numbers = std::shared_ptr<const Constant>;

Numbers channelNumbers(const NodeImport& node, std::size_t index, std::size_t channels) {
  Numbers found = node.constant(index);
  if (found->count() != channels)
    throw node.refusal("number of values in \"" + node.inputName(index) + "\"",
                       std::to_string(found->count()), std::to_string(channels) + ", one for each channel");
  return found;
}

LazyNumbers lazily(Numbers constant, std::size_t channels) {
  return [=, constant = std::move(constant)] { return spreadOver(*constant, channels); };
}

/// What a normalisation scales and adds, with a multiplication and an addition behind it.
struct ScaleAndShift {
  Numbers gamma;
  Numbers beta;
  Numbers factor;   ///< of the multiplication; null: none
  Numbers summand;  ///< of the addition; null: none
  std::size_t channels;

  [[nodiscard]] std::vector<LazyNumbers> numbers() const {
    const auto scaled = [channels = channels, factor = factor](const Numbers& constant) {
      std::vector<float> values = spreadOver(*constant, channels);
      if (!factor) return values;
      const std::vector<float> factors = spreadOver(*factor, channels);
      for (std::size_t i = 0; i < channels; ++i) values[i] *= factors[i];
      return values;
    };
    const auto shifted = [=, *this] {
      std::vector<float> values = scaled(beta);
      if (!summand) return values;
      const std::vector<float> summands = spreadOver(*summand, channels);
      for (std::size_t i = 0; i < channels; ++i) values[i] += summands[i];
      return values;
    };
    return {[scaled, gamma = gamma] { return scaled(gamma); }, shifted};
  }
};

/// Takes the Mul and the Add behind the node with it.
ScaleAndShift scaleAndShift(NodeImport& node, Numbers gamma, Numbers beta, std::size_t channels) {
  ScaleAndShift found{std::move(gamma), std::move(beta), nullptr, nullptr, channels};
  found.factor = node.takeNext("Mul", channels);
  found.summand = node.takeNext("Add", channels);
  return found;
}

}  // namespace

void importBatchNormalization(NodeImport& node) {
  const train::Features source = node.pixels(0);
  const std::size_t channels = source.channels();
  node.expect("spatial", 1);
  node.expect("training_mode", 0);
  const train::BatchNormalizationLayer layer{
      {.momentum = node.number("momentum", 0.9F), .epsilon = node.number("epsilon", 1e-5F)}};
  const Numbers mean = channelNumbers(node, 3, channels);
  const Numbers variance = channelNumbers(node, 4, channels);
  const auto gamma = channelNumbers(node, 1, channels);
  const auto beta = channelNumbers(node, 2, channels);
  const bool isFlat = node.input(0).isFlat;
  std::vector<LazyNumbers> numbers = scaleAndShift(node, gamma, beta, channels).numbers();
  numbers.push_back(lazily(mean, channels));
  numbers.push_back(lazily(variance, channels));
  node.setResult(node.add(layer, source, 1, std::move(numbers)), isFlat);
}

void importInstanceNormalization(NodeImport& node) {
  const train::Features source = node.pixels(0);
  const std::size_t channels = source.channels();
  const train::InstanceNormalizationLayer layer{node.number("epsilon", 1e-5F)};
  const auto gamma = channelNumbers(node, 1, channels);
  const auto beta = channelNumbers(node, 2, channels);
  node.setResult(node.add(layer, source, 1, scaleAndShift(node, gamma, beta, channels).numbers()));
}

void importGroupNormalization(NodeImport& node) {
  constexpr std::int64_t perChannelSince = 21;
  const train::Features source = node.pixels(0);
  const std::size_t channels = source.channels();
  if (node.operatorSet() < perChannelSince)
    throw node.refusal("operator set", std::to_string(node.operatorSet()),
                       "21 or more, since which it has a number for each channel");
  const std::int64_t groups = node.integer("num_groups", 0);
  if (groups < 1) throw node.refusal("attribute num_groups", std::to_string(groups), "a number from 1 on");
  static_cast<void>(node.integer("stash_type", 1));
  const train::GroupNormalizationLayer layer{static_cast<std::size_t>(groups), node.number("epsilon", 1e-5F)};
  const auto gamma = channelNumbers(node, 1, channels);
  const auto beta = channelNumbers(node, 2, channels);
  node.setResult(node.add(layer, source, 1, scaleAndShift(node, gamma, beta, channels).numbers()));
}

/// Of rows of numbers: a group normalisation of pictures of one pixel, with one group.
void importLayerNormalization(NodeImport& node) {
  const train::Features source = node.pixels(0);
  const std::size_t channels = source.channels();
  if (!node.input(0).isFlat)
    throw node.refusal("its input is channels x height x width, expected a row of numbers");
  const std::int64_t axis = node.integer("axis", -1);
  if (axis != -1 && axis != 1) throw node.refusal("attribute axis", std::to_string(axis), "1, the numbers");
  static_cast<void>(node.integer("stash_type", 1));
  const auto gamma = channelNumbers(node, 1, channels);
  const auto beta = node.hasInput(2)
                        ? channelNumbers(node, 2, channels)
                        : std::make_shared<const Constant>(Constant::Integers{}, std::vector<float>{0});
  node.setResult(node.add(train::GroupNormalizationLayer{1, node.number("epsilon", 1e-5F)}, source, 1,
                          {lazily(gamma, channels), lazily(beta, channels)}),
                 true);
}

void importCrossChannelNormalization(NodeImport& node) {
  const train::Features source = node.pixels(0);
  const std::int64_t size = node.integer("size", 0);
  if (size < 1 || size % 2 == 0)
    throw node.refusal("attribute size", std::to_string(size), "an odd number from 1 on");
  const train::CrossChannelNormalizationOptions options{.size = static_cast<std::size_t>(size),
                                                        .alpha = node.number("alpha", 1e-4F),
                                                        .beta = node.number("beta", 0.75F),
                                                        .delta = node.number("bias", 1)};
  if (!(options.delta >= 1)) throw node.refusal("attribute bias", std::to_string(options.delta), "1 or more");
  node.setResult(node.add(train::CrossChannelNormalizationLayer{options}, {source}), node.input(0).isFlat);
}

}  // namespace unmetal::onnx::detail
