#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "unmetal.hpp"

/// What the ports share: checks that say what is wrong, and random numbers. Everything else is written as the programs
/// that they stand for have it.
namespace port {

inline int mistakes = 0;

inline void check(bool isRight, const std::string& sentence) {
  if (isRight) return;
  std::printf("wrong: %s\n", sentence.c_str());
  ++mistakes;
}

/// NaN is never near.
inline void near(double found, double expected, double tolerance, const std::string& what) {
  check(std::abs(found - expected) <= tolerance,
        what + " is " + std::to_string(found) + ", expected " + std::to_string(expected));
}

/// @param words that the message must have
template <class Call>
void throws(Call call, const std::vector<std::string>& words, const std::string& what) {
  try {
    call();
  } catch (const mps::Error& error) {
    const std::string message = error.what();
    for (const std::string& word : words)
      check(message.find(word) != std::string::npos, what + ": the message lacks " + word + ": " + message);
    return;
  }
  check(false, what + " does not throw");
}

/// Runs a port and says how it went.
template <class Program>
int run(Program program) {
  try {
    program();
  } catch (const std::exception& error) {
    check(false, std::string("stopped by: ") + error.what());
  }
  if (mistakes == 0) std::printf("all is right\n");
  return mistakes == 0 ? 0 : 1;
}

/// Equally distributed numbers; the same ones in every run.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2654435761U + 12345U) {}
  double operator()(double least, double most) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return least + (most - least) * static_cast<double>(state_ >> 40U) / static_cast<double>(1U << 24U);
  }
  std::vector<float> floats(std::size_t count, double least, double most) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>((*this)(least, most));
    return values;
  }

 private:
  std::uint64_t state_;
};

/// A buffer that the program fills once.
inline std::shared_ptr<mtl::Buffer> bufferOf(const std::shared_ptr<mtl::Device>& device,
                                             const std::vector<float>& values) {
  return device->newBuffer(std::as_bytes(std::span(values)));
}

inline std::shared_ptr<mps::Vector> zeros(const std::shared_ptr<mtl::Device>& device, std::size_t length) {
  return mps::Vector::create(device, mps::VectorDescriptor::create(length, mps::DataType::Float32));
}

constexpr auto pixelsFirst = mps::DataLayout::HeightxWidthxFeatureChannels;
constexpr auto planesFirst = mps::DataLayout::FeatureChannelsxHeightxWidth;

inline mps::ImageDescriptor floatImage(std::size_t width, std::size_t height, std::size_t channels) {
  return mps::ImageDescriptor::create(mps::ImageFeatureChannelFormat::Float32, width, height, channels);
}

}  // namespace port
