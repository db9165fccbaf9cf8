#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "mtl/memory.hpp"

namespace mtl {

/// A block that commands read and none writes: a copy, whose original would stay as it is. The host may write it.
///
/// The library's own.
class ReadOnlyMemory final : public Memory {
 public:
  /// @param found,expected of the error when a command is to write it: "a copy of ...", "memory that ..."
  ReadOnlyMemory(std::shared_ptr<Memory> whole, std::string found, std::string expected)
      : Memory(whole->address(), whole->length(), *whole, 0),
        whole_(std::move(whole)),
        found_(std::move(found)),
        expected_(std::move(expected)) {}

  [[nodiscard]] const std::string& found() const { return found_; }
  [[nodiscard]] const std::string& expected() const { return expected_; }

  std::byte* contents() override { return whole_->contents(); }
  void didModifyRange(std::size_t offset, std::size_t length) override {
    whole_->didModifyRange(offset, length);
  }
  void write(std::size_t offset, std::span<const std::byte> bytes) override { whole_->write(offset, bytes); }
  void synchronize(CommandBuffer& commandBuffer) override { whole_->synchronize(commandBuffer); }
  void fillWithZeros() override { whole_->fillWithZeros(); }

 private:
  std::shared_ptr<Memory> whole_;
  std::string found_;
  std::string expected_;
};

}  // namespace mtl
