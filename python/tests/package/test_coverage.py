"""Every public class, method, property, enumeration value and function of the public headers has its binding, and a
docstring, under the name that the rule gives it: snake_case; x() and setX(value) are one property."""

import pathlib
import re
import subprocess
import sys

import pytest

import unmetal

ROOT = pathlib.Path(__file__).resolve().parents[3]

# Headers whose families are not bound yet. A header leaves this list with its binding.
UNBOUND = []

# Headers of the library's own layer, which users of C++ do not call either.
INTERNAL = {"mps/core/types/float16.hpp": "element types inside",
            "mps/core/neuron/kernel_neuron.hpp": "inside kernels with neurons", "mps/core/layer/layer_kernel.hpp": "for graphs",
            "mps/core/types/tensor_shape.hpp": "shapes inside", "mps/convolution/kernel_with_weights.hpp": "a base inside",
            "mtl/log.hpp": "what logs() reads"}

# What has no binding of its own, and why. Of a class: all of it; names are C++'s.
ELSEWHERE = {
    "mps::Communicator::Named": "pairs of a name and a buffer",
    "mps::Coder": "classes written in Python are not coded; is_decoding is bound",
    "mps::DeviceProvider": "KeyedUnarchiver takes the device",
    "mps::ImageSizeEncodingState": "its members are NNGradientState's",
    "mps::Image::storage": "the library's own", "mps::Image::shape": "the library's own",
    "mps::Image::byteOffset": "the library's own",
    "mps::State::beginsUndefined": "the library's own", "mps::State::useBuffer": "the library's own",
    "mps::ArrayRef": "a sequence",
    "mps::ImageBatch::size": "len()", "mps::ImageBatch::begin": "iteration", "mps::ImageBatch::end": "iteration",
    "mps::StateBatch::size": "len()", "mps::StateBatch::begin": "iteration", "mps::StateBatch::end": "iteration",
    "mps::State::describeUnread": "the library's own",
    "mps::ImageBatch::blockStorage": "the library's own", "mps::ImageBatch::firstInBlock": "the library's own",
    "mps::ImageBatch::looseImages": "the library's own", "mps::ImageBatch::of": "[image] is one",
    "mps::NDArrayGradientState::record": "the library's own", "mps::NDArrayGradientState::setRecord": "the library's own",
    "mps::SafetensorsHeader::error": "for C++ that reads on", "mps::SafetensorsHeader::maximumHeaderLength": "the format's limit",
    "mps::CommandBuffer::append": "the library's own", "mps::CommandBuffer::submission": "the library's own",
    "mps::CommandBuffer::mayLeaveOut": "the library's own", "mps::CommandBuffer::continueWith": "the library's own",
    "mps::Error": "a Python exception; test_errors.py", "mtl::Error": "a Python exception; test_errors.py",
    "mps::Kernel::checkDecodedBytes": "the library's own",
    "mtl::CommandBuffer::rollback": "the library's own",
    "mps::StateBatch::firstInBlock": "the library's own",
    "mtl::Buffer::memory": "the library's own", "mtl::Buffer::contentsAs": "contents.view(dtype)",
    "mps::has": "`option in options`", "mps::name": "the enumeration's own name",
    "mps::NNReduce": "a template; its classes are bound",
    "mps::MatrixSampleLimits": "its members are those of its classes",
    "mps::MatrixCopyDescriptor::operations": "the library's own", "mps::MatrixCopyDescriptor::offsetVector": "the library's own",
    "mps::MatrixCopyDescriptor::vectorOffset": "the library's own",
    "mps::MatrixCopyDescriptor::Operation": "the library's own",
    "mps::bytesPerChannel": "the itemsize of the array", "mps::sizeInBytes": "the itemsize of the array",
    "mps::DataType::FloatBit": "a bit, no type", "mps::DataType::SignedBit": "a bit, no type",
    "mps::DataType::NormalizedBit": "a bit, no type",
    "mps::ImageBatchIncrementReadCount": "ImageBatch.increment_read_count",
    "mps::ImageBatchSynchronize": "ImageBatch.synchronize", "mps::ImageBatchResourceSize": "ImageBatch.resource_size",
    "mps::ImageBatchIterate": "ImageBatch.iterate",
    "mps::StateBatchIncrementReadCount": "StateBatch.increment_read_count",
    "mps::CNNAdd::hasGraphReLU": "the library's own",
    "mps::CNNBatchNormalization::useParameters": "the library's own",
    "mps::CNNBatchNormalization::decideStatistics": "the library's own",
    "mps::CNNBatchNormalization::computesStatistics": "the library's own",
    "mps::CNNConvolutionGradientState::setAccumulating": "the library's own",
    "mps::CNNLossLabels::indexInBlock": "the library's own",
    "mps::CNNConvolutionDescriptor::folding": "the library's own", "mps::CNNConvolutionDescriptor::Folding": "the library's own",
    "mps::CNNConvolutionDescriptor::check": "kernels do",
    "mps::CNNConvolutionDescriptor::cnnConvolutionDescriptor": "the class called",
    "mps::CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor": "the class called",
    "mps::CNNSubPixelConvolutionDescriptor::cnnConvolutionDescriptor": "the class called",
    "mps::NNNeuronDescriptor::cnnNeuronDescriptor": "the class called", "mps::NNNeuronDescriptor::hash": "hash()",
    "mps::NNNeuronDescriptor::check": "kernels do",
    "mps::VectorDescriptor::vectorDescriptor": "the class called",
    "mps::CNNLossDescriptor::cnnLossDescriptor": "the class called",
    "mps::CNNYOLOLossDescriptor::cnnLossDescriptor": "the class called",
    "mps::NNOptimizerDescriptor::optimizerDescriptor": "the class called",
    "mps::CNNLossDataDescriptor": "CNNLossLabels takes arrays",
    "mps::CNNNeuronType::Count": "no type", "mps::CNNLossType::Count": "no type", "mps::CNNReductionType::Count": "no type",
    "mps::NNTrainableNode": "training_style of each node", "mps::NNReductionNode": "a template",
    "mps::TrainableLayer": "its members are each layer's",
    "mps::CNNConvolutionDataSource::update": "update_with_command_buffer, update_with_gradient_state",
    "mps::CNNBatchNormalizationDataSource::updateMeanAndVariance":
        "update_mean_and_variance_with_command_buffer, update_mean_and_variance_with_state",
    "mps::CNNBatchNormalizationDataSource::updateGammaAndBeta":
        "update_gamma_and_beta_with_command_buffer, update_gamma_and_beta_with_state",
    "mps::TrainableConvolution::setFrozen": "is_frozen can be set",
    "mps::TrainableBatchNormalization::setFrozen": "is_frozen can be set",
    "mps::StateBatchSynchronize": "StateBatch.synchronize", "mps::StateBatchResourceSize": "StateBatch.resource_size",
}

