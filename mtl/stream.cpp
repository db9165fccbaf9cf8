#include "mtl/stream.hpp"

#include <chrono>

#include "mtl/command.hpp"

namespace mtl {
namespace {

class HostMoment final : public Stream::Moment {
 public:
  [[nodiscard]] double secondsAfter(const Moment& earlier) const override {
    return std::chrono::duration<double>(time_ - static_cast<const HostMoment&>(earlier).time_).count();
  }

 private:
  std::chrono::steady_clock::time_point time_ = std::chrono::steady_clock::now();
};

}  // namespace

bool Stream::replay(std::span<Command> /*commands*/) {
  return false;
}

std::unique_ptr<Stream::Moment> Stream::moment() {
  return std::make_unique<HostMoment>();
}

}  // namespace mtl
