#include "mps/conform/conform.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "mps/conform/conform_report.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

/// The harness, tried on a kernel made for it: destination = 2 * source + 1, right and with planted faults.
namespace mps::detail::conform_test {
namespace {

using Format = ImageFeatureChannelFormat;

struct AffineProblem {
  TensorShape source;
  TensorShape destination;
};

enum class Fault { None, WrongBound, WrongScale, WritesSource, WritesGap, WritesScratchEnd, Throws };

/// An address sanitizer would stop where a guard is written.
[[gnu::no_sanitize_address]] void storeZero(std::byte* place) {
  *place = std::byte{0};
}

template <Fault fault>
class AffinePlan final : public Plan {
 public:
  explicit AffinePlan(const AffineProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return 8; }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (fault == Fault::Throws) throw Error("planted");
    std::vector<double> values = readTensor(problem_.source, operands.source);
    for (double& value : values) value = (fault == Fault::WrongScale ? 3 : 2) * value + 1;
    TensorShape written = problem_.destination;
    if (fault == Fault::WrongBound) {
      --written.width;
      values.resize(static_cast<std::size_t>(written.elements()));
    }
    writeTensor(written, operands.destination, values);
    const auto last = static_cast<std::ptrdiff_t>(extentInBytes(problem_.destination));
    if (fault == Fault::WritesGap) storeZero(operands.destination + last);
    if (fault == Fault::WritesScratchEnd) storeZero(operands.scratch + 8);
    if (fault == Fault::WritesSource) const_cast<std::byte*>(operands.source)[0] = std::byte{0x55};
    EXPECT_GE(mtl::cpu::asCpu(stream).threadCount(), 1);
  }

