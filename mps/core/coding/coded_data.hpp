#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mps/core/coding/coder.hpp"

namespace mps::detail {

/// What a coder holds: the tree of values, where in it the coder is, and the shared objects. The library's own.
class CodedData {
 public:
  using Value = nlohmann::json;

  /// Nothing yet, to write.
  CodedData();
  /// @throws Error as KeyedUnarchiver does
  explicit CodedData(std::span<const std::byte> bytes);
  CodedData(const CodedData&) = delete;
  CodedData& operator=(const CodedData&) = delete;
  [[nodiscard]] std::vector<std::byte> bytes() const;

  /// A map of the tree that is being written or read, or a list of maps.
  struct Scope {
    Value* value;
    std::string className;
    std::vector<const Value*> read;  ///< what was asked for; as few as a class has properties
  };
  std::vector<Scope> scopes;
  [[nodiscard]] Scope& scope() { return scopes.back(); }
  [[nodiscard]] const Scope& scope() const { return scopes.back(); }

  /// Shared objects: their maps, which other maps name by number; and the objects that were written or read.
  std::deque<Value> objectMaps;
  std::map<const SecureCoding*, std::size_t> numbers;
  std::vector<std::shared_ptr<const SecureCoding>> written;  ///< keeps their addresses from being used again
  std::vector<std::shared_ptr<SecureCoding>> decoded;
  std::set<std::size_t> inProgress;
  std::map<std::string, Coder::Decoder, std::less<>> decoders;

 private:
  Value root_;
};

}  // namespace mps::detail
