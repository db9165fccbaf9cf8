#include "onnx/model/protobuf.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "onnx/model/message_reading.hpp"

namespace unmetal::onnx::detail {
namespace {

std::string integerField(std::int64_t value) {
  Message message;
  message.addInteger(1, value);
  return message.text();
}

// The bytes are those of the format's documentation.
TEST(Protobuf, IntegersAreVarints) {
  EXPECT_EQ(integerField(0), std::string("\x08\x00", 2));
  EXPECT_EQ(integerField(1), "\x08\x01");
  EXPECT_EQ(integerField(127), "\x08\x7F");
  EXPECT_EQ(integerField(128), "\x08\x80\x01");
  EXPECT_EQ(integerField(150), "\x08\x96\x01");
  EXPECT_EQ(integerField(-1), "\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01");
}

TEST(Protobuf, TextsHaveALength) {
  Message message;
  message.addText(2, "testing");
  message.addText(20, "");
  EXPECT_EQ(message.text(), std::string("\x12\x07testing\xA2\x01\x00", 12));
}

TEST(Protobuf, FloatsAreFourBytes) {
  Message message;
  message.addFloat(3, 1.5F);
  const auto fields = MessageReader(message.text()).fields();
  ASSERT_EQ(fields.size(), 1U);
  EXPECT_EQ(fields[0].number, 3U);
  EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(fields[0].integer)), 1.5F);
}

TEST(Protobuf, DoublesAreEightBytes) {
  Message message;
  message.addDouble(1, 1.5);
  message.addDoubles(6, std::vector<double>{1, 2});
  EXPECT_EQ(message.text(), std::string("\x09\0\0\0\0\0\0\xF8\x3F"
                                        "\x32\x10\0\0\0\0\0\0\xF0\x3F\0\0\0\0\0\0\0\x40",
                                        27));
}

TEST(Protobuf, LongTextsAreMovedThroughMessages) {
  const std::string weights(5000, 'w');
  Message tensor;
  tensor.addInteger(1, 7);
  tensor.addText(9, weights);
  tensor.addText(8, "behind");
  Message graph;
  graph.addMessage(5, std::move(tensor));
  graph.addText(2, "name");
  const std::string text = graph.text();
  EXPECT_EQ(text.size(), graph.size());
  const auto inside = textsOf(text, 5);
  ASSERT_EQ(inside.size(), 1U);
  EXPECT_THAT(textsOf(inside[0], 9), testing::ElementsAre(weights));
  EXPECT_THAT(textsOf(inside[0], 8), testing::ElementsAre("behind"));
  EXPECT_THAT(textsOf(text, 2), testing::ElementsAre("name"));
  EXPECT_THAT(graph.pieces(), testing::Contains(weights)) << "in one piece, as it came";
}

}  // namespace
}  // namespace unmetal::onnx::detail