# Methods whose verb Python has a word for.
RENAMED = {"count": "__len__", "createTemporary": "create_temporary"}


def snake(name):
    for word in ("UInt", "PReLU", "PyTorch"):
        name = name.replace(word, word.capitalize())
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def own_comment(lines, index):
    """Whether the comment above a line says that the declaration is the library's own."""
    comment = []
    while index > 0 and lines[index - 1].strip().startswith("///"):
        index -= 1
        comment.append(lines[index])
    return any("The library's own" in line for line in comment)


def values(text):
    """The names in `One = 1, Two = 2 };`."""
    return re.findall(r"(\w+)(?: = [^,}]*)?[,}]", re.sub(r",? *\};?", "}", text))


def declarations(header):
    """(qualified name, kind) of what a header offers; kind is class, method, value or function."""
    text = (ROOT / header).read_text()
    lines = text.splitlines()
    scopes = []  # of (kind, name, access)
    in_group_of_our_own = False
    statement = ""
    for number, line in enumerate(lines):
        stripped = line.strip()
        if "@name The library's own" in line:
            in_group_of_our_own = True
        if stripped == "/// @}":
            in_group_of_our_own = False
        if not stripped or stripped.startswith(("//", "#")):
            continue
        code = re.sub(r"\s*///<.*|\s*//.*", "", stripped)
        if not statement:
            start = number
        statement += " " + code
        if access := re.match(r"^(public|protected|private):$", code):
            scopes[-1] = (*scopes[-1][:2], access.group(1))
            statement = ""
            continue
        opens, closes = code.count("{"), code.count("}")
        if opens == closes and not code.endswith((";", "}")):
            continue  # goes on
        names = "::".join(name for kind, name, _ in scopes if name)
        visible = all(access == "public" for kind, _, access in scopes) and not any(
            name.split("::")[-1] == "detail" or kind == "body" for kind, name, _ in scopes)
        visible = visible and not in_group_of_our_own and not own_comment(lines, start)
        head = statement.strip()
        statement = ""
        if namespace := re.match(r"^(inline )?namespace ([\w:]*)", head):
            if opens > closes:
                scopes.append(("namespace", namespace.group(2), "public"))
        elif record := re.match(r"^(template <.*> )?(class|struct|enum class) (\w+)(?!.*\);$)", head):
            kind, name = record.group(2), record.group(3)
            has_body = "{" in head
            if visible and has_body:
                yield f"{names}::{name}", "class"
                if re.search(r"\bdetail::\w*KernelClass<", head):  # the base of all kernel classes has them
                    yield from ((f"{names}::{name}::{method}", "method") for method in ("create", "copy", "decode"))
            if kind == "enum class" and visible and opens == closes:
                yield from ((f"{names}::{name}::{value}", "value") for value in values(head[head.index("{") + 1:]))
            if opens > closes:
                scopes.append(("enum" if kind == "enum class" else "class", name,
                               "private" if kind == "class" else "public"))
        elif opens < closes:
            if scopes[-1][0] == "enum" and visible:
                yield from ((f"{names}::{value}", "value") for value in values(head))
            for _ in range(closes - opens):
                scopes.pop()
        else:
            inside = bool(scopes) and scopes[-1][0] == "class"
            elsewhere = re.match(r"^(using|friend|typedef|template|static_assert)\b", head) or re.search(r"= delete|\) (const )?override", head)
            if visible and not elsewhere:  # what is overridden stands in its base class
                name = re.search(r"(~?\w+|operator.{1,3})\s*\(", re.sub(r"\[\[nodiscard\]\]|alignas\(\d+\)|requires\(.*?\)", "", head))
                if name and "operator" not in head and not name.group(1).startswith("~"):
                    if inside and name.group(1) != scopes[-1][1]:
                        yield f"{names}::{name.group(1)}", "method"
                    elif not inside:
                        yield f"{names}::{name.group(1)}", "function"
                elif inside and not name and (field := re.match(r"^[\w:<>, *]+ (\w+)(?: = .*|\{.*\})?;", head)):
                    yield f"{names}::{field.group(1)}", "method"
            scopes += [("body", "", "public")] * (opens - closes)


