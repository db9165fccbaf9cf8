#include "mps/neuron/neuron.hpp"

#include <algorithm>

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/kernel/pointwise.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mps/neuron/neuron_problem.hpp"

namespace mps {

using detail::NeuronDirection;
using detail::NeuronProblem;

namespace {

/// How many channels an image will have is not known yet.
void checkDescriptor(const char* className, const NNNeuronDescriptor& descriptor) {
  descriptor.check(className, "neuronDescriptor", 1);
}

/// PReLU: one slope for each channel read.
void checkSlopes(const Kernel& kernel, const NNNeuronDescriptor& descriptor, std::int64_t channels) {
  descriptor.check(kernel.describe(), "data", static_cast<std::size_t>(channels));
}

/// Whether what the forward kernel saved is there and stands for exactly the pixels and channels of the gradient.
bool sidesFit(const detail::GradientCall& call, const detail::PointwiseGradient& views) {
  if (!call.record || !call.savedFieldsFit || call.record->savedBytesPerImage == 0) return false;
  const detail::ForwardRecord& forward = *call.record;
  const auto isSame = [](std::int64_t own, std::size_t recorded) {
    return own == detail::asSigned(recorded);
  };
  return isSame(views.source.width, forward.clipRect.size.width) &&
         isSame(views.source.height, forward.clipRect.size.height) &&
         isSame(views.source.channels, forward.sourceFeatureChannels) &&
         detail::asSigned(views.sourceOrigin.x) == forward.offset.x &&
         detail::asSigned(views.sourceOrigin.y) == forward.offset.y;
}

}  // namespace

CNNNeuron::CNNNeuron(std::shared_ptr<mtl::Device> device, const NNNeuronDescriptor& neuronDescriptor)
    : KernelClass(std::move(device)), descriptor_(neuronDescriptor) {
  checkDescriptor("CNNNeuron", descriptor_);
}

std::shared_ptr<CNNNeuron> CNNNeuron::create(const std::shared_ptr<mtl::Device>& device,
                                             const NNNeuronDescriptor& neuronDescriptor) {
  return std::shared_ptr<CNNNeuron>(new CNNNeuron(device, neuronDescriptor));
}

const NNNeuronDescriptor* CNNNeuron::appliedNeuron() const {
  return detail::isDefaultPadding(*padding()) ? &descriptor_ : nullptr;
}

detail::KernelRoles CNNNeuronGradient::roles() {
  return {.neuronGradient = this};
}

detail::PreparedCall CNNNeuron::prepareForward(const detail::ForwardCall& call) const {
  checkSlopes(*this, descriptor_, call.source.channels);
  NeuronProblem problem;
  problem.direction = NeuronDirection::Forward;
  problem.neuron = descriptor_;
  problem.input = call.source;
  problem.destination = call.destination;
  problem.hasSides = call.wantsSavedFields && problem.canHaveSides();
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::neuronBackEnds, problem);
  prepared.savedBytes = problem.savedBytes();
  return prepared;
}

bool CNNNeuronGradient::readsSource(const ImageDescriptor& source) const {
  NeuronProblem problem;
  problem.neuron = descriptor_;
  problem.input.channels = detail::asSigned(source.featureChannels());
  problem.input.format = source.channelFormat();
  return usesResult_ || !problem.canHaveSides();
}

CNNNeuronGradient::CNNNeuronGradient(std::shared_ptr<mtl::Device> device,
                                     const NNNeuronDescriptor& neuronDescriptor)
    : KernelClass(std::move(device)), descriptor_(neuronDescriptor) {
  checkDescriptor("CNNNeuronGradient", descriptor_);
}

std::shared_ptr<CNNNeuronGradient> CNNNeuronGradient::create(const std::shared_ptr<mtl::Device>& device,
                                                             const NNNeuronDescriptor& neuronDescriptor) {
  return std::shared_ptr<CNNNeuronGradient>(new CNNNeuronGradient(device, neuronDescriptor));
}

bool CNNNeuronGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNNeuron";
}

void CNNNeuronGradient::transferOwnProperties(const detail::ForwardRecord& record) {
  const auto* forward = std::any_cast<NNNeuronDescriptor>(&record.family);
  if (forward != nullptr && !forward->isSameFunction(descriptor_))
    throw Error(describe(), "neuronDescriptor", descriptor_.describe(),
                forward->describe() + ", that of the forward kernel");
}

std::vector<detail::PreparedCall> CNNNeuronGradient::prepareGradient(const detail::GradientCall& call) const {
  checkSlopes(*this, descriptor_, call.source.channels);
  detail::checkPointwise(*this, call);
  const detail::PointwiseGradient views = detail::pointwiseGradient(call);
  NeuronProblem problem;
  problem.direction = usesResult_ ? NeuronDirection::GradientFromResult : NeuronDirection::Gradient;
  problem.neuron = descriptor_;
  problem.input = views.source;
  problem.gradient = views.gradient;
  problem.destination = views.destination;
  problem.hasSides = !usesResult_ && sidesFit(call, views);
  detail::PreparedCall::Parameter addend;
  if (!addends_.empty()) {
    const detail::TensorView view = detail::BatchOperand(addends_).view(*addendBuffer_, false);
    problem.addend = view.shape;
    addend = detail::PreparedCall::Parameter::of(view);
  }
  detail::PreparedCall prepared =
      detail::preparedPointwise(views, detail::planFor(*device(), detail::neuronBackEnds, problem));
  prepared.sourceIsSecondary = usesResult_;
  prepared.readsSource = !problem.hasSides;
  prepared.readsSavedFields = problem.hasSides;
  prepared.parameters[0] = addend;
  return {prepared};
}

