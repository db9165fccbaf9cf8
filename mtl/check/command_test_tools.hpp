#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "mtl/command.hpp"

/// What the tests of this folder share.
namespace mtl::testing {

/// A door that commands and handlers wait at until the test opens it.
class Gate {
 public:
  Gate() : opened_(promise_.get_future()) {}
  void open() { promise_.set_value(); }
  void wait() const { opened_.wait(); }
  /// Whether it was opened within a time that only a test about to fail uses up.
  [[nodiscard]] bool opensInTime() const {
    return opened_.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_;
};

/// A command that calls a function and touches no memory.
inline Command call(std::function<void()> function, std::string label = "command") {
  Command command;
  command.label = std::move(label);
  command.run = [function = std::move(function)](Stream&) { function(); };
  return command;
}

/// A command that fails.
inline Command fail(const std::string& message, std::string label = "command") {
  return call([message] { throw std::runtime_error(message); }, std::move(label));
}

}  // namespace mtl::testing
