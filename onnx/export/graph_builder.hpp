#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "onnx/model/model.hpp"

namespace unmetal::onnx::detail {

/// Collects the operators of a model. Values are known by their names, which it makes: "conv1/Conv", "conv1.weight", of the step of
/// the graph that is being translated.
class GraphBuilder {
 public:
  /// What the names of all that follows begin with. @param name of a layer; another one gets it with a number behind it
  void beginStep(const std::string& name);

  /// An operator with one result. @return the result's name
  std::string add(const std::string& type, std::vector<std::string> inputs,
                  std::vector<Attribute> attributes = {});
  /// Constants. @param role what it is to the step: "weight" @return its name
  /// @{
  std::string constant(const std::string& role, std::vector<std::int64_t> shape, std::vector<float> values);
  std::string constant(const std::string& role, float value) { return constant(role, {}, {value}); }
  std::string constant(const std::string& role, std::vector<std::int64_t> values);
  /// @}

  std::string addInput(const std::string& name, const train::Shape& shape);
  /// @param value a result of add(), or an input, which becomes a result behind an operator that changes nothing
  /// @return its name from now on
  std::string addOutput(const std::string& name, const std::string& value, const train::Shape& shape);
  [[nodiscard]] Model take(std::map<std::string, std::string> metadata);

 private:
  /// That name, or that with a number.
  std::string unused(const std::string& name);
  void rename(const std::string& value, const std::string& name);

  Model model_;
  std::string step_;
  std::set<std::string> names_;
};

}  // namespace unmetal::onnx::detail
