#include "train/network/evaluation.hpp"

namespace unmetal::train {
namespace {

double part(double count, double of) {
  return of == 0 ? 0 : count / of;
}

}  // namespace

std::vector<ClassScores> Evaluation::classScores() const {
  std::vector<ClassScores> scores(classCount);
  std::vector<std::size_t> taken(classCount);
  std::vector<std::size_t> right(classCount);
  for (const auto& [classes, pictures] : confusion) {
    scores[classes.first].count += pictures;
    taken[classes.second] += pictures;
    if (classes.first == classes.second) right[classes.first] = pictures;
  }
  for (std::size_t i = 0; i < classCount; ++i) {
    const auto hits = static_cast<double>(right[i]);
    scores[i].precision = part(hits, static_cast<double>(taken[i]));
    scores[i].recall = part(hits, static_cast<double>(scores[i].count));
    scores[i].f1 = part(2 * scores[i].precision * scores[i].recall, scores[i].precision + scores[i].recall);
  }
  return scores;
}

double Evaluation::macroF1() const {
  double sum = 0;
  for (const ClassScores& scores : classScores()) sum += scores.f1;
  return part(sum, static_cast<double>(classCount));
}

}  // namespace unmetal::train
