#include "onnx/model/external_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "onnx/model/protobuf.hpp"

namespace unmetal::onnx::detail::external_data_test {
namespace {

using mps::detail::errorOf;
using testing::HasSubstr;
using Places = std::map<std::string, std::string>;

/// A model with one constant, "c", whose data is there.
std::string modelOf(const Places& places) {
  Message tensor;
  tensor.addText(8, "c");
  tensor.addInteger(14, 1);
  for (const auto& [key, value] : places) {
    Message entry;
    entry.addText(1, key);
    entry.addText(2, value);
    tensor.addMessage(13, std::move(entry));
  }
  Message graph;
  graph.addMessage(5, std::move(tensor));
  Message model;
  model.addMessage(7, std::move(graph));
  return model.text();
}

/// Of a folder with one file.
std::string_view dataOf(const std::string& name) {
  if (name != "model.onnx.data") throw mps::Error("cannot read " + name);
  return "0123456789";
}

std::string attached(const Places& places) {
  const std::string bytes = modelOf(places);
  ModelMessage model = readModel(bytes);
  attachExternalData(model, dataOf);
  return std::string(model.graph.constants.at(0).raw.value());
}

std::string trouble(const Places& places) {
  return errorOf<mps::Error>([&] { attached(places); });
}

TEST(ExternalData, IsAPartOfAFile) {
  EXPECT_EQ(attached({{"location", "model.onnx.data"}}), "0123456789");
  EXPECT_EQ(attached({{"location", "model.onnx.data"}, {"offset", "4"}}), "456789");
  EXPECT_EQ(attached({{"location", "model.onnx.data"}, {"offset", "4"}, {"length", "3"}}), "456");
  EXPECT_EQ(attached({{"location", "model.onnx.data"}, {"offset", "10"}, {"length", "0"}}), "");
}

TEST(ExternalData, FilesElsewhereAreRefused) {
  for (const std::string name : {"/etc/passwd", "../model.onnx.data", "a/b", "a\\b", "C:b", ".", "..", ""})
    EXPECT_EQ(trouble({{"location", name}}),
              "the constant \"c\": its data is not in a file of the model's folder")
        << name;
  EXPECT_EQ(trouble({{"location", std::string("a\0b", 3)}}),
            "the constant \"c\": its data is not in a file of the model's folder");
  EXPECT_EQ(trouble({}), "the constant \"c\": its data is not in a file of the model's folder");
  EXPECT_EQ(trouble({{"location", "missing"}}), "the constant \"c\": cannot read missing");
}

TEST(ExternalData, PartsThatAreNotThereAreRefused) {
  const auto at = [](const std::string& offset, const std::string& length) {
    return trouble({{"location", "model.onnx.data"}, {"offset", offset}, {"length", length}});
  };
  EXPECT_THAT(at("11", "0"), HasSubstr("the constant \"c\": its data begins behind the end of its file"));
  EXPECT_THAT(at("4", "7"), HasSubstr("its data goes beyond the end of its file"));
  EXPECT_THAT(at("18446744073709551615", "1"), HasSubstr("its data begins behind the end of its file"));
  EXPECT_THAT(at("1", "18446744073709551615"), HasSubstr("its data goes beyond the end of its file"));
  for (const std::string number : {"-1", "1x", " 1", "99999999999999999999"}) {
    EXPECT_THAT(at(number, "1"), HasSubstr("its offset in another file is no number")) << number;
    EXPECT_THAT(at("1", number), HasSubstr("its length in another file is no number")) << number;
  }
}

}  // namespace
}  // namespace unmetal::onnx::detail::external_data_test
