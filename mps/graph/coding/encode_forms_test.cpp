#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/yolo_loss.hpp"
#include "mps/upsampling/crop_and_resize.hpp"

/// Every kernel gives the same bits in every form of encode: into a given destination or a returned one, alone or as a
/// batch, with a state or without (docs/decisions.md, D3 and D9).
namespace mps::encode_forms_test {
namespace {

using test::Bytes;
using test::channels;
using test::image;
using test::KernelSample;
using test::ran;
using test::side;
using test::source;
using testing::Values;
using testing::valuesOf;

using Commands = std::shared_ptr<mtl::CommandBuffer>;
using ImagePointer = std::shared_ptr<Image>;
using StatePointer = std::shared_ptr<State>;

/// What one form leaves.
struct Outcome {
  std::vector<ImagePointer> images;
  StatePointer state = nullptr;  ///< whose gradients count; null: the kernel computes none
};

/// A form of encode, on a kernel that has encoded nothing yet.
struct Form {
  std::string name;
  std::function<Outcome(Kernel&, const Commands&)> encode;
};
using Forms = std::vector<Form>;

Values valuesIn(const std::vector<ImagePointer>& images) {
  Values all;
  for (const auto& each : images) {
    const Values values = valuesOf(*each);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<ImagePointer> imagesOf(const ImageBatch& batch) {
  std::vector<ImagePointer> images;
  for (std::size_t i = 0; i < batch.count(); ++i) images.push_back(batch[i]);
  return images;
}

bool areSame(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Bytes contentsOf(State& state) {
  Bytes all;
  for (std::size_t i = 0; i < state.resourceCount(); ++i) {
    const auto& buffer = state.resource(i);
    all.insert(all.end(), buffer->contents(), buffer->contents() + buffer->length());
  }
  return all;
}

constexpr float poison = -77.5F;

ImagePointer poisoned(ImageDescriptor size, const std::shared_ptr<mtl::Device>& device) {
  size.setStorageMode(mtl::StorageMode::Managed);
  auto made = Image::create(device, size);
  testing::fill(*made, Values(testing::elementsOf(size), poison));
  return made;
}

/// What the kernel would return, to be given.
ImagePointer destinationFor(Kernel& kernel, const std::vector<ImagePointer>& sources,
                            const std::vector<StatePointer>& states = {}) {
  auto& sizing = dynamic_cast<detail::ImageKernel&>(kernel);
  return poisoned(sizing.destinationImageDescriptor(sources, states), kernel.device());
}

class EncodeForms : public testing::DeviceTest {
 protected:
  /// Runs each form on a copy of its own.
  void expectSameBits(const KernelSample& one, const Forms& forms) const {
    ASSERT_GE(forms.size(), 2U);
    Values image;
    Bytes state;
    for (const Form& form : forms) {
      SCOPED_TRACE(form.name);
      const auto kernel = one.kernel->copy();
      dynamic_cast<detail::ImageKernel&>(*kernel).setDestinationImageAllocator(Image::defaultAllocator());
      const Outcome outcome = ran(*kernel, [&](const auto& buffer) { return form.encode(*kernel, buffer); });
      const Values found = valuesIn(outcome.images);
      if (image.empty()) image = found;
      EXPECT_EQ(std::ranges::count(found, poison), 0);
      EXPECT_TRUE(areSame(found, image)) << "as " << forms[0].name;
      if (!outcome.state) continue;
      const Bytes gradients = contentsOf(*outcome.state);
      if (&form == &forms[0]) state = gradients;
      EXPECT_TRUE(gradients == state) << "as " << forms[0].name;
    }
    EXPECT_FALSE(image.empty());
  }
};

/// The forms of forward kernels. `Sources` has what the kernel's class says of them:
///     images()                       for destinationImageDescriptor
///     encode(commands, rest...)      of the sources and what follows them
///     encodeBatch(commands, rest...) of batches of one
///     resultStateBatch()             where there are forms with states
template <class Sources>
Forms forwardForms() {
  Forms forms;
  const auto add = [&](const char* name, auto encode) {
    forms.push_back({name, [encode](Kernel& kernel, const Commands& buffer) {
                       Sources sources(kernel);
                       return encode(kernel, sources, buffer);
                     }});
  };
  add("returned",
      [](Kernel&, Sources& sources, const Commands& buffer) { return Outcome{{sources.encode(buffer)}}; });
  add("batch returned", [](Kernel&, Sources& sources, const Commands& buffer) {
    return Outcome{imagesOf(sources.encodeBatch(buffer))};
  });
  add("given", [](Kernel& kernel, Sources& sources, const Commands& buffer) {
    const auto result = destinationFor(kernel, sources.images());
    sources.encode(buffer, result);
    return Outcome{{result}};
  });
  add("batch given", [](Kernel& kernel, Sources& sources, const Commands& buffer) {
    const auto result = destinationFor(kernel, sources.images());
    sources.encodeBatch(buffer, ImageBatch{result});
    return Outcome{{result}};
  });
  if constexpr (requires(const Sources& sources) { sources.resultStateBatch(); }) {
    add("returned with a state", [](Kernel&, Sources& sources, const Commands& buffer) {
      StatePointer state;
      return Outcome{{sources.encode(buffer, state, false)}};
    });
    add("batch returned with states", [](Kernel&, Sources& sources, const Commands& buffer) {
      StateBatch states;
      const ImageBatch result = sources.encodeBatch(buffer, states, false);
      return Outcome{imagesOf(result)};
    });
    add("batch given with states", [](Kernel& kernel, Sources& sources, const Commands& buffer) {
      const auto result = destinationFor(kernel, sources.images());
      const StateBatch states = sources.resultStateBatch();
      sources.encodeBatch(buffer, states, ImageBatch{result});
      return Outcome{{result}};
    });
  }
  return forms;
}

/// Of CNNKernel.
struct OneSource {
  explicit OneSource(Kernel& kernel)
      : kernel(dynamic_cast<CNNKernel&>(kernel)), x(source(kernel, 1)), batch{x} {}
  [[nodiscard]] std::vector<ImagePointer> images() const { return {x}; }
  auto encode(const Commands& buffer, auto&&... rest) { return kernel.encode(buffer, x, rest...); }
  auto encodeBatch(const Commands& buffer, auto&&... rest) {
    return kernel.encodeBatch(buffer, batch, rest...);
  }
  [[nodiscard]] StateBatch resultStateBatch() const { return kernel.resultStateBatch(batch); }

  CNNKernel& kernel;
  ImagePointer x;
  ImageBatch batch;
};

/// Of CNNBinaryKernel.
struct TwoSources {
  explicit TwoSources(Kernel& kernel)
      : kernel(dynamic_cast<CNNBinaryKernel&>(kernel)), x(source(kernel, 1)), y(source(kernel, 2)) {}
  [[nodiscard]] std::vector<ImagePointer> images() const { return {x, y}; }
  auto encode(const Commands& buffer, auto&&... rest) { return kernel.encode(buffer, x, y, rest...); }
  auto encodeBatch(const Commands& buffer, auto&&... rest) {
    return kernel.encodeBatch(buffer, ImageBatch{x}, ImageBatch{y}, rest...);
  }
  [[nodiscard]] StateBatch resultStateBatch() const {
    return kernel.resultStateBatch(ImageBatch{x}, ImageBatch{y});
  }

  CNNBinaryKernel& kernel;
  ImagePointer x, y;
};

/// Of CNNMultiaryKernel.
struct SeveralSources {
  explicit SeveralSources(Kernel& kernel)
      : kernel(dynamic_cast<CNNMultiaryKernel&>(kernel)), sources{source(kernel, 1), source(kernel, 2)} {
    for (const auto& each : sources) batches.push_back(ImageBatch{each});
  }
  [[nodiscard]] std::vector<ImagePointer> images() const { return sources; }
  auto encode(const Commands& buffer, auto&&... rest) { return kernel.encode(buffer, sources, rest...); }
  auto encodeBatch(const Commands& buffer, auto&&... rest) {
    return kernel.encodeBatch(buffer, batches, rest...);
  }
  [[nodiscard]] StateBatch resultStateBatch() const { return kernel.resultStateBatch(batches); }

  CNNMultiaryKernel& kernel;
  std::vector<ImagePointer> sources;
  std::vector<ImageBatch> batches;
};

/// Of kernels with labels. @param sourceChannels of predictions and labels
template <class Loss, std::size_t sourceChannels>
struct Labelled {
  explicit Labelled(Kernel& kernel)
      : kernel(dynamic_cast<Loss&>(kernel)),
        x(image(kernel.device(), testing::sizeOf(side, side, sourceChannels), 1)),
        labels(CNNLossLabels::create(kernel.device(), {1, 1, 1}, image(kernel.device(), x->descriptor(), 2),
                                     nullptr)) {}
  [[nodiscard]] std::vector<ImagePointer> images() const { return {x}; }
  auto encode(const Commands& buffer, auto&&... rest) { return kernel.encode(buffer, x, labels, rest...); }
  auto encodeBatch(const Commands& buffer, auto&&... rest) {
    return kernel.encodeBatch(buffer, ImageBatch{x}, CNNLossLabelsBatch{labels}, rest...);
  }

  Loss& kernel;
  ImagePointer x;
  std::shared_ptr<CNNLossLabels> labels;
};

/// A state of one source and its destination, which kernels with one source alone take.
Form givenWithAState() {
  return {"given with a state", [](Kernel& kernel, const Commands& buffer) {
            const OneSource sources(kernel);
            const auto result = destinationFor(kernel, sources.images());
            if (const auto state = sources.kernel.resultState(sources.x))
              sources.kernel.encode(buffer, sources.x, state, result);
            else
              sources.kernel.encode(buffer, sources.x, result);
            return Outcome{{result}};
          }};
}

/// The images of the regions are those of a stack, or a batch.
Forms formsOfRegions() {
  const auto forms = [](auto encode) {
    return [encode](Kernel& kernel, const Commands& buffer) {
      auto& crop = dynamic_cast<NNCropAndResizeBilinear&>(kernel);
      return encode(crop, buffer, source(kernel, 1));
    };
  };
  const auto sizeOfOne = [](const NNCropAndResizeBilinear& crop) {
    return testing::sizeOf(crop.resizeWidth(), crop.resizeHeight(), channels);
  };
  return {{"returned", forms([](auto& crop, const Commands& buffer, const ImagePointer& x) {
             return Outcome{{crop.encode(buffer, x)}};
           })},
          {"batch returned", forms([](auto& crop, const Commands& buffer, const ImagePointer& x) {
             return Outcome{imagesOf(crop.encodeBatch(buffer, ImageBatch{x}))};
           })},
          {"given", forms([=](auto& crop, const Commands& buffer, const ImagePointer& x) {
             ImageDescriptor stack = sizeOfOne(crop);
             stack.setNumberOfImages(crop.numberOfRegions());
             const auto result = poisoned(stack, crop.device());
             crop.encode(buffer, x, result);
             return Outcome{{result}};
           })},
          {"batch given", forms([=](auto& crop, const Commands& buffer, const ImagePointer& x) {
             std::vector<ImagePointer> results;
             for (std::size_t i = 0; i < crop.numberOfRegions(); ++i)
               results.push_back(poisoned(sizeOfOne(crop), crop.device()));
             crop.encodeBatch(buffer, ImageBatch{x}, ImageBatch(results));
             return Outcome{results};
           })}};
}

/// Of NNForwardLoss, which has no others with labels.
Forms formsOfImageLosses() {
  const auto form = [](auto encode) {
    return [encode](Kernel& kernel, const Commands& buffer) {
      const ImageBatch x{source(kernel, 1)}, labels{source(kernel, 2)};
      return encode(dynamic_cast<NNForwardLoss&>(kernel), buffer, x, labels);
    };
  };
  return {
      {"batch returned",
       form([](NNForwardLoss& loss, const Commands& buffer, const ImageBatch& x, const ImageBatch& labels) {
         return Outcome{imagesOf(loss.encodeBatch(buffer, x, labels))};
       })},
      {"batch returned with states",
       form([](NNForwardLoss& loss, const Commands& buffer, const ImageBatch& x, const ImageBatch& labels) {
         StateBatch states;
         const ImageBatch result = loss.encodeBatch(buffer, x, labels, {}, states, false);
         return Outcome{imagesOf(result)};
       })},
      {"batch given",
       form([](NNForwardLoss& loss, const Commands& buffer, const ImageBatch& x, const ImageBatch& labels) {
         const auto result = destinationFor(loss, {x[0]});
         const StateBatch states = loss.resultStateBatch(x);
         loss.encodeBatch(buffer, x, labels, {}, states, ImageBatch{result});
         return Outcome{{result}};
       })}};
}

/// Of its gradient.
Forms formsOfImageLossGradients() {
  const auto form = [](bool isGiven) {
    return [isGiven](Kernel& kernel, const Commands& buffer) {
      auto& gradient = dynamic_cast<NNLossGradient&>(kernel);
      const auto loss = NNForwardLoss::create(kernel.device(), gradient.descriptor());
      loss->setDestinationImageAllocator(Image::defaultAllocator());
      const ImageBatch x{source(kernel, 1)}, labels{source(kernel, 2)};
      StateBatch states;
      const ImageBatch y = loss->encodeBatch(buffer, x, labels, {}, states, true);
      const ImageBatch dy{image(kernel.device(), y.descriptor(), 3)};
      if (!isGiven) return Outcome{imagesOf(gradient.encodeBatch(buffer, dy, x, labels, {}, states))};
      const auto result = poisoned(x.descriptor(), kernel.device());
      gradient.encodeBatch(buffer, dy, x, labels, {}, states, ImageBatch{result});
      return Outcome{{result}};
    };
  };
  return {{"batch returned", form(false)}, {"batch given", form(true)}};
}

using Behind = std::function<test::GradientArguments(Kernel& gradient, const Commands& buffer)>;

/// The forms of gradient kernels with a state. @param behind encodes the forward kernel
Forms gradientForms(const Behind& behind) {
  const auto form = [&](auto encode) {
    return [behind, encode](Kernel& kernel, const Commands& buffer) {
      const test::GradientArguments arguments = behind(kernel, buffer);
      return Outcome{{encode(dynamic_cast<CNNGradientKernel&>(kernel), buffer, arguments)}, arguments.state};
    };
  };
  const auto destination = [](CNNGradientKernel& gradient, const test::GradientArguments& arguments) {
    return destinationFor(gradient, {arguments.sourceGradient, arguments.sourceImage}, {arguments.state});
  };
  return {
      {"returned", form([](CNNGradientKernel& gradient, const Commands& buffer, const auto& arguments) {
         return gradient.encode(buffer, arguments.sourceGradient, arguments.sourceImage, arguments.state);
       })},
      {"batch returned", form([](CNNGradientKernel& gradient, const Commands& buffer, const auto& arguments) {
         return gradient.encodeBatch(buffer, ImageBatch{arguments.sourceGradient},
                                     ImageBatch{arguments.sourceImage}, StateBatch{arguments.state})[0];
       })},
      {"given", form([=](CNNGradientKernel& gradient, const Commands& buffer, const auto& arguments) {
         auto result = destination(gradient, arguments);
         gradient.encode(buffer, arguments.sourceGradient, arguments.sourceImage, arguments.state, result);
         return result;
       })},
      {"batch given", form([=](CNNGradientKernel& gradient, const Commands& buffer, const auto& arguments) {
         auto result = destination(gradient, arguments);
         gradient.encodeBatch(buffer, ImageBatch{arguments.sourceGradient}, ImageBatch{arguments.sourceImage},
                              StateBatch{arguments.state}, ImageBatch{result});
         return result;
       })}};
}

/// Up to the gradient kernel of batch normalisation: also the sums, where it is the one of the data.
test::GradientArguments behindBatchNormalization(Kernel& kernel, const Commands& buffer) {
  const auto& device = kernel.device();
  const auto normalization =
      CNNBatchNormalization::create(device, detail::FixedBatchNormalization::create(test::channels));
  const auto x = source(kernel, 1), dy = source(kernel, 2);
  const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(normalization->resultState(x));
  CNNBatchNormalizationStatistics::create(device)->encodeBatch(buffer, ImageBatch{x}, state);
  normalization->encodeBatch(buffer, ImageBatch{x}, state, ImageBatch{poisoned(x->descriptor(), device)});
  if (dynamic_cast<CNNBatchNormalizationGradient*>(&kernel) != nullptr)
    CNNBatchNormalizationStatisticsGradient::create(device)->encodeBatch(buffer, ImageBatch{dy},
                                                                         ImageBatch{x}, state);
  return {dy, x, state};
}

bool startsWith(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

/// Whose results are no images.
bool makesNoImage(const Kernel& kernel) {
  const std::string name = kernel.className();
  return startsWith(name, "Matrix") || startsWith(name, "NDArray") || startsWith(name, "NNOptimizer") ||
         name == "ImageCopyToMatrix" || name == "CNNBatchNormalizationStatistics";
}

/// Of an entry of the list. Empty: nothing here knows its class.
Forms formsOf(const KernelSample& one) {
  Kernel& kernel = *one.kernel;
  if (dynamic_cast<NNLossGradient*>(&kernel) != nullptr) return formsOfImageLossGradients();
  if (dynamic_cast<CNNGradientKernel*>(&kernel) != nullptr) {
    if (!one.forward) return gradientForms(behindBatchNormalization);
    return gradientForms([make = one.forward](Kernel& gradient, const Commands& buffer) {
      const auto first = make(gradient.device());
      return test::argumentsBehind(*first, gradient, buffer, 1);
    });
  }
  if (dynamic_cast<CNNLoss*>(&kernel) != nullptr) return forwardForms<Labelled<CNNLoss, channels>>();
  if (dynamic_cast<CNNYOLOLoss*>(&kernel) != nullptr)
    return forwardForms<Labelled<CNNYOLOLoss, 2 * (5 + 2)>>();
  if (dynamic_cast<NNForwardLoss*>(&kernel) != nullptr) return formsOfImageLosses();
  if (dynamic_cast<NNCropAndResizeBilinear*>(&kernel) != nullptr) return formsOfRegions();
  if (dynamic_cast<CNNBinaryKernel*>(&kernel) != nullptr) return forwardForms<TwoSources>();
  if (dynamic_cast<CNNMultiaryKernel*>(&kernel) != nullptr) return forwardForms<SeveralSources>();
  Forms forms;
  if (dynamic_cast<CNNKernel*>(&kernel) != nullptr) {
    forms = forwardForms<OneSource>();
    forms.push_back(givenWithAState());
  }
  return forms;
}

TEST_F(EncodeForms, GiveTheSameBits) {
  for (const KernelSample& one : test::everyKernel(device_)) {
    SCOPED_TRACE(one.kernel->className());
    if (makesNoImage(*one.kernel)) continue;
    EXPECT_EQ(testing::errorOf([&] { expectSameBits(one, formsOf(one)); }), "");
  }
}

}  // namespace
}  // namespace mps::encode_forms_test