void CNNNeuronGradient::encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                   std::span<const ImageBatch> sources, const StateBatch& gradientStates,
                                   const ImageBatch& destinationGradients, bool accumulates) {
  struct Lent {
    explicit Lent(CNNNeuronGradient& kernel) : kernel(kernel) {}
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    ~Lent() {  // also when the encoding throws
      kernel.addends_ = {};
      kernel.addendBuffer_ = nullptr;
    }
    CNNNeuronGradient& kernel;
  };
  const Lent lent(*this);
  addendBuffer_ = commandBuffer.get();
  if (sources.size() > 2) addends_ = sources[2];
  CNNGradientKernel::encodeStep(commandBuffer, sources, gradientStates, destinationGradients, accumulates);
}

std::shared_ptr<CNNNeuronLinear> CNNNeuronLinear::create(const std::shared_ptr<mtl::Device>& device, float a,
                                                         float b) {
  return std::shared_ptr<CNNNeuronLinear>(
      new CNNNeuronLinear(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Linear, a, b)));
}

std::shared_ptr<CNNNeuronReLU> CNNNeuronReLU::create(const std::shared_ptr<mtl::Device>& device, float a) {
  return std::shared_ptr<CNNNeuronReLU>(
      new CNNNeuronReLU(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, a)));
}

std::shared_ptr<CNNNeuronSigmoid> CNNNeuronSigmoid::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNNeuronSigmoid>(
      new CNNNeuronSigmoid(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Sigmoid)));
}

std::shared_ptr<CNNNeuronHardSigmoid> CNNNeuronHardSigmoid::create(const std::shared_ptr<mtl::Device>& device,
                                                                   float a, float b) {
  return std::shared_ptr<CNNNeuronHardSigmoid>(new CNNNeuronHardSigmoid(
      device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::HardSigmoid, a, b)));
}

std::shared_ptr<CNNNeuronTanH> CNNNeuronTanH::create(const std::shared_ptr<mtl::Device>& device, float a,
                                                     float b) {
  return std::shared_ptr<CNNNeuronTanH>(
      new CNNNeuronTanH(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::TanH, a, b)));
}

std::shared_ptr<CNNNeuronAbsolute> CNNNeuronAbsolute::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNNeuronAbsolute>(
      new CNNNeuronAbsolute(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Absolute)));
}

std::shared_ptr<CNNNeuronSoftPlus> CNNNeuronSoftPlus::create(const std::shared_ptr<mtl::Device>& device,
                                                             float a, float b) {
  return std::shared_ptr<CNNNeuronSoftPlus>(
      new CNNNeuronSoftPlus(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::SoftPlus, a, b)));
}

std::shared_ptr<CNNNeuronSoftSign> CNNNeuronSoftSign::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNNeuronSoftSign>(
      new CNNNeuronSoftSign(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::SoftSign)));
}

std::shared_ptr<CNNNeuronELU> CNNNeuronELU::create(const std::shared_ptr<mtl::Device>& device, float a) {
  return std::shared_ptr<CNNNeuronELU>(
      new CNNNeuronELU(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ELU, a)));
}

std::shared_ptr<CNNNeuronReLUN> CNNNeuronReLUN::create(const std::shared_ptr<mtl::Device>& device, float a,
                                                       float b) {
  return std::shared_ptr<CNNNeuronReLUN>(
      new CNNNeuronReLUN(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLUN, a, b)));
}

std::shared_ptr<CNNNeuronPower> CNNNeuronPower::create(const std::shared_ptr<mtl::Device>& device, float a,
                                                       float b, float c) {
  return std::shared_ptr<CNNNeuronPower>(
      new CNNNeuronPower(device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Power, a, b, c)));
}

std::shared_ptr<CNNNeuronExponential> CNNNeuronExponential::create(const std::shared_ptr<mtl::Device>& device,
                                                                   float a, float b, float c) {
  return std::shared_ptr<CNNNeuronExponential>(new CNNNeuronExponential(
      device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Exponential, a, b, c)));
}

std::shared_ptr<CNNNeuronLogarithm> CNNNeuronLogarithm::create(const std::shared_ptr<mtl::Device>& device,
                                                               float a, float b, float c) {
  return std::shared_ptr<CNNNeuronLogarithm>(new CNNNeuronLogarithm(
      device, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Logarithm, a, b, c)));
}

std::shared_ptr<CNNNeuronPReLU> CNNNeuronPReLU::create(const std::shared_ptr<mtl::Device>& device,
                                                       std::span<const float> a) {
  return std::shared_ptr<CNNNeuronPReLU>(
      new CNNNeuronPReLU(device, NNNeuronDescriptor::cnnNeuronPReLUDescriptor(a)));
}

void CNNNeuron::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.code("neuronDescriptor", descriptor_);
  checkDescriptor("CNNNeuron", descriptor_);
}

void CNNNeuronGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  coder.code("neuronDescriptor", descriptor_);
  coder.code("usesResult", usesResult_);
  checkDescriptor("CNNNeuronGradient", descriptor_);
}

}  // namespace mps
