#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "train/network/network.hpp"

namespace unmetal::train::network_drawing_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Rectangle {
  double left, top, width, height;
};

/// The boxes of layers; frames and the ground have another look.
std::vector<Rectangle> boxesOf(const std::string& drawing) {
  const std::regex box(
      R"svg(<rect x="([0-9.]+)" y="([0-9.]+)" width="([0-9.]+)" height="([0-9.]+)" rx="4")svg");
  std::vector<Rectangle> boxes;
  for (std::sregex_iterator i(drawing.begin(), drawing.end(), box), end; i != end; ++i)
    boxes.push_back({std::stod((*i)[1]), std::stod((*i)[2]), std::stod((*i)[3]), std::stod((*i)[4])});
  return boxes;
}

bool overlap(const Rectangle& a, const Rectangle& b) {
  return a.left < b.left + b.width && b.left < a.left + a.width && a.top < b.top + b.height &&
         b.top < a.top + a.height;
}

std::size_t countOf(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Boxes lie beside each other, in the picture, and each edge has its arrow.
void checkDrawing(const Network& network, std::size_t boxCount, std::size_t edgeCount) {
  const std::string drawing = network.drawing();
  const std::vector<Rectangle> boxes = boxesOf(drawing);
  EXPECT_EQ(boxes.size(), boxCount);
  EXPECT_EQ(countOf(drawing, "marker-end"), edgeCount);
  std::smatch size;
  ASSERT_TRUE(std::regex_search(drawing, size, std::regex(R"svg(width="([0-9.]+)" height="([0-9.]+)")svg")));
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_LE(boxes[i].left + boxes[i].width, std::stod(size[1]));
    EXPECT_LE(boxes[i].top + boxes[i].height, std::stod(size[2]));
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(overlap(boxes[i], boxes[j])) << i << " and " << j;
  }
  for (const Layer& layer : network.layers()) {
    // The part in front of the last point may stand at the frame around it.
    const std::string label = layer.label.substr(layer.label.rfind('.') + 1);
    EXPECT_THAT(drawing, HasSubstr(label)) << "a layer is missing";
  }
  EXPECT_EQ(network.drawing(), drawing);
}

TEST(NetworkDrawing, AChainIsOneColumn) {
  const Network network({28, 28, 1});
  network.input().convolution(32, 5).relu().maxPool(2).dense(10);
  checkDrawing(network, 4, 3);
  const std::string drawing = network.drawing();
  for (const char* words : {"conv1: convolution 5x5", "28x28x32", "14x14x32", "1x1x10"})
    EXPECT_THAT(drawing, HasSubstr(words));
  const std::vector<Rectangle> boxes = boxesOf(drawing);
  EXPECT_TRUE(
      std::ranges::all_of(boxes, [&](const Rectangle& box) { return box.left == boxes.front().left; }));
}

TEST(NetworkDrawing, AShortcutRunsBesideItsBlock) {
  const Network network({16, 16, 8});
  const Features x = network.input();
  const Features y = x.convolution(8, 3, {}, "a.conv1").relu().convolution(8, 3, {}, "a.conv2");
  const Features z = (y + x).relu();
  const Features shortcut = z.convolution(16, 1, {.stride = 2}, "b.skip");
  z.convolution(16, 3, {.stride = 2}, "b.conv1").add(shortcut).globalAveragePool().dense(4);
  // Input, two convolutions and their sum, two and their sum, pool, dense.
  checkDrawing(network, 9, 10);
  const std::string drawing = network.drawing();
  EXPECT_EQ(countOf(drawing, "font-style=\"italic\""), 2U) << "a frame for each block";
  EXPECT_THAT(drawing, HasSubstr(">skip: convolution 1x1, stride 2<"));
}

TEST(NetworkDrawing, LongSkipsOfAUNetLieBesideEachOther) {
  const Network network({32, 32, 3});
  std::vector<Features> skips;
  Features x = network.input();
  for (const std::size_t channels : {8U, 16U, 32U}) {
    x = x.convolution(channels, 3).relu();
    skips.push_back(x);
    x = x.maxPool(2);
  }
  x = x.convolution(64, 3).relu();
  for (std::size_t i = skips.size(); i-- > 0;)
    x = x.upsample(2).concatenate(skips[i]).convolution(8, 3).relu();
  x.convolution(2, 1);
  checkDrawing(network, 1 + 6 + 1 + 9 + 1, 6 + 1 + 12 + 1);
}

TEST(NetworkDrawing, LabelsAreEscapedAndLongOnesAreCut) {
  const Network network({8, 8, 1});
  network.input().convolution(4, 3, {}, "a<b>&\"c\"").relu(std::string(200, 'x'));
  const std::string drawing = network.drawing();
  EXPECT_THAT(drawing, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot;"));
  EXPECT_THAT(drawing, Not(HasSubstr(std::string(100, 'x'))));
  EXPECT_THAT(drawing, HasSubstr("…"));
}

}  // namespace
}  // namespace unmetal::train::network_drawing_test
