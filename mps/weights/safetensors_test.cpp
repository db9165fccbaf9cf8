#include "mps/weights/safetensors.hpp"

#include <gtest/gtest.h>
#include <array>
#include <cstring>
#include <limits>

#include "mps/weights/test_folder.hpp"

namespace mps::safetensors_test {
namespace {

using detail::errorOf;
using detail::FileSizeLimit;
using detail::readText;
using detail::TestFolder;
using detail::writeText;
using Shape = std::vector<std::uint64_t>;

std::span<const std::byte> bytesOf(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// A file with this header and this many bytes of data, all zero.
std::string fileWith(std::string_view header, std::size_t dataBytes) {
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(header).append(dataBytes, '\0');
}

/// The trouble that parse() finds, without the words that every such error begins with.
std::string troubleIn(std::string_view file) {
  const std::string error = errorOf<Error>([&] { SafetensorsFile::parse(bytesOf(file), "x.safetensors"); });
  const std::string beginning = "x.safetensors is not a valid safetensors file: ";
  EXPECT_TRUE(error.starts_with(beginning)) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  return error.substr(std::min(beginning.size(), error.size()));
}

std::string troubleIn(std::string_view header, std::size_t dataBytes) {
  return troubleIn(fileWith(header, dataBytes));
}

/// What Python's library writes for four arrays and a map of one string.
std::string pythonFile() {
  const std::string_view header =
      R"({"__metadata__":{"epoch":"3"},"step":{"dtype":"U64","shape":[],"data_offsets":[0,8]},)"
      R"("weights":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},)"
      R"("half":{"dtype":"F16","shape":[3],"data_offsets":[24,30]},)"
      R"("name":{"dtype":"U8","shape":[2],"data_offsets":[30,32]}}  )";
  const std::string_view data(
      "\x07\0\0\0\0\0\0\0\0\0\x80?\0\0 \xc0\xcd\xcc\xcc=\0\0@@\0<\0"
      "8\xff\xfb"
      "ab",
      32);
  std::string file = fileWith(header, 0);
  return file.append(data);
}

TEST(SafetensorsTest, ReadsAFileOfPython) {
  const SafetensorsFile file = SafetensorsFile::parse(bytesOf(pythonFile()), "python.safetensors");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"epoch", "3"}}));
  EXPECT_EQ(file.metadata("epoch"), "3");
  ASSERT_EQ(file.tensors().size(), 4U);
  EXPECT_EQ(file.tensors()[0].name, "step");
  EXPECT_EQ(file.unsignedNumber("step"), 7U);
  EXPECT_EQ(file.floats("weights", Shape{2, 2}), (std::vector<float>{1.0F, -2.5F, 0.1F, 3.0F}));
  EXPECT_EQ(file.floats("half", Shape{3}), (std::vector<float>{1.0F, 0.5F, -65504.0F}));
  EXPECT_EQ(file.tensor("name", DataType::UInt8, Shape{2}).bytes[1], std::byte{'b'});
  EXPECT_TRUE(file.contains("half"));
  EXPECT_FALSE(file.contains("other"));
}

TEST(SafetensorsTest, BFloat16AndFloat64BecomeFloat32) {
  const std::string_view header =
      R"({"bf":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},"step":{"dtype":"U8","shape":[],"data_offsets":[6,7]},)"
      R"("wide":{"dtype":"F64","shape":[1,2],"data_offsets":[7,23]}})";
  std::string text = fileWith(header, 0).append("\x80\x3f\x49\xc0\x80\x7f\x07", 7);
  for (const double value : {0.1, 1e300}) text.append(reinterpret_cast<const char*>(&value), sizeof value);
  SafetensorsFile read = SafetensorsFile::parse(bytesOf(text), "x.safetensors");
  const SafetensorsFile file(std::move(read));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(file.floats("bf", Shape{3}), (std::vector<float>{1, -3.140625F, infinity}));
  EXPECT_EQ(file.floats("wide", Shape{1, 2}), (std::vector<float>{0.1F, infinity}));
  EXPECT_EQ(file.tensor("bf").type, DataType::Float32);
  EXPECT_EQ(file.tensor("bf").bytes.size(), 3 * sizeof(float));
  EXPECT_EQ(file.tensor("step").bytes[0], std::byte{7}) << "what lies behind a converted one";
  EXPECT_EQ(troubleIn(R"({"w":{"dtype":"BF16","shape":[3],"data_offsets":[0,12]}})", 12),
            "tensor \"w\" has 12 bytes, which does not fit BF16[3]");
  EXPECT_EQ(troubleIn(R"({"w":{"dtype":"F64","shape":[2],"data_offsets":[0,8]}})", 8),
            "tensor \"w\" has 8 bytes, which does not fit F64[2]");
}

