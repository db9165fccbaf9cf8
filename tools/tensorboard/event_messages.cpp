#include "tools/tensorboard/event_messages.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

namespace unmetal {
namespace {

Message eventAt(double wallTime, std::uint64_t step) {
  Message event;
  event.addDouble(1, wallTime);
  event.addInteger(2, static_cast<std::int64_t>(step));
  return event;
}

/// Equal parts of what lies between the least and the largest value.
struct Buckets {
  std::vector<double> limits;
  std::vector<double> counts;
};
Buckets bucketsOf(std::span<const float> values, double least, double largest) {
  constexpr std::size_t most = 64;
  const std::size_t count = least < largest ? most : 1;
  const double width = (largest - least) / static_cast<double>(count);
  Buckets buckets{std::vector<double>(count), std::vector<double>(count)};
  for (std::size_t i = 0; i < count; ++i) buckets.limits[i] = least + width * static_cast<double>(i + 1);
  buckets.limits.back() = largest;
  for (const float value : values) {
    const double place = width > 0 ? (static_cast<double>(value) - least) / width : 0;
    buckets.counts[std::min(static_cast<std::size_t>(place), count - 1)] += 1;
  }
  return buckets;
}

Message histogramProto(std::span<const float> values) {
  const auto [least, largest] = std::ranges::minmax(values);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const Buckets buckets = bucketsOf(values, static_cast<double>(least), static_cast<double>(largest));
  Message histogram;
  histogram.addDouble(1, static_cast<double>(least));
  histogram.addDouble(2, static_cast<double>(largest));
  histogram.addDouble(3, static_cast<double>(values.size()));
  histogram.addDouble(4, sum);
  histogram.addDouble(5, squares);
  histogram.addDoubles(6, buckets.limits);
  histogram.addDoubles(7, buckets.counts);
  return histogram;
}

Message taggedValue(const std::string& tag) {
  Message value;
  value.addText(1, tag);
  return value;
}

Message nodeDef(const train::Layer& layer, std::span<const train::Layer> layers) {
  Message node;
  node.addText(1, layer.label);
  node.addText(2, train::nameOf(layer.kind) + " " + describe(layer.shape));
  for (const std::size_t input : layer.inputs) node.addText(3, layers[input].label);
  return node;
}

}  // namespace

void Summary::addScalar(const std::string& tag, float value) {
  Message scalar = taggedValue(tag);
  scalar.addFloat(2, value);
  addValue(std::move(scalar));
}

void Summary::addHistogram(const std::string& tag, std::span<const float> values) {
  std::vector<float> finite;
  std::ranges::copy_if(values, std::back_inserter(finite), [](float value) { return std::isfinite(value); });
  if (finite.empty()) return;
  Message value = taggedValue(tag);
  value.addMessage(5, histogramProto(finite));
  addValue(std::move(value));
}

void Summary::addImage(const std::string& tag, const train::Picture& picture) {
  Message image;
  image.addInteger(1, static_cast<std::int64_t>(picture.height));
  image.addInteger(2, static_cast<std::int64_t>(picture.width));
  image.addInteger(3, static_cast<std::int64_t>(picture.channels));
  const std::vector<std::byte> png = train::encodePng(picture);
  image.addText(4, std::string(reinterpret_cast<const char*>(png.data()), png.size()));
  Message value = taggedValue(tag);
  value.addMessage(4, std::move(image));
  addValue(std::move(value));
}

void Summary::addValue(Message value) {
  message_.addMessage(1, std::move(value));
}

Message versionEvent(double wallTime) {
  Message event;
  event.addDouble(1, wallTime);
  event.addText(3, "brain.Event:2");
  return event;
}

Message restartEvent(double wallTime, std::uint64_t step) {
  Message session;
  session.addInteger(1, 1);  // START
  Message event = eventAt(wallTime, step);
  event.addMessage(7, std::move(session));
  return event;
}

Message summaryEvent(double wallTime, std::uint64_t step, Summary summary) {
  Message event = eventAt(wallTime, step);
  event.addMessage(5, summary.take());
  return event;
}

Message graphEvent(double wallTime, std::span<const train::Layer> layers) {
  Message graph;
  for (const train::Layer& layer : layers) graph.addMessage(1, nodeDef(layer, layers));
  Message event = eventAt(wallTime, 0);
  event.addMessage(4, std::move(graph));
  return event;
}

}  // namespace unmetal