 private:
  AffineProblem problem_;
};

template <Fault fault>
Preparation prepareAffine(const AffineProblem& problem) {
  return std::make_shared<AffinePlan<fault>>(problem);
}
Preparation refuseAll(const AffineProblem&) {
  return Refusal{"it is Monday"};
}
Preparation refuseNarrow(const AffineProblem& problem) {
  if (problem.source.width < 4) return Refusal{"too narrow"};
  return prepareAffine<Fault::None>(problem);
}

struct AffineCase {
  const char* name;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;
};
const std::vector<AffineCase> affineCases{{"small", 3, 3, 5}, {"wide", 7, 40, 4}, {"one pixel", 1, 1, 1}};

ReferenceTensor affineReference(const ReferenceTensor& source) {
  ReferenceTensor result = source;
  for (double& value : result.values) value = 2 * value + 1;
  return result;
}

ConformOptions options() {
  ConformOptions result;
  result.device = mtl::createSystemDefaultDevice();
  result.casesPerRow = 12;
  result.elementsPerRow = 5000;
  return result;
}

void affineRow(Conform& conform, const Implementation<AffineProblem>& implementation,
               Format format = Format::Float32) {
  conform.row({"Affine", Direction::Forward, format, std::string(implementation.name), Tier::Exact},
              affineCases, [&](const AffineCase& c, ConformRun& run) {
                const AffineProblem problem{TensorShape::dense(2, c.height, c.width, c.channels, format),
                                            TensorShape::dense(2, c.height, c.width, c.channels, format)};
                const auto plan = run.prepare(implementation, problem);
                if (!plan) return;
                TestTensor source = run.source(problem.source, RandomKind::SmallIntegers);
                TestTensor destination = run.destination(problem.destination);
                run.execute(*plan, {.source = source.address(), .destination = destination.address()});
                run.check(affineReference(source.reference()), destination);
                run.require(source.isUnchanged(), "the source was written");
              });
}

TEST(Conform, ARowHasEnoughCasesAndElementsAndPasses) {
  for (const Format format : {Format::Float16, Format::Float32}) {
    Conform conform(options());
    affineRow(conform, {"right", prepareAffine<Fault::None>}, format);
    ASSERT_EQ(conform.rows().size(), 1U);
    const ConformRow& row = conform.rows()[0];
    EXPECT_TRUE(row.passed) << row.report;
    EXPECT_GE(row.cases, 12);
    EXPECT_GE(row.elements, 5000);
    EXPECT_EQ(row.worst, 0);
    EXPECT_EQ(row.device, "cpu");
    EXPECT_EQ(conform.passedCount(), 1);
  }
}

TEST(Conform, ASampleHasOnlySoManyCasesEachAnotherOne) {
  for (const std::int64_t mostCases : {1, 2, 3, 4}) {
    ConformOptions sampling = options();
    sampling.mostCases = mostCases;
    Conform conform(sampling);
    std::set<std::string> names;
    conform.row({"Affine", Direction::Forward, Format::Float32, "right", Tier::Exact}, affineCases,
                [&](const AffineCase& c, ConformRun& run) {
                  EXPECT_TRUE(names.insert(c.name).second) << c.name;
                  run.require(true, "never");
                });
    ASSERT_EQ(conform.rows().size(), 1U);
    EXPECT_TRUE(conform.rows()[0].passed) << conform.rows()[0].report;
    EXPECT_EQ(conform.rows()[0].cases, std::min<std::int64_t>(mostCases, 3));
    EXPECT_EQ(names.size(), static_cast<std::size_t>(std::min<std::int64_t>(mostCases, 3)));
  }
}

TEST(Conform, CasesRunOnceMoreWithNonTemporalStores) {
  ConformOptions few = options();
  few.elementsPerRow = 0;
  Conform conform(few);
  std::map<std::string, int> nonTemporal;
  conform.row({"Affine", Direction::Forward, Format::Float32, "counts", Tier::Exact}, affineCases,
              [&](const AffineCase& c, ConformRun& run) {
                if (usesNonTemporalStores(1)) ++nonTemporal[c.name];
                run.require(true, "never");
              });
  EXPECT_EQ(nonTemporal.size(), affineCases.size()) << "each in one round or another";
  EXPECT_EQ(conform.rows()[0].cases, 12) << "it counts once";
  conform.row(
      {"Affine", Direction::Forward, Format::Float32, "wrong", Tier::Exact}, affineCases,
      [](const AffineCase&, ConformRun& run) { run.require(!usesNonTemporalStores(1), "a line is lost"); });
  EXPECT_FALSE(conform.rows()[1].passed);
  EXPECT_NE(conform.rows()[1].report.find("non-temporal stores: a line is lost"), std::string::npos);
}

TEST(Conform, EveryPlantedFaultFailsTheRowAndIsReported) {
  const std::vector<std::pair<Implementation<AffineProblem>, std::string>> faults{
      {{"bound", prepareAffine<Fault::WrongBound>}, "elements differ"},
      {{"scale", prepareAffine<Fault::WrongScale>}, "elements differ"},
      {{"source", prepareAffine<Fault::WritesSource>}, "the source was written"},
      {{"gap", prepareAffine<Fault::WritesGap>}, "around the destination"},
      {{"scratch", prepareAffine<Fault::WritesScratchEnd>}, "scratch memory"},
      {{"throws", prepareAffine<Fault::Throws>}, "planted"}};
  for (const auto& [implementation, report] : faults) {
    Conform conform(options());
    affineRow(conform, implementation);
    ASSERT_EQ(conform.rows().size(), 1U) << implementation.name;
    EXPECT_FALSE(conform.rows()[0].passed) << implementation.name;
    EXPECT_NE(conform.rows()[0].report.find(report), std::string::npos) << conform.rows()[0].report;
    EXPECT_NE(conform.rows()[0].report.find("case \"small\", round 0"), std::string::npos);
    EXPECT_EQ(conform.failedCount(), 1);
  }
}

TEST(Conform, RefusedCasesDoNotCount) {
  Conform conform(options());
  affineRow(conform, {"never", refuseAll});
  EXPECT_TRUE(conform.rows().empty());
  affineRow(conform, {"wide only", refuseNarrow});
  ASSERT_EQ(conform.rows().size(), 1U);
  EXPECT_TRUE(conform.rows()[0].passed);
  EXPECT_EQ(conform.rows()[0].elements, conform.rows()[0].cases * 2 * 7 * 40 * 4);
  EXPECT_EQ(conform.rows()[0].refused, 2 * conform.rows()[0].cases);
  EXPECT_NE(conformLine(conform.rows()[0]).find("cases refused"), std::string::npos);
}

TEST(Conform, ACaseWithoutAVerdictFails) {
  Conform conform(options());
  conform.row({"Idle", Direction::Gradient, Format::Float32, "idle", Tier::Exact}, affineCases,
              [](const AffineCase&, ConformRun&) {});
  ASSERT_EQ(conform.rows().size(), 1U);
  EXPECT_NE(conform.rows()[0].report.find("checks nothing"), std::string::npos);
}

TEST(Conform, AFailureIsNotHiddenByARefusal) {
  Conform conform(options());
  conform.row({"Both", Direction::Gradient, Format::Float32, "both", Tier::Exact}, affineCases,
              [](const AffineCase&, ConformRun& run) {
                run.require(false, "wrong");
                run.refuse("no");
              });
  ASSERT_EQ(conform.rows().size(), 1U);
  EXPECT_FALSE(conform.rows()[0].passed);
}

TEST(Conform, TooFewElementsFail) {
  Conform conform(options());
  conform.row({"Empty", Direction::Forward, Format::Float32, "x", Tier::Exact}, std::vector<AffineCase>{},
              [](const AffineCase&, ConformRun&) {});
  ASSERT_EQ(conform.rows().size(), 1U);
  EXPECT_NE(conform.rows()[0].report.find("only 0 cases"), std::string::npos);
}

TEST(Conform, TheFilterLooksAtAllWordsOfTheKey) {
  for (const char* filter : {"", "affine", "FORWARD float32", "right exact", "exact forward  affine "}) {
    ConformOptions filtered = options();
    filtered.filter = filter;
    Conform conform(filtered);
    affineRow(conform, {"right", prepareAffine<Fault::None>});
    EXPECT_EQ(conform.rows().size(), 1U) << filter;
  }
  for (const char* filter : {"float16", "affine float16", "rightexact"}) {
    ConformOptions filtered = options();
    filtered.filter = filter;
    Conform conform(filtered);
    affineRow(conform, {"right", prepareAffine<Fault::None>});
    EXPECT_TRUE(conform.rows().empty()) << filter;
  }
}

TEST(Conform, RowsWithOneOfTheWordsAreLeftOut) {
  for (const auto& [without, count] : std::vector<std::pair<std::vector<std::string>, std::size_t>>{
           {{"wrong", "float16", "right gradient"}, 1}, {{"wrong", "RIGHT"}, 0}}) {
    ConformOptions filtered = options();
    filtered.without = without;
    Conform conform(filtered);
    affineRow(conform, {"right", prepareAffine<Fault::None>});
    EXPECT_EQ(conform.rows().size(), count) << without.back();
  }
}

TEST(Conform, ValuesDependOnSeedRowRoundAndCaseAlone) {
  const auto firstValues = [](std::uint64_t seed, const std::string& kernel) {
    ConformOptions seeded = options();
    seeded.seed = seed;
    std::vector<std::vector<double>> all;
    Conform conform(seeded);
    conform.row({kernel, Direction::Forward, Format::Float32, "x", Tier::Exact}, affineCases,
                [&](const AffineCase&, ConformRun& run) {
                  const auto values = run.values(1000, RandomKind::Uniform);
                  EXPECT_NE(values, run.values(1000, RandomKind::Uniform));
                  EXPECT_EQ(std::count(all.begin(), all.end(), values), 0);
                  all.push_back(values);
                  ReferenceTensor expected(1, 1, 1, 1000);
                  expected.values = values;
                  run.check(expected, values, Format::Float32);
                });
    return all;
  };
  const auto values = firstValues(1, "A");
  EXPECT_EQ(values, firstValues(1, "A"));
  EXPECT_NE(values, firstValues(2, "A"));
  EXPECT_NE(values, firstValues(1, "B"));
}

TEST(Conform, EncodeForcesTheImplementationAndTellsRefusalFromFailure) {
  Conform conform(options());
  conform.row({"Encoded", Direction::Forward, Format::Float32, "forced", Tier::Exact}, affineCases,
              [](const AffineCase& c, ConformRun& run) {
                const std::string_view name = c.name;
                const bool accepted = run.encode([&](const auto&) {
                  EXPECT_EQ(forcedImplementation(), "forced");
                  if (name == "wide") throwNoImplementation("encoded", "\n  forced: too wide");
                  if (name == "one pixel") throw Error("encode failed");
                });
                EXPECT_EQ(accepted, name == "small");
                run.require(true, "");
              });
  ASSERT_EQ(conform.rows().size(), 1U);
  EXPECT_NE(conform.rows()[0].report.find("case \"one pixel\", round 0: encode failed"), std::string::npos)
      << conform.rows()[0].report;
}

TEST(Conform, ANameThatNoListHasIsNoRefusal) {
  Conform conform(options());
  conform.row({"Encoded", Direction::Forward, Format::Float32, "forced", Tier::Exact}, affineCases,
              [](const AffineCase&, ConformRun& run) {
                run.encode([](const auto&) { throwNoImplementation("copy of a batch", ""); });
              });
  ASSERT_EQ(conform.rows().size(), 1U);
  EXPECT_NE(conform.rows()[0].report.find("copy of a batch"), std::string::npos) << conform.rows()[0].report;
}

TEST(ConformReport, JsonHasTheDocumentedFields) {
  Conform conform(options());
  affineRow(conform, {"right", prepareAffine<Fault::None>});
  affineRow(conform, {"scale", prepareAffine<Fault::WrongScale>});
  EXPECT_EQ(conformSummary(conform.rows()), "1 passed, 1 failed");
  const auto json = nlohmann::json::parse(conformJson(conform.rows()));
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["kernel"], "Affine");
  EXPECT_EQ(json[0]["direction"], "forward");
  EXPECT_EQ(json[0]["format"], "float32");
  EXPECT_EQ(json[0]["implementation"], "right");
  EXPECT_EQ(json[0]["device"], "cpu");
  EXPECT_EQ(json[0]["tier"], "exact");
  EXPECT_GE(json[0]["cases"].get<int>(), 12);
  EXPECT_GE(json[0]["elements"].get<int>(), 5000);
  EXPECT_EQ(json[0]["worst"].get<double>(), 0);
  EXPECT_EQ(json[0]["seed"].get<int>(), 1);
  EXPECT_TRUE(json[0]["passed"].get<bool>());
  EXPECT_FALSE(json[1]["passed"].get<bool>());
  EXPECT_GT(json[1]["worst"].get<double>(), 1);
  EXPECT_NE(conformLine(conform.rows()[0]).find("passed"), std::string::npos);
  EXPECT_NE(conformLine(conform.rows()[1]).find("FAILED"), std::string::npos);
}

