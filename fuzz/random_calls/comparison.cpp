#include "fuzz/random_calls/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace unmetal::random_calls {
namespace {

/// Two roundings of float16 are 2^-10 of the largest number. Kernels compute in float32 between them, over sums of hundreds
/// of numbers in any order: some hundred roundings of 2^-24, and several times that where a GPU's library splits them.
double relativeTolerance(ElementFormat format) {
  if (format == ElementFormat::Float16) return 2e-3;
  return format == ElementFormat::Float32 ? 1e-4 : 0;
}

class Pair {
 public:
  Pair(const Observation& first, const Observation& second)
      : first_(first),
        second_(second),
        step_(bytesPerElement(first.format)),
        count_(first.after.size() / step_),
        allowed_(allowedDifference()) {}

  /// Counts what differs.
  void compare();
  void describe(std::vector<std::string>& sentences) const;

 private:
  /// Elements of one kind of difference.
  struct Found {
    std::size_t count = 0;
    std::size_t first = 0;
    double worst = 0;
    void add(std::size_t element, double difference);
  };

  [[nodiscard]] double allowedDifference() const;
  [[nodiscard]] bool isUntouched(const Observation& observation, std::size_t element) const;
  void compareElement(std::size_t element);
  [[nodiscard]] double value(const Observation& observation, std::size_t element) const {
    return valueOf(observation.format, observation.after.data() + element * step_);
  }
  [[nodiscard]] std::string sentence(const std::string& what, const Found& found) const;

  const Observation& first_;
  const Observation& second_;
  std::size_t step_;
  std::size_t count_;
  double allowed_;
  Found writtenByOne_;
  Found values_;
};

void Pair::Found::add(std::size_t element, double difference) {
  if (count++ == 0) first = element;
  // An infinity or NaN beside a number is worse than any number.
  worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
}

double Pair::allowedDifference() const {
  const Tolerance& tolerance = first_.tolerance;
  if (tolerance.isExact) return 0;
  double scale = tolerance.leastScale;
  for (std::size_t i = 0; i < count_; ++i)
    for (const Observation* observation : {&first_, &second_})
      if (const double size = std::abs(value(*observation, i)); std::isfinite(size))
        scale = std::max(scale, size);
  const double relative = std::max(relativeTolerance(first_.format),
                                   tolerance.intermediate ? relativeTolerance(*tolerance.intermediate) : 0);
  if (isFloat(first_.format)) return relative * tolerance.factor * scale;
  // The last place of such a number decides between neighbours.
  return tolerance.intermediate ? 1 : 0;
}

bool Pair::isUntouched(const Observation& observation, std::size_t element) const {
  const std::size_t at = element * step_;
  return std::memcmp(observation.after.data() + at, observation.before.data() + at, step_) == 0;
}

void Pair::compareElement(std::size_t element) {
  const std::size_t at = element * step_;
  if (std::memcmp(first_.after.data() + at, second_.after.data() + at, step_) == 0) return;
  const bool hadSentinels = first_.role == Role::Result && first_.before.size() == first_.after.size();
  if (hadSentinels && showsWrites(first_.format) &&
      isUntouched(first_, element) != isUntouched(second_, element))
    return writtenByOne_.add(element, 0);
  const double one = value(first_, element);
  const double other = value(second_, element);
  if (std::isnan(one) && std::isnan(other) && !first_.tolerance.isExact) return;
  const double difference = std::abs(one - other);
  if (first_.tolerance.isExact || !(difference <= allowed_)) values_.add(element, difference);
}

void Pair::compare() {
  for (std::size_t i = 0; i < count_; ++i) compareElement(i);
}

std::string Pair::sentence(const std::string& what, const Found& found) const {
  std::ostringstream text;
  text.precision(9);
  text << what << " of " << first_.name << ": " << found.count << " of " << count_ << " elements, first "
       << found.first << ": " << value(first_, found.first) << " and " << value(second_, found.first);
  return text.str();
}

void Pair::describe(std::vector<std::string>& sentences) const {
  if (writtenByOne_.count > 0) sentences.push_back(sentence("WRITTEN by one device alone", writtenByOne_));
  const double jumps = first_.tolerance.jumps;
  // One element of a small tensor is a large share of it.
  const double many = jumps > 0 ? 1 + jumps * static_cast<double>(count_) : 0;
  if (static_cast<double>(values_.count) <= many) return;
  std::ostringstream text;
  text << sentence("VALUES", values_) << ", worst by " << values_.worst << ", allowed " << allowed_;
  sentences.push_back(text.str());
}

void compareObservations(const Observation& first, const Observation& second,
                         std::vector<std::string>& sentences) {
  const Observation* const both[] = {&first, &second};
  for (const Observation* observation : both)
    if (observation->role == Role::Source && observation->after != observation->before)
      sentences.push_back(std::string(observation == &first ? "The first" : "The second") +
                          " device WROTE its source " + observation->name);
  if (first.role == Role::Source) return;
  if (first.after.size() != second.after.size()) {
    sentences.push_back("SIZES of " + first.name + " in bytes: " + std::to_string(first.after.size()) +
                        " and " + std::to_string(second.after.size()));
    return;
  }
  Pair pair(first, second);
  pair.compare();
  pair.describe(sentences);
}

std::string describeException(const Call& call) {
  return call.error.empty() ? "none" : "\"" + call.error + "\" (" + call.stage + ")";
}

}  // namespace

std::vector<std::string> differences(const Call& first, const Call& second, Words words) {
  const std::string exceptions = describeException(first) + " and " + describeException(second);
  if (first.errorType != second.errorType) return {"EXCEPTIONS: " + exceptions};
  std::vector<std::string> sentences;
  if (words == Words::Compared && (first.error != second.error || first.stage != second.stage))
    sentences.push_back("WORDS of exceptions: " + exceptions);
  // Sizes of images that kernels make are part of it.
  if (first.error.empty() && first.description.str() != second.description.str())
    sentences.push_back("RESULTS are other ones: the second device has" + second.description.str());
  if (first.observations.size() != second.observations.size()) {
    sentences.emplace_back("RESULTS are more on one device");
    return sentences;
  }
  for (std::size_t i = 0; i < first.observations.size(); ++i)
    compareObservations(first.observations[i], second.observations[i], sentences);
  return sentences;
}

}  // namespace unmetal::random_calls