TEST(SafetensorsTest, WritesWhatItReads) {
  const TestFolder folder;
  const std::array<float, 6> weights{1, 2, 3, 4, 5, -0.0F};
  const std::array<std::uint16_t, 2> half{0x3C00, 0xFBFF};
  const std::array<std::int64_t, 1> signedNumber{-5};
  const std::uint64_t step = 1'000'000'000'000'000'000ULL;
  const std::string text = "philox";
  const std::vector<SafetensorsTensor> tensors{
      {"text", DataType::UInt8, {6}, bytesOf(text)},
      {"layer 1/weights", DataType::Float32, {1, 2, 3}, std::as_bytes(std::span(weights))},
      {"half", DataType::Float16, {2}, std::as_bytes(std::span(half))},
      {"signed", DataType::Int64, {1}, std::as_bytes(std::span(signedNumber))},
      {"step", DataType::UInt64, {}, std::as_bytes(std::span(&step, 1))},
      {"empty", DataType::Float32, {0, 5}, {}},
  };
  const SafetensorsMetadata metadata{{"net", "mnist-cnn"}, {"quote", "\"\\\n\xC3\xA9"}};
  writeSafetensors(folder / "a.safetensors", tensors, metadata);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.safetensors"});

  const SafetensorsFile file = SafetensorsFile::read(folder / "a.safetensors");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const SafetensorsTensor& expected : tensors) {
    const SafetensorsTensor& found = file.tensor(expected.name, expected.type, expected.shape);
    EXPECT_TRUE(std::ranges::equal(found.bytes, expected.bytes)) << expected.name;
    const auto address = reinterpret_cast<std::uintptr_t>(found.bytes.data());
    EXPECT_EQ(address % sizeInBytes(found.type), 0U) << expected.name;
  }
  EXPECT_EQ(file.unsignedNumber("step"), step);
}

TEST(SafetensorsTest, BytesDependOnContentOnly) {
  const TestFolder folder;
  const std::array<float, 2> values{1, 2};
  const auto bytes = std::as_bytes(std::span(values));
  std::vector<SafetensorsTensor> tensors{{"b", DataType::Float32, {2}, bytes},
                                         {"a", DataType::Float32, {2}, bytes},
                                         {"c", DataType::UInt8, {8}, bytes}};
  writeSafetensors(folder / "1", tensors, {{"z", "1"}, {"y", "2"}});
  std::reverse(tensors.begin(), tensors.end());
  writeSafetensors(folder / "2", tensors, {{"y", "2"}, {"z", "1"}});
  EXPECT_EQ(readText(folder / "1"), readText(folder / "2"));

  const SafetensorsFile file = SafetensorsFile::read(folder / "1");
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "b");
  EXPECT_EQ(file.tensors()[2].name, "c");
  // A file that is read and written again stays as it is.
  writeSafetensors(folder / "3", file.tensors(), file.metadata());
  EXPECT_EQ(readText(folder / "1"), readText(folder / "3"));
}

TEST(SafetensorsTest, FileWithoutTensors) {
  const TestFolder folder;
  writeSafetensors(folder / "a", {}, {});
  EXPECT_TRUE(SafetensorsFile::read(folder / "a").tensors().empty());
  EXPECT_TRUE(SafetensorsFile::parse(bytesOf(fileWith("{}", 0)), "x").tensors().empty());
}

TEST(SafetensorsTest, EveryDamagedByteIsNoticed) {
  const TestFolder folder;
  const std::array<float, 3> values{1, 2, 3};
  writeSafetensors(folder / "a", {{"w", DataType::Float32, {3}, std::as_bytes(std::span(values))}},
                   {{"step", "17"}});
  const std::string whole = readText(folder / "a");
  const std::string padding = whole.substr(0, whole.size() - sizeof(values));
  const std::size_t headerEnd = padding.find_last_not_of(' ');
  std::size_t noticed = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (i > headerEnd && i < padding.size()) continue;  // other white space means the same
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    try {
      const SafetensorsFile file = SafetensorsFile::parse(bytesOf(damaged), "a");
      // Only the name of the checksum is gone.
      EXPECT_EQ(damaged.find("unmetal.crc32"), std::string::npos) << "byte " << i;
      EXPECT_EQ(file.metadata("step"), "17");
      EXPECT_TRUE(std::ranges::equal(file.tensor("w").bytes, std::as_bytes(std::span(values))));
    } catch (const Error&) {
      ++noticed;
    }
  }
  EXPECT_EQ(noticed, headerEnd + 1 + sizeof(values) - std::string_view("unmetal.crc32").size());
}

