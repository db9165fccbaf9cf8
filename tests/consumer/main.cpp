#include <cstdio>

#include <unmetal.hpp>

int main() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  commandBuffer->commit();
  commandBuffer->waitUntilCompleted();
  std::printf("%s: %s\n", device->name().c_str(), device->description().c_str());
  return commandBuffer->error() ? 1 : 0;
}
