"""The operator tests that come with the package `onnx`, run by our kernels; onnx_operators.txt says which, and why not."""

import functools
import pathlib

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper

import onnx_operators

run_count = 242  # of our kernels; none may be lost
tolerance = {"rtol": 1e-3, "atol": 1e-7}  # of onnx's own runner
data = pathlib.Path(onnx.__file__).parent / "backend/test/data"
kinds = ("node", "pytorch-converted", "pytorch-operator")


@functools.cache
def found_tests():
    """The folders of all tests whose model is one node with an operator of ours, by name."""
    tests = {}
    for kind in kinds:
        for folder in sorted((data / kind).iterdir()):
            nodes = onnx.load(folder / "model.onnx").graph.node
            if len(nodes) == 1 and nodes[0].op_type in onnx_operators.operators:
                tests[folder.name] = folder
    return tests


def table():
    """Names and "runs", or the reason why a test does not apply."""
    listed, reason = {}, None
    for line in (pathlib.Path(__file__).parent / "onnx_operators.txt").read_text().splitlines():
        if line.startswith(" "):
            name = line.strip()
            assert name not in listed, name
            listed[name] = reason
        elif line:
            reason = line.rstrip(":")
    return listed


listed = table()


def values(case, kind, declared):
    """The tensors of a folder by their names in the model."""
    return {entry.name: numpy_helper.to_array(onnx.load_tensor(case / f"{kind}_{index}.pb"))
            for index, entry in enumerate(declared)}


def judge(folder):
    """Runs a test. The model's results have to be ours."""
    model = onnx.load(folder / "model.onnx")
    graph, version = model.graph, model.opset_import[0].version
    node = graph.node[0]
    constants = {entry.name: numpy_helper.to_array(entry) for entry in graph.initializer}
    for case in sorted(folder.glob("test_data_set_*")):
        given = values(case, "input", [entry for entry in graph.input if entry.name not in constants])
        inputs = [{**constants, **given}[name] if name else None for name in node.input]
        expected = list(values(case, "output", graph.output).values())
        found = onnx_operators.results(node, version, inputs, [array.shape for array in expected])
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, **tolerance)


@pytest.mark.parametrize("name", sorted(listed))
def test_operator(name):
    reason = None
    try:
        judge(found_tests()[name])
    except onnx_operators.DoesNotApply as exception:
        reason = str(exception)
    assert (reason or "runs") == listed[name]


def test_the_table_is_complete():
    assert sorted(found_tests()) == sorted(listed)
    assert sum(reason == "runs" for reason in listed.values()) == run_count