TEST(SafetensorsTest, EveryTruncationIsNoticed) {
  const std::string whole = pythonFile();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(troubleIn(whole.substr(0, length)).empty()) << "length " << length;
  }
}

TEST(SafetensorsTest, DamagedDataIsNamed) {
  const TestFolder folder;
  const std::array<float, 1> values{1};
  writeSafetensors(folder / "a", {{"w", DataType::Float32, {1}, std::as_bytes(std::span(values))}}, {});
  std::string text = readText(folder / "a");
  text.back() = static_cast<char>(text.back() + 1);
  writeText(folder / "a", text);
  EXPECT_EQ(
      errorOf<Error>([&] { SafetensorsFile::read(folder / "a"); }),
      "cannot use " + (folder / "a").string() + ": it is damaged, its checksum does not fit its content");
}

TEST(SafetensorsTest, MissingFileIsNamed) {
  EXPECT_EQ(errorOf<Error>([] { SafetensorsFile::read("none/a.safetensors"); }),
            "cannot read none/a.safetensors: No such file or directory");
}

TEST(SafetensorsTest, SparseFileLargerThanAllMemory) {
  const TestFolder folder;
  const std::uint64_t dataBytes = std::uint64_t{1} << 42;
  const std::string file =
      fileWith(R"({"w":{"dtype":"U8","shape":[4398046511104],"data_offsets":[0,4398046511104]}})", 0);
  writeText(folder / "a", file);
  std::filesystem::resize_file(folder / "a", file.size() + dataBytes);
  EXPECT_EQ(errorOf<Error>([&] { SafetensorsFile::read(folder / "a"); }),
            "cannot read " + (folder / "a").string() + ": there is no memory for its 4398046511104 bytes");
}

TEST(SafetensorsTest, WrongLengths) {
  EXPECT_EQ(troubleIn(""), "it is too short");
  EXPECT_EQ(troubleIn("1234567"), "it is too short");
  EXPECT_EQ(troubleIn(std::string(8, '\xFF') + "{}"), "its header would be longer than the format allows");
  EXPECT_EQ(troubleIn(fileWith("{}  ", 0).substr(0, 11)), "it ends within its header");
}

TEST(SafetensorsTest, WrongHeaders) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "its header does not begin as JSON"},
      {" {}", "its header does not begin as JSON"},
      {"[]", "its header does not begin as JSON"},
      {"{", "the header is not JSON at its byte 2"},
      {"{} x", "the header is not JSON at its byte 4"},
      {"{\"\xFF\":1}", "the header is not JSON at its byte 3"},
      {R"({"w":1})", "the header has a number where it may not be after the name \"w\""},
      {R"({"w":[]})", "the header has an array where it may not be after the name \"w\""},
      {R"({"w":{}})", "tensor \"w\" lacks its type, shape or offsets"},
      {R"({"w":{"dtype":"U8","shape":[]}})", "tensor \"w\" lacks its type, shape or offsets"},
      {R"({"w":{"type":"U8"}})", "tensor \"w\" has the unknown field \"type\""},
      {R"({"w":{"dtype":"U8","dtype":"U8"}})", "tensor \"w\" has a field twice"},
      {R"({"w":{"dtype":"F8_E4M3"}})", "tensor \"w\" has the unsupported type \"F8_E4M3\""},
      {R"({"w":{"dtype":8}})", "the header has a number where it may not be after the name \"w\""},
      {R"({"w":{"shape":["1"]}})", "the header has a string where it may not be after the name \"w\""},
      {R"({"w":{"shape":[[1]]}})", "the header has an array where it may not be after the name \"w\""},
      {R"({"w":{"shape":[-1]}})",
       "the header has a negative number where it may not be after the name \"w\""},
      {R"({"w":{"shape":[null]}})", "the header has a null where it may not be after the name \"w\""},
      {R"({"w":{"shape":[true]}})", "the header has a truth value where it may not be after the name \"w\""},
      {R"({"w":{"shape":[1.5]}})",
       "the header has a number that is not a whole one of 64 bits where it may not be after the name \"w\""},
      {R"({"w":{"shape":[18446744073709551616]}})",
       "the header has a number that is not a whole one of 64 bits where it may not be after the name \"w\""},
      {R"({"w":{"data_offsets":[0]}})", "tensor \"w\" has not exactly two offsets"},
      {R"({"w":{"data_offsets":[0,1,2]}})", "tensor \"w\" has not exactly two offsets"},
      {R"({"__metadata__":[]})", "the header has an array where it may not be"},
      {R"({"__metadata__":{"a":1}})", "the header has a number where it may not be"},
      {R"({"__metadata__":{"a":{}}})", "the header has an object where it may not be"},
      {R"({"__metadata__":{"a":"1","a":"1"}})", "the metadata has \"a\" twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "the header has \"__metadata__\" twice"},
      {"{\"a\\nb\":1}", "the header has a number where it may not be after the name \"a?b\""},
  };
  for (const auto& [header, trouble] : cases) EXPECT_EQ(troubleIn(header, 0), trouble) << header;
  EXPECT_EQ(troubleIn(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                      1),
            "the header has \"w\" twice");
}