TEST(TestImages, EveryFormHoldsWhatWasWritten) {
  const auto device = mtl::createSystemDefaultDevice();
  for (const Format format : {Format::Unorm8, Format::Unorm16, Format::Float16, Format::Float32})
    for (const std::size_t channels : {1U, 4U, 5U}) {
      std::vector<BatchForm> forms(batchForms().begin(), batchForms().end());
      forms.push_back(BatchForm::StackedImage);
      for (const BatchForm form : forms) {
        TestImages images(device, form, {format, 5, 3, channels}, 3);
        const auto values = randomValues(3 * 5 * 3 * channels, 9, RandomKind::ZeroOrOne);
        images.write(values);
        EXPECT_EQ(images.read(), values);
        EXPECT_EQ(images.reference().values, values);
        EXPECT_TRUE(images.isUnchanged());
        EXPECT_EQ(images.batch().count(), 3U);
        if (form == BatchForm::StackedImage)
          EXPECT_EQ(images.image()->numberOfImages(), 3U);
        else
          EXPECT_THROW(static_cast<void>(images.image()), Error);
        images.poison();
        const bool hasNan = format == Format::Float16 || format == Format::Float32;
        for (const double value : images.read()) EXPECT_EQ(std::isnan(value), hasNan);
      }
    }
}

TEST(TestImages, NeighboursAreWatched) {
  const auto device = mtl::createSystemDefaultDevice();
  const std::vector<std::byte> pixel(4 * 4, std::byte{1});
  TestImages range(device, BatchForm::ChannelRange, {Format::Float32, 1, 1, 4}, 2);
  const auto parent = range.batch()[1]->parent();
  ASSERT_NE(parent, nullptr);
  ASSERT_EQ(parent->featureChannels(), 12U);
  parent->writeBytes(std::span<const std::byte>(pixel), DataLayout::HeightxWidthxFeatureChannels, {},
                     {{0, 0, 0}, {1, 1, 1}}, {4, 4});
  EXPECT_TRUE(range.surroundingsIntact());
  EXPECT_FALSE(range.isUnchanged());
  for (const std::size_t channel : {0U, 8U}) {
    range.poison();
    EXPECT_TRUE(range.surroundingsIntact());
    parent->writeBytes(std::span<const std::byte>(pixel), DataLayout::HeightxWidthxFeatureChannels, {},
                       {{0, 0, 0}, {1, 1, 1}}, {channel, 4});
    EXPECT_FALSE(range.surroundingsIntact());
  }
}

}  // namespace
}  // namespace mps::detail::conform_test
