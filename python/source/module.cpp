#include <exception>
#include <string>

#include "mps/core/types/error.hpp"
#include "mtl/error.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/binding/interpreter.hpp"
#include "python/source/binding/sentences.hpp"
#include "python/source/binding/wrong_arguments.hpp"
#include "python/source/train/train.hpp"

namespace python {
namespace {

/// The exceptions. They stay until the process ends, as the translator does.
struct Errors {
  nb::handle error;          ///< mtl::Error, and mps::Error with a sentence of its own
  nb::handle argumentError;  ///< mps::Error about an argument
  nb::handle indexError;     ///< the same, about an index
};

nb::handle newException(nb::module_& module, const char* name, nb::handle bases, const char* documentation) {
  const std::string qualified = nb::cast<std::string>(module.attr("__name__")) + "." + name;
  const nb::handle type = PyErr_NewExceptionWithDoc(qualified.c_str(), documentation, bases.ptr(), nullptr);
  module.attr(name) = type;
  return type;
}

/// Which of the classes an error becomes.
nb::handle classOf(const Errors& errors, const mps::Error& error) {
  const std::string& argument = error.argument();
  if (argument.empty()) return errors.error;
  return argument.ends_with("index") || argument.ends_with("Index") ? errors.indexError
                                                                    : errors.argumentError;
}

/// The library's exceptions become unmetal.Error and its subclasses, with the library's sentence, in Python's names.
void translate(const std::exception_ptr& thrown, void* payload) {
  const auto& errors = *static_cast<const Errors*>(payload);
  try {
    std::rethrow_exception(thrown);
  } catch (const mps::Error& found) {
    const nb::handle type = classOf(errors, found);
    const nb::object raised = type(inPythonsNames(found.what()));
    raised.attr("kernel") = found.kernel();
    raised.attr("argument") = inPythonsNames(found.argument());
    raised.attr("found") = inPythonsNames(found.found());
    raised.attr("expected") = inPythonsNames(found.expected());
    PyErr_SetObject(type.ptr(), raised.ptr());
  } catch (const mtl::Error& found) {
    PyErr_SetString(errors.error.ptr(), inPythonsNames(found.what()).c_str());
  }
}

void bindErrors(nb::module_& module, nb::module_& mtl) {
  static Errors errors;
  errors.error = newException(
      module, "Error", PyExc_RuntimeError,
      "Wrong use of the library, or work that failed. What raises it while encoding has recorded and "
      "changed nothing.\n\n"
      "`kernel`, `argument`, `found` and `expected` are parts of the sentence, empty where it has none.");
  errors.argumentError =
      newException(module, "ArgumentError", nb::make_tuple(errors.error, nb::handle(PyExc_ValueError)),
                   "An argument or property that is not what it should be.");
  errors.indexError = newException(module, "ArgumentIndexError",
                                   nb::make_tuple(errors.argumentError, nb::handle(PyExc_IndexError)),
                                   "An index beyond the last.");
  mtl.attr("Error") = errors.error;
  for (const char* part : {"kernel", "argument", "found", "expected"}) errors.error.attr(part) = "";
  nb::register_exception_translator(&translate, &errors);
}

}  // namespace

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // objects of modules that outlive theirs are no concern of a user's
  module.doc() = "The training part of Metal Performance Shaders.";
  module.attr("__version__") = UNMETAL_VERSION;
  nb::module_ mtl = module.def_submodule("mtl", "Devices, queues, command buffers and buffers.");
  bindErrors(module, mtl);
  watchForTheEnd();
  bindMtl(mtl);

  bindCoreCoding(module);
  bindCoreTypes(module);
  bindCoreCommandBuffer(module);
  bindCoreImage(module);
  bindCoreBatch(module);
  bindCoreState(module);
  bindPadding(module);
  bindKernels(module);
  bindCommunicator(module);

  bindPooling(module);

  bindMatrix(module);
  bindMatrixRandom(module);
  bindNDArray(module);
  bindSafetensors(module);

  bindArithmetic(module);
  bindConcatenation(module);
  bindDropout(module);
  bindGramMatrix(module);
  bindNormalization(module);
  bindReductions(module);
  bindReshapes(module);
  bindResize(module);
  bindSoftMax(module);
  bindUpsampling(module);

  bindVector(module);
  bindNeuron(module);
  bindMatrixKernels(module);
  bindMatrixLayers(module);
  bindConvolutionSource(module);
  bindConvolution(module);
  bindNormalizationStates(module);
  bindNormalizationSource(module);
  bindNormalizationLayers(module);
  bindOptimizer(module);
  bindLosses(module);
  bindTrainable(module);
  bindNode(module);
  bindLayerNodes(module);
  bindImageNodes(module);
  bindPoolingNodes(module);
  bindLocalNormalizationNodes(module);
  bindGraph(module);
  bindYOLOLoss(module);
  nb::module_ train = module.def_submodule("train", "Networks, data sets and a trainer.");
  bindTrain(train);
  nb::module_ onnx = module.def_submodule("onnx", "Networks as ONNX files.");
  bindOnnx(onnx);
  explainWrongArguments(module, mtl);
}

}  // namespace python