TEST(SafetensorsTest, DeeplyNestedHeaderStopsAtOnce) {
  EXPECT_EQ(troubleIn("{\"w\":" + std::string(1'000'000, '['), 0),
            "the header has an array where it may not be after the name \"w\"");
}

TEST(SafetensorsTest, WrongLayouts) {
  const auto oneTensor = [](std::string_view shape, std::string_view offsets) {
    return R"({"w":{"dtype":"F32","shape":[)" + std::string(shape) + R"(],"data_offsets":[)" +
           std::string(offsets) + "]}}";
  };
  EXPECT_EQ(troubleIn(oneTensor("2", "0,8"), 7), "tensor \"w\" lies outside the file");
  EXPECT_EQ(troubleIn(oneTensor("2", "8,0"), 8), "tensor \"w\" lies outside the file");
  EXPECT_EQ(troubleIn(oneTensor("2", "1,9"), 9), "there is a gap or an overlap before tensor \"w\"");
  EXPECT_EQ(troubleIn(oneTensor("2", "0,8"), 9), "it has bytes that belong to no tensor");
  EXPECT_EQ(troubleIn(oneTensor("3", "0,8"), 8), "tensor \"w\" has 8 bytes, which does not fit F32[3]");
  EXPECT_EQ(troubleIn(oneTensor("2,0", "0,8"), 8), "tensor \"w\" has 8 bytes, which does not fit F32[2, 0]");
  // 2^32 * 2^32 and 2^62 * 4 are 0 in 64 bits.
  EXPECT_EQ(troubleIn(oneTensor("4294967296,4294967296", "0,0"), 0),
            "tensor \"w\" has 0 bytes, which does not fit F32[4294967296, 4294967296]");
  EXPECT_EQ(troubleIn(oneTensor("4611686018427387904", "0,0"), 0),
            "tensor \"w\" has 0 bytes, which does not fit F32[4611686018427387904]");

  const auto twoTensors = [](std::string_view second) {
    return R"({"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
           R"("w":{"dtype":"U8","shape":[4],"data_offsets":)" +
           std::string(second) + "}}";
  };
  EXPECT_EQ(troubleIn(twoTensors("[3,7]"), 8), "there is a gap or an overlap before tensor \"w\"");
  EXPECT_EQ(troubleIn(twoTensors("[5,9]"), 9), "there is a gap or an overlap before tensor \"w\"");
  EXPECT_EQ(troubleIn(twoTensors("[0,4]"), 4), "there is a gap or an overlap before tensor \"w\"");
  EXPECT_NO_THROW(SafetensorsFile::parse(bytesOf(fileWith(twoTensors("[4,8]"), 8)), "x"));
}

TEST(SafetensorsTest, WrongUseOfARightFile) {
  const SafetensorsFile file = SafetensorsFile::parse(bytesOf(pythonFile()), "x.safetensors");
  const std::string beginning = "cannot use x.safetensors: ";
  EXPECT_EQ(errorOf<Error>([&] { file.tensor("other"); }), beginning + "it has no tensor \"other\"");
  EXPECT_EQ(errorOf<Error>([&] { file.floats("weights", Shape{4}); }),
            beginning + "tensor \"weights\" is F32[2, 2], expected F32[4]");
  EXPECT_EQ(errorOf<Error>([&] { file.floats("half", Shape{4}); }),
            beginning + "tensor \"half\" is F16[3], expected F16[4]");
  EXPECT_EQ(errorOf<Error>([&] { file.floats("step", Shape{}); }),
            beginning + "tensor \"step\" is U64[], expected F32[]");
  EXPECT_EQ(errorOf<Error>([&] { file.unsignedNumber("weights"); }),
            beginning + "tensor \"weights\" is F32[2, 2], expected U64[]");
  EXPECT_EQ(errorOf<Error>([&] { file.metadata("net"); }), beginning + "its metadata has no entry \"net\"");
}

