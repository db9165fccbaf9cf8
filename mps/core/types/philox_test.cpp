#include "mps/core/types/philox.hpp"

#include <gtest/gtest.h>

namespace mps::detail::philox_test {
namespace {

TEST(Philox, CounterAndKeyZero) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, CounterAndKeyAllOnes) {
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, CounterAndKeyDigitsOfPi) {
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, MatrixRandomBlocksInTheLastCounterWord) {
  EXPECT_EQ(philox({0, 0, 0, 1}, philoxKey(0)),
            (PhiloxCounter{0x2dce73e5, 0x1348e23f, 0xfcf8e0ec, 0xa287aadb}));
  EXPECT_EQ(philox({0, 0, 0, 0}, philoxKey(1)),
            (PhiloxCounter{0xe3e80670, 0xe50a0ebc, 0x95f222c0, 0xb615aa27}));
  EXPECT_EQ(philox({0, 0, 0, 1}, philoxKey(1)),
            (PhiloxCounter{0x127bee41, 0x1e047488, 0x48842b20, 0x0a393496}));
  EXPECT_EQ(philox({0, 0, 0, 0}, philoxKey(2)),
            (PhiloxCounter{0x6cea1ec5, 0x7f4dbfff, 0xf99450e5, 0x664593ce}));
}

TEST(Philox, SeedFillsBothKeyWords) {
  EXPECT_EQ(philoxKey(0x0123456789abcdefULL), (PhiloxKey{0x89abcdef, 0x01234567}));
}

}  // namespace
}  // namespace mps::detail::philox_test
