#include "fuzz/random_calls/comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace unmetal::random_calls {
namespace comparison_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Bytes bytesOf(ElementFormat format, const std::vector<float>& values) {
  Bytes bytes(values.size() * bytesPerElement(format));
  for (std::size_t i = 0; i < values.size(); ++i)
    store(format, bytes.data() + i * bytesPerElement(format), values[i]);
  return bytes;
}

Observation result(const std::vector<float>& values, const Tolerance& tolerance = {},
                   ElementFormat format = ElementFormat::Float32) {
  Observation observation;
  observation.name = "result";
  observation.format = format;
  observation.tolerance = tolerance;
  observation.after = bytesOf(format, values);
  return observation;
}

/// A call on no device, with a result.
Call callWith(const Observation& observation) {
  Call call(nullptr, nullptr, 1, {});
  call.observe(observation);
  return call;
}

std::vector<std::string> compared(const Observation& first, const Observation& second) {
  return differences(callWith(first), callWith(second), Words::Compared);
}

TEST(Comparison, NamesOneValueThatIsOff) {
  EXPECT_THAT(compared(result({1, 2, 3}), result({1, 2, 3})), IsEmpty());
  EXPECT_THAT(compared(result({1, 2, 3}), result({1, 2.5, 3})),
              ElementsAre(AllOf(HasSubstr("VALUES of result: 1 of 3"), HasSubstr("first 1: 2 and 2.5"),
                                HasSubstr("worst by 0.5"))));
}

TEST(Comparison, AllowsMoreThanRoundingsNowhere) {
  const float allowed = 1e-4F;  // of the largest number, which is 1
  EXPECT_THAT(compared(result({1, 0}), result({1, 0.9F * allowed})), IsEmpty());
  EXPECT_EQ(compared(result({1, 0}), result({1, 1.1F * allowed})).size(), 1U);
  EXPECT_EQ(compared(result({0, 0}), result({0, 0.11F * allowed})).size(), 1U) << "the least scale is 0.1";
  EXPECT_THAT(compared(result({1, 0}, {.factor = 2}), result({1, 1.1F * allowed})), IsEmpty());
  EXPECT_EQ(compared(result({1, 0}, {.isExact = true}), result({1, 1e-30F})).size(), 1U);
}

TEST(Comparison, AllowsAUnitOfAnIntermediateFormat) {
  const float unit = 0x1p-10F;  // float16's from 1 to 2
  EXPECT_EQ(compared(result({1, 0}), result({1, unit})).size(), 1U);
  const Tolerance tolerance{.intermediate = ElementFormat::Float16};
  EXPECT_THAT(compared(result({1, 0}, tolerance), result({1, unit})), IsEmpty());
  EXPECT_EQ(compared(result({1, 0}, tolerance), result({1, 3 * unit})).size(), 1U);

  const auto bytes = [](float second, const Tolerance& allowed) {
    return result({1, second / 255}, allowed, ElementFormat::UInt8);
  };
  EXPECT_EQ(compared(bytes(7, {}), bytes(8, {})).size(), 1U);
  EXPECT_THAT(compared(bytes(7, tolerance), bytes(8, tolerance)), IsEmpty());
  EXPECT_EQ(compared(bytes(7, tolerance), bytes(9, tolerance)).size(), 1U);
}

TEST(Comparison, AllowsAShareOfJumps) {
  std::vector<float> values(1000, 1);
  std::vector<float> others = values;
  others[3] = others[4] = others[5] = 7;
  const Tolerance tolerance{.jumps = 0.002};
  EXPECT_THAT(compared(result(values, tolerance), result(others)), IsEmpty());
  others[6] = 7;
  EXPECT_EQ(compared(result(values, tolerance), result(others)).size(), 1U);
}

TEST(Comparison, NotFiniteIsNotEqualToANumber) {
  EXPECT_THAT(compared(result({kNaN, kInfinity}), result({-kNaN, kInfinity})), IsEmpty());
  for (const auto& [first, second] : {std::pair{kNaN, 2.0F}, std::pair{kNaN, kInfinity},
                                      std::pair{kInfinity, 2.0F}, std::pair{kInfinity, -kInfinity}}) {
    EXPECT_EQ(compared(result({0, first}), result({0, second})).size(), 1U) << first << ' ' << second;
    EXPECT_EQ(compared(result({0, second}), result({0, first})).size(), 1U) << first << ' ' << second;
  }
}

TEST(Comparison, NamesElementsThatOneDeviceAloneWrote) {
  for (const ElementFormat format : {ElementFormat::Float32, ElementFormat::Float16}) {
    Observation first = result({1, 2}, {}, format);
    first.before.resize(first.after.size());
    fillWithSentinel(format, first.before);
    Observation second = first;
    EXPECT_THAT(compared(first, second), IsEmpty());
    const auto middle = static_cast<std::ptrdiff_t>(bytesPerElement(format));
    std::copy(second.before.begin() + middle, second.before.end(), second.after.begin() + middle);
    EXPECT_THAT(compared(first, second),
                ElementsAre(HasSubstr("WRITTEN by one device alone of result: 1 of 2")));
  }
}

TEST(Comparison, NamesASourceThatWasWritten) {
  Observation untouched = result({1, 2});
  untouched.role = Role::Source;
  untouched.before = untouched.after;
  Observation written = untouched;
  written.after = result({1, 3}).after;
  EXPECT_THAT(compared(untouched, untouched), IsEmpty());
  EXPECT_THAT(compared(written, untouched), ElementsAre(HasSubstr("first device WROTE its source result")));
  EXPECT_THAT(compared(untouched, written), ElementsAre(HasSubstr("second device WROTE its source result")));
}

TEST(Comparison, NamesOtherSizesAndNumbersOfResults) {
  EXPECT_THAT(compared(result({1, 2}), result({1})),
              ElementsAre(HasSubstr("SIZES of result in bytes: 8 and 4")));
  Call more = callWith(result({1}));
  more.observe(result({1}));
  EXPECT_THAT(differences(more, callWith(result({1})), Words::Compared),
              ElementsAre(HasSubstr("RESULTS are more on one device")));
  Call described = callWith(result({1}));
  described.noted("width", 5);
  EXPECT_THAT(differences(callWith(result({1})), described, Words::Compared),
              ElementsAre(HasSubstr("width=5")));
}

TEST(Comparison, NamesExceptionsThatDiffer) {
  const auto threw = [](const char* type, const char* words) {
    Call call = callWith(result({1}));
    call.errorType = type;
    call.error = words;
    return call;
  };
  const auto compare = [](const Call& first, const Call& second, Words words = Words::Compared) {
    return differences(first, second, words);
  };
  EXPECT_THAT(compare(threw("Error", "a"), threw("Error", "a")), IsEmpty());
  EXPECT_THAT(compare(threw("Error", "a"), threw("", "")),
              ElementsAre(HasSubstr("EXCEPTIONS: \"a\" (setup) and none")));
  EXPECT_THAT(compare(threw("Error", "a"), threw("Other", "a")), ElementsAre(HasSubstr("EXCEPTIONS")));
  EXPECT_THAT(compare(threw("Error", "a"), threw("Error", "b")),
              ElementsAre(HasSubstr("WORDS of exceptions")));
  EXPECT_THAT(compare(threw("Error", "a"), threw("Error", "b"), Words::Ignored), IsEmpty());
}

}  // namespace comparison_test
}  // namespace unmetal::random_calls
