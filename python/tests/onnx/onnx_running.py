"""Runs ONNX files, for the tests of exports."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

node_tolerance, network_tolerance = 2e-6, 1e-5  # relative to the largest value of a picture


def run(path, *pictures):
    """The results of a file, channels last as the library's. It was made for any number of pictures."""
    onnx.checker.check_model(onnx.load(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert all(entry.shape[0] == "batch" for entry in [*session.get_inputs(), *session.get_outputs()])
    given = {entry.name: np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
             for entry, batch in zip(session.get_inputs(), pictures)}
    results = session.run(None, given)
    for entry, result in zip(session.get_outputs(), results):
        assert list(result.shape[1:]) == entry.shape[1:]
    return [result.transpose(0, 2, 3, 1) for result in results]


def close(found, expected, tolerance):
    assert found.shape == expected.shape
    largest = np.abs(expected).max((1, 2, 3), keepdims=True)
    error = np.abs(found - expected) / np.maximum(largest, 1e-30)
    assert error.max() <= tolerance, f"off by {error.max()}"
