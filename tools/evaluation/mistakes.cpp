#include "tools/evaluation/mistakes.hpp"

#include "mps/weights/atomic_file.hpp"
#include "tools/evaluation/confusion_drawing.hpp"

namespace unmetal {

void drawMistakes(const std::filesystem::path& folder, const std::string& title,
                  const ConfusionMatrix& matrix, const WorstPictures& worst, const train::Dataset& data) {
  mps::writeFile(folder / confusionName, drawConfusion(title, matrix));
  mps::writeFile(folder / worstName, drawWorstPictures(title, worst, data));
}

}  // namespace unmetal
