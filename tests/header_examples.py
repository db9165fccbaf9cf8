#!/usr/bin/env python3
"""Makes a test program of the examples in the headers of gradient kernels.

    header_examples.py OUTPUT

The example of a gradient kernel is the indented code at the end of its class's comment; a class without one is an error. Each becomes
a test: what the code names and does not declare is declared before it by the functions of header_examples.hpp (sources, labels,
data sources, the gradient of the forward result), and the gradients that it leaves in dx, dy, db and dGamma are looked at; of
kernels on matrices and arrays those in all names that begin with d.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLASS = re.compile(r"((?:^///.*\n)+)^class (\w+Gradient)(?: final)? : public ", re.M)
# Bases, which nobody makes; and where a gradient begins, which is part of the example of NNLossGradient.
WITHOUT = {"CNNPoolingGradient", "CNNUpsamplingGradient", "ImageScaleGradient", "CNNNormalizationGradient", "CNNArithmeticGradient",
           "NNInitialGradient"}
SOURCES = ("x", "y", "a", "b", "labels")
# Of kernels on matrices and arrays all arguments stand there before.
MATRICES = ("x", "y", "dy", "dx", "weights", "dWeights")
ARRAYS = ("x", "y", "dy", "dx", "indices")
VECTORS = ("bias", "mean", "variance", "gamma", "beta", "dBias", "dGamma", "dBeta")
GRADIENTS = ("dx", "dy", "db", "dGamma")
# The forward result: made by a kernel, or given to it as the last argument.
RESULT = re.compile(r"auto (\w) = \w+->encode\w*\(|->encodeBatch\(commandBuffer, x, state, (y)\);")


def examples():
    """(header, class, lines of code or None) of every gradient kernel."""
    for header in sorted((ROOT / "mps").glob("*/*.hpp")):
        for comment, name in CLASS.findall(header.read_text()):
            if name in WITHOUT:
                continue
            lines = [line[len("///     "):] for line in comment.split("\n") if line.startswith("///     ")]
            starts = [i for i, line in enumerate(lines) if line.startswith("auto ")]
            yield header.relative_to(ROOT), name, lines[starts[0]:] if starts else None


def declarations(code, declared, words):
    """What the code takes for granted."""
    source = "batch()" if "encodeBatch" in code else "image()"
    for name in SOURCES:
        if name in words and name not in declared:
            yield f"const auto {name} = {source};"
    if "dataSource" in words:
        layer = re.search(r"mps::(\w+)::create\(device, dataSource\)", code).group(1)
        yield f"const auto dataSource = dataSourceFor<mps::{layer}>();"
    if "seed" in words:
        yield "constexpr std::uint64_t seed = 1;"
    if "descriptor" in words and "descriptor" not in declared:
        yield "const auto descriptor = lossDescriptor();"


def kind_of(word, is_array):
    if is_array:
        return "indexArray" if word == "indices" else "array"
    return "vector" if word in VECTORS else "square" if word.lower().endswith("weights") else "matrix"


def test_of_matrices(name, lines):
    is_array = name.startswith("NDArray")
    arguments = ARRAYS if is_array else MATRICES + VECTORS
    words = set(re.findall(r"\w+", "\n".join(lines)))
    checked = [word for word in arguments if word in words and word[0] == "d" and word != "dy"]
    body = []
    for word in arguments:
        if word in words:
            body.append(f"const auto {word} = {kind_of(word, is_array)}({'false' if word in checked else 'true'});")
    if not checked:
        raise ValueError("leaves no gradient")
    body += lines + [f"{word}->synchronize(commandBuffer);" for word in checked]
    body += ["run();"] + [f"expectGradient({word});" for word in checked]
    return f"TEST_F(HeaderExamples, {name}) {{\n  " + "\n  ".join(body) + "\n}\n"


def test_of(name, lines):
    if name.startswith(("Matrix", "NDArray")):
        return test_of_matrices(name, lines)
    code = "\n".join(lines)
    declared = set(re.findall(r"(?:auto|State>|StateBatch|vector) (\w+)", code))
    words = set(re.findall(r"\w+", code))
    body = list(declarations(code, declared, words))
    for line in lines:
        body.append(line)
        result = RESULT.search(line)
        if not result:
            continue
        variable = result.group(1) or result.group(2)
        gradient = "dz" if variable == "z" else "dy"
        if gradient in words and gradient not in declared:
            body.append(f"const auto {gradient} = gradientOf({variable});")
            declared.add(gradient)
    checked = [word for word in GRADIENTS if re.search(rf"auto {word} = ", code)]
    if not checked:
        raise ValueError("leaves no gradient in " + ", ".join(GRADIENTS))
    body += [f"const auto {variable}Kept = kept({variable});" for variable in checked]
    body += ["run();"] + [f"expectGradient({variable}Kept);" for variable in checked]
    return f"TEST_F(HeaderExamples, {name}) {{\n  " + "\n  ".join(body) + "\n}\n"


def main():
    tests = []
    for header, name, lines in examples():
        if lines is None:
            sys.exit(f"{header}: {name} has no example")
        try:
            tests.append(f"// {header}\n" + test_of(name, lines))
        except ValueError as error:
            sys.exit(f"{header}: the example of {name} {error}")
    text = '#include "header_examples.hpp"\n\nnamespace {\n\n' + "\n".join(tests) + "\n}  // namespace\n"
    pathlib.Path(sys.argv[1]).write_text(text)


main()
