#include "mps/trainable/optimizer_slots.hpp"

#include <cstring>

#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

namespace mps::detail {

SafetensorsTensor TrainableArray::tensor() const {
  return {name, DataType::Float32, shape, {buffer->contents(), buffer->length()}};
}

void Replacements::add(const SafetensorsFile& file, const std::string& name,
                       const std::vector<std::uint64_t>& shape, std::shared_ptr<mtl::Buffer> buffer) {
  add(file.floats(name, shape), std::move(buffer));
}

void Replacements::add(std::vector<float> values, std::shared_ptr<mtl::Buffer> buffer) {
  replacements_.push_back({std::move(values), std::move(buffer)});
}

void Replacements::apply() const {
  for (const Replacement& replacement : replacements_) {
    std::memcpy(replacement.buffer->contents(), replacement.values.data(), replacement.buffer->length());
    replacement.buffer->didModifyRange(0, replacement.buffer->length());
  }
}

void copyBuffer(const mtl::Buffer& from, mtl::Buffer& to) {
  std::memcpy(to.contents(), from.contents(), from.length());
  to.didModifyRange(0, to.length());
}

OptimizerSlots::OptimizerSlots(const std::string& className, const std::shared_ptr<mtl::Device>& device,
                               const std::shared_ptr<NNOptimizer>& optimizer, AdamForm adamForm,
                               std::vector<TrainableArray> arrays)
    : optimizer_(optimizer ? std::static_pointer_cast<NNOptimizer>(optimizer->copy(device)) : nullptr),
      adamForm_(adamForm),
      arrays_(std::move(arrays)),
      timeStep_(device->newBuffer(sizeof(std::uint64_t))) {
  const bool isAdam = dynamic_cast<const NNOptimizerAdam*>(optimizer_.get()) != nullptr;
  const bool isKnown =
      isAdam || !optimizer_ ||
      dynamic_cast<const NNOptimizerStochasticGradientDescent*>(optimizer_.get()) != nullptr ||
      dynamic_cast<const NNOptimizerRMSProp*>(optimizer_.get()) != nullptr;
  const std::string found = optimizer_ ? optimizer_->className() : "null";
  if (!isKnown) throw Error(className, "optimizer", found, "SGD, RMSProp or Adam");
  if (adamForm_ == AdamForm::AMSGrad && !isAdam)
    throw Error(className, "optimizer", found, "Adam, which AMSGrad is a form of");
  slots_.resize(slotNames().size());
  for (Slot& slot : slots_)
    for (const TrainableArray& array : arrays_) {
      const std::size_t bytes = array.buffer->length();
      slot.push_back(Vector::create(device->newBuffer(bytes), VectorDescriptor::vectorDescriptor(
                                                                  bytes / sizeof(float), DataType::Float32)));
    }
}

std::vector<std::string> OptimizerSlots::slotNames() const {
  if (const auto* sgd = dynamic_cast<const NNOptimizerStochasticGradientDescent*>(optimizer_.get()))
    return sgd->momentumScale() != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  if (dynamic_cast<const NNOptimizerRMSProp*>(optimizer_.get()) != nullptr) return {"sumOfSquares"};
  if (adamForm_ == AdamForm::AMSGrad) return {"momentum", "velocity", "maximumVelocity"};
  if (optimizer_) return {"momentum", "velocity"};
  return {};
}

void OptimizerSlots::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
  for (const Slot& slot : slots_)
    for (const auto& vector : slot) vector->synchronize(commandBuffer);
}

void OptimizerSlots::copyFrom(const OptimizerSlots& other) {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    for (std::size_t part = 0; part < slots_[i].size(); ++part)
      copyBuffer(*other.slots_[i][part]->data(), *slots_[i][part]->data());
}

void OptimizerSlots::appendTensors(std::vector<SafetensorsTensor>& tensors, const std::string& label) const {
  const auto names = slotNames();
  for (std::size_t i = 0; i < slots_.size(); ++i)
    for (std::size_t part = 0; part < arrays_.size(); ++part)
      tensors.push_back(
          TrainableArray{arrays_[part].name + "." + names[i], arrays_[part].shape, slots_[i][part]->data()}
              .tensor());
  if (const auto* adam = dynamic_cast<const NNOptimizerAdam*>(optimizer_.get())) {
    const std::uint64_t step = adam->timeStep();
    std::memcpy(timeStep_->contents(), &step, sizeof step);
    tensors.push_back({label + ".step", DataType::UInt64, {}, {timeStep_->contents(), timeStep_->length()}});
  }
}

void OptimizerSlots::addReplacements(Replacements& replacements, const SafetensorsFile& file) const {
  const auto names = slotNames();
  for (std::size_t i = 0; i < slots_.size(); ++i)
    for (std::size_t part = 0; part < arrays_.size(); ++part)
      replacements.add(file, arrays_[part].name + "." + names[i], arrays_[part].shape,
                       slots_[i][part]->data());
}

void OptimizerSlots::readTimeStep(const SafetensorsFile& file, const std::string& label) {
  if (auto* adam = dynamic_cast<NNOptimizerAdam*>(optimizer_.get()))
    adam->setTimeStep(file.unsignedNumber(label + ".step"));
}

}  // namespace mps::detail
