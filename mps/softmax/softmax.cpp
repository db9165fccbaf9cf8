#include "mps/softmax/softmax.hpp"

#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/pointwise.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/softmax/softmax_problem.hpp"

namespace mps {

using detail::SoftMaxDirection;
using detail::SoftMaxKind;
using detail::SoftMaxProblem;

namespace {

detail::PreparedCall prepareForwardOf(const mtl::Device& device, SoftMaxKind kind,
                                      const detail::ForwardCall& call) {
  SoftMaxProblem problem;
  problem.kind = kind;
  problem.direction = SoftMaxDirection::Forward;
  problem.input = call.source;
  problem.destination = call.destination;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(device, detail::softMaxBackEnds, problem);
  return prepared;
}

std::vector<detail::PreparedCall> prepareGradientOf(const Kernel& kernel, SoftMaxKind kind,
                                                    const detail::GradientCall& call) {
  detail::checkPointwise(kernel, call);
  const detail::PointwiseGradient views = detail::pointwiseGradient(call, true);
  SoftMaxProblem problem;
  problem.kind = kind;
  problem.direction = SoftMaxDirection::Gradient;
  problem.input = views.source;
  problem.gradient = views.gradient;
  problem.destination = views.destination;
  detail::PreparedCall prepared =
      detail::preparedPointwise(views, detail::planFor(*kernel.device(), detail::softMaxBackEnds, problem));
  prepared.sourceIsSecondary = true;
  return {prepared};
}

}  // namespace

std::shared_ptr<CNNSoftMax> CNNSoftMax::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNSoftMax>(new CNNSoftMax(device));
}

detail::PreparedCall CNNSoftMax::prepareForward(const detail::ForwardCall& call) const {
  return prepareForwardOf(*device(), SoftMaxKind::SoftMax, call);
}

std::shared_ptr<CNNSoftMaxGradient> CNNSoftMaxGradient::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNSoftMaxGradient>(new CNNSoftMaxGradient(device));
}

bool CNNSoftMaxGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNSoftMax";
}

std::vector<detail::PreparedCall> CNNSoftMaxGradient::prepareGradient(
    const detail::GradientCall& call) const {
  return prepareGradientOf(*this, SoftMaxKind::SoftMax, call);
}

CNNSoftMaxNode::CNNSoftMaxNode(std::shared_ptr<NNImageNode> source) : NNFilterNode({std::move(source)}) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<CNNSoftMaxNode> CNNSoftMaxNode::create(std::shared_ptr<NNImageNode> source) {
  return std::shared_ptr<CNNSoftMaxNode>(new CNNSoftMaxNode(std::move(source)));
}

std::shared_ptr<Kernel> CNNSoftMaxNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNSoftMax::create(device);
  configure(*kernel);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> CNNSoftMaxNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNSoftMaxGradientNode::create(gradientImage, resultImage(), resultState())};
}

std::shared_ptr<CNNSoftMaxGradientNode> CNNSoftMaxGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<CNNSoftMaxGradientNode>(new CNNSoftMaxGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

std::shared_ptr<Kernel> CNNSoftMaxGradientNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNSoftMaxGradient::create(device);
  configure(*kernel);
  return kernel;
}

std::shared_ptr<CNNLogSoftMax> CNNLogSoftMax::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNLogSoftMax>(new CNNLogSoftMax(device));
}

detail::PreparedCall CNNLogSoftMax::prepareForward(const detail::ForwardCall& call) const {
  return prepareForwardOf(*device(), SoftMaxKind::LogSoftMax, call);
}

std::shared_ptr<CNNLogSoftMaxGradient> CNNLogSoftMaxGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNLogSoftMaxGradient>(new CNNLogSoftMaxGradient(device));
}

bool CNNLogSoftMaxGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNLogSoftMax";
}

std::vector<detail::PreparedCall> CNNLogSoftMaxGradient::prepareGradient(
    const detail::GradientCall& call) const {
  return prepareGradientOf(*this, SoftMaxKind::LogSoftMax, call);
}

CNNLogSoftMaxNode::CNNLogSoftMaxNode(std::shared_ptr<NNImageNode> source)
    : NNFilterNode({std::move(source)}) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<CNNLogSoftMaxNode> CNNLogSoftMaxNode::create(std::shared_ptr<NNImageNode> source) {
  return std::shared_ptr<CNNLogSoftMaxNode>(new CNNLogSoftMaxNode(std::move(source)));
}

std::shared_ptr<Kernel> CNNLogSoftMaxNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNLogSoftMax::create(device);
  configure(*kernel);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> CNNLogSoftMaxNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNLogSoftMaxGradientNode::create(gradientImage, resultImage(), resultState())};
}

std::shared_ptr<CNNLogSoftMaxGradientNode> CNNLogSoftMaxGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<CNNLogSoftMaxGradientNode>(new CNNLogSoftMaxGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

std::shared_ptr<Kernel> CNNLogSoftMaxGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNLogSoftMaxGradient::create(device);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
