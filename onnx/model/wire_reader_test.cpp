#include "onnx/model/wire_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "onnx/model/protobuf.hpp"

namespace unmetal::onnx::detail::wire_reader_test {
namespace {

using mps::detail::errorOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string troubleOf(std::string_view message) {
  return errorOf<mps::Error>([&] {
    WireReader reader(message);
    while (reader.next()) {
    }
  });
}

TEST(WireReader, ReadsWhatIsWritten) {
  Message inner;
  inner.addInteger(3, -5);
  Message message;
  message.addInteger(1, 300);
  message.addFloat(2, 1.5F);
  message.addText(16, "text");
  message.addMessage(17, std::move(inner));
  message.addDoubles(18, std::vector<double>{1, 2});
  const std::string text = message.text();
  WireReader reader(text);
  EXPECT_EQ(integerOf(*reader.next()), 300);
  EXPECT_EQ(floatOf(*reader.next()), 1.5F);
  EXPECT_EQ(bytesOf(*reader.next()), "text");
  WireReader nested(bytesOf(*reader.next()));
  const auto field = nested.next();
  EXPECT_EQ(field->number, 3U);
  EXPECT_EQ(integerOf(*field), -5);
  std::vector<double> doubles;
  appendDoubles(*reader.next(), doubles);
  EXPECT_THAT(doubles, ElementsAre(1, 2));
  EXPECT_FALSE(reader.next());
}

TEST(WireReader, RepeatedNumbersMayBePacked) {
  std::vector<std::int64_t> integers;
  appendIntegers({1, WireField::Type::Length, 0, std::string_view("\x01\xAC\x02", 3)}, integers);
  appendIntegers({1, WireField::Type::Varint, 7, {}}, integers);
  EXPECT_THAT(integers, ElementsAre(1, 300, 7));
  std::vector<float> floats;
  appendFloats({1, WireField::Type::Length, 0, std::string_view("\0\0\x80\x3F\0\0\0\x40", 8)}, floats);
  appendFloats({1, WireField::Type::FourBytes, 0x40400000, {}}, floats);
  EXPECT_THAT(floats, ElementsAre(1, 2, 3));
}

TEST(WireReader, WhatIsNoMessageIsRefused) {
  EXPECT_THAT(troubleOf("\x08"), HasSubstr("ends in the middle of a field"));
  EXPECT_THAT(troubleOf("\x0A\x05text"), HasSubstr("ends in the middle of a field"));
  EXPECT_THAT(troubleOf("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"), HasSubstr("middle of a field"));
  EXPECT_THAT(troubleOf("\x0D\x01\x02"), HasSubstr("middle of a field"));
  EXPECT_THAT(troubleOf("\x0B"), HasSubstr("a type that there is not"));
  EXPECT_THAT(troubleOf("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"),
              HasSubstr("more than ten bytes"));
  std::vector<float> floats;
  EXPECT_THAT(errorOf<mps::Error>([&] {
                appendFloats({1, WireField::Type::Length, 0, "abc"}, floats);
              }),
              HasSubstr("ends in the middle of one"));
  EXPECT_THAT(errorOf<mps::Error>([&] {
                integerOf({4, WireField::Type::Length, 0, "abc"});
              }),
              HasSubstr("field 4 of a message has another type"));
}

}  // namespace
}  // namespace unmetal::onnx::detail::wire_reader_test