/// A file of 6 GiB that takes no room on the disk: what it holds is known without reading it.
TEST(SafetensorsTest, AHeaderIsReadWithoutTheTensors) {
  const TestFolder folder;
  const auto path = folder / "large.safetensors";
  constexpr std::uint64_t bytes = std::uint64_t{6} << 30U;
  const std::string text = R"({"__metadata__":{"net":"x"},"w":{"dtype":"F32","shape":[1610612736],)"
                           R"("data_offsets":[0,6442450944]}})";
  writeText(path, fileWith(text, 0));
  std::filesystem::resize_file(path, sizeof(std::uint64_t) + text.size() + bytes);
  const auto header = SafetensorsHeader::read(path);
  EXPECT_EQ(header.dataLength(), bytes);
  EXPECT_EQ(header.metadata("net"), "x");
  EXPECT_EQ(header.tensor("w").shape, Shape{bytes / 4});
  EXPECT_TRUE(header.tensor("w").bytes.empty());
  EXPECT_EQ(errorOf<Error>([&] { header.tensor("w", DataType::Float32, Shape{4}); }),
            "cannot use " + path.string() + ": tensor \"w\" is F32[1610612736], expected F32[4]");
}

TEST(SafetensorsTest, TheTensorsOfAHeaderAreReadFromItsFile) {
  const TestFolder folder;
  const auto path = folder / "a.safetensors";
  writeText(path, pythonFile());
  const auto header = SafetensorsHeader::read(path);
  std::filesystem::rename(path, folder / "b.safetensors");
  writeText(path, "another file");
  for (int time = 0; time < 2; ++time) {
    const auto file = SafetensorsFile::read(header);
    EXPECT_EQ(file.unsignedNumber("step"), 7U);
    EXPECT_EQ(file.tensors().size(), 4U);
  }
  std::filesystem::resize_file(folder / "b.safetensors", pythonFile().size() - 1);
  EXPECT_EQ(errorOf<Error>([&] { SafetensorsFile::read(header); }),
            "cannot read " + path.string() + ": it became shorter while it was read");
}

TEST(SafetensorsTest, WrongContentIsNotWritten) {
  const TestFolder folder;
  writeText(folder / "a", "old");
  const std::array<float, 2> values{1, 2};
  const auto bytes = std::as_bytes(std::span(values));
  const SafetensorsTensor right{"w", DataType::Float32, {2}, bytes};
  const auto errorFor = [&](const std::vector<SafetensorsTensor>& tensors,
                            const SafetensorsMetadata& metadata) {
    return errorOf<Error>([&] { writeSafetensors(folder / "a", tensors, metadata); });
  };
  const std::string beginning = "cannot write " + (folder / "a").string() + ": ";
  EXPECT_EQ(errorFor({right, right}, {}), beginning + "tensor \"w\" has a name that is taken");
  EXPECT_EQ(errorFor({{"__metadata__", DataType::Float32, {2}, bytes}}, {}),
            beginning + "tensor \"__metadata__\" has a name that is taken");
  EXPECT_EQ(errorFor({{"w", DataType::Unorm8, {8}, bytes}}, {}),
            beginning + "tensor \"w\" has a type that the format does not have");
  EXPECT_EQ(errorFor({{"w", DataType::Float32, {3}, bytes}}, {}),
            beginning + "tensor \"w\" has 8 bytes, which does not fit F32[3]");
  EXPECT_EQ(errorFor({right}, {{"key", "\xFF"}}), beginning + "a name or the metadata is not UTF-8 text");
  EXPECT_EQ(readText(folder / "a"), "old");
}

TEST(SafetensorsTest, FullDiskLeavesTheOldFile) {
  const TestFolder folder;
  const std::vector<float> values(10'000);
  writeText(folder / "a", "old");
  const std::string error = errorOf<Error>([&] {
    const FileSizeLimit limit(20'000);
    writeSafetensors(folder / "a", {{"w", DataType::Float32, {10'000}, std::as_bytes(std::span(values))}},
                     {});
  });
  EXPECT_EQ(error, "cannot write " + (folder / "a").string() + ": File too large");
  EXPECT_EQ(readText(folder / "a"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace mps::safetensors_test