def headers():
    return re.findall(r'#include "(.*)"', (ROOT / "unmetal.hpp").read_text())


def python_of(parts):
    """The Python object of a C++ scope."""
    found = unmetal
    for part in parts:
        if part == "mps":
            continue
        found = getattr(found, part)
    return found


def problem(name, kind):
    """Why a declaration is not bound as it should be; empty when it is."""
    *scope, last = name.split("::")
    if any("::".join(name.split("::")[:length]) in ELSEWHERE for length in range(1, name.count("::") + 2)):
        return ""
    try:
        holder = python_of(scope)
    except AttributeError:
        return ""  # its class is missing, which is said once
    if kind == "class":
        found = getattr(holder, last, None)
    elif kind == "value":
        return "" if hasattr(holder, {"None": "None_"}.get(last, last)) else "no such value"
    elif kind == "method" and last == "create":
        return "" if "__new__" in vars(holder) or "__init__" in vars(holder) else "cannot be made"
    elif kind == "method" and last.startswith("set") and last[3:4].isupper():
        found = getattr(holder, snake(last[3:]), None)
        if isinstance(found, property) and found.fset is None:
            return "cannot be set"
        found = found or getattr(holder, snake(last), None)
    else:
        found = getattr(holder, snake(last), None)
    if found is None:
        return "not bound"
    return "" if (found.__doc__ or "").strip() else "no docstring"


def test_the_lists_name_headers():
    assert set(UNBOUND) | set(INTERNAL) <= set(headers())


@pytest.mark.parametrize("header", [h for h in headers() if h not in UNBOUND and h not in INTERNAL])
def test_all_is_bound(header):
    wrong = [f"{name}: {why}" for name, kind in declarations(header) if (why := problem(name, kind))]
    assert not wrong, "\n".join([header, *wrong])


def test_the_reader_finds_what_is_there():
    found = set(declarations("mps/pooling/pooling.hpp"))
    for name in ("CNNPoolingMax", "CNNPoolingAverageGradient"):
        assert (f"mps::{name}", "class") in found
    for name in ("create", "copy", "decode", "zeroPadSizeX", "setZeroPadSizeX"):
        assert (f"mps::CNNPoolingAverage::{name}", "method") in found
    assert not any("setAfterReLU" in name or "kind" in name for name, _ in found)
    assert ("mps::ImageEdgeMode::Clamp", "value") in set(declarations("mps/core/types/types.hpp"))
    assert ("mps::GetPreferredDevice", "function") in set(declarations("mps/core/kernel/command_buffer.hpp"))
    assert ("mps::Offset::x", "method") in set(declarations("mps/core/types/types.hpp"))
    assert len(set(declarations("mps/core/kernel/cnn_binary_kernel.hpp"))) > 30


def test_random_calls_list_what_they_cannot_reach():
    """Public classes of C++ without a binding, by the lists above."""
    done = subprocess.run([sys.executable, ROOT / "python" / "tests" / "random_calls", "--list"], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    listed = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert listed.items() <= ELSEWHERE.items() and "mps::Coder" in listed
