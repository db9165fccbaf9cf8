#include "mtl/cpu/processors.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace mtl::cpu::processors_test {
namespace {

/// A folder that stands for /sys/fs/cgroup.
class ControlGroups : public testing::Test {
 protected:
  ~ControlGroups() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  [[nodiscard]] std::optional<int> processors(const std::string& membership) const {
    return controlGroupProcessors(membership, root_);
  }

 private:
  static std::filesystem::path makeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "unmetal-cgroup-XXXXXX").string();
    return mkdtemp(name.data());
  }
  std::filesystem::path root_ = makeRoot();
};

TEST_F(ControlGroups, Version2) {
  EXPECT_EQ(processors("0::/job\n"), std::nullopt) << "no such folder";
  write("cpu.max", "max 100000\n");
  EXPECT_EQ(processors("0::/\n"), std::nullopt);
  write("job/cpu.max", "250000 100000\n");
  EXPECT_EQ(processors("0::/job\n"), 3) << "two and a half";
  EXPECT_EQ(processors("0::/job/step\n"), 3) << "of a parent";
  write("job/step/cpu.max", "100000 100000\n");
  EXPECT_EQ(processors("0::/job/step\n"), 1) << "the least counts";
  EXPECT_EQ(processors("0::/../elsewhere\n"), std::nullopt);
  write("job/cpu.max", "nonsense");
  EXPECT_EQ(processors("0::/job\n"), std::nullopt);
  EXPECT_EQ(processors(""), std::nullopt);
  EXPECT_EQ(processors("no colon\n"), std::nullopt);
}

TEST_F(ControlGroups, Version1) {
  write("cpu/docker/7/cpu.cfs_quota_us", "400000\n");
  write("cpu/docker/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors("5:memory:/docker/7\n4:cpu,cpuacct:/docker/7\n"), 4);
  EXPECT_EQ(processors("5:cpuset:/docker/7\n"), std::nullopt) << "another controller";
  write("cpu/docker/7/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(processors("4:cpu,cpuacct:/docker/7\n"), std::nullopt) << "no limit";
}

TEST_F(ControlGroups, InAContainerTheRootCounts) {
  write("cpu.max", "200000 100000\n");
  EXPECT_EQ(processors("0::/system.slice/docker-7.scope\n"), 2);
}

int count(int affinity, std::optional<int> controlGroup, const char* numThreads = "",
          const char* limit = "") {
  return threadCountFor({.affinity = affinity,
                         .controlGroup = controlGroup,
                         .ompNumThreads = numThreads,
                         .ompThreadLimit = limit});
}

TEST(ThreadCount, TheFewerOfProcessorsAndControlGroupUnlessAUserSays) {
  EXPECT_EQ(count(8, std::nullopt), 8);
  EXPECT_EQ(count(8, 3), 3);
  EXPECT_EQ(count(2, 3), 2);
  EXPECT_EQ(count(8, 3, "5"), 5);
  EXPECT_EQ(count(8, std::nullopt, " 4,2"), 4) << "the outermost level";
  for (const char* const ignored : {"0", "-2", "many", "99999999999"})
    EXPECT_EQ(count(8, std::nullopt, ignored), 8) << ignored;
  EXPECT_EQ(count(8, std::nullopt, "", "2"), 2);
  EXPECT_EQ(count(8, std::nullopt, "6", "4"), 4);
  EXPECT_EQ(count(8, std::nullopt, "", "16"), 8);
}

TEST(ThreadCount, IsPositive) {
  EXPECT_GE(defaultThreadCount(), 1);
}

}  // namespace
}  // namespace mtl::cpu::processors_test
