"""Runs ONNX files, for the tests of exports: with ONNX Runtime, or with what the environment's UNMETAL_ONNX_WITH names."""

import os

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

node_tolerance, network_tolerance = 2e-6, 1e-5  # relative to the largest value of a picture
engine = os.environ.get("UNMETAL_ONNX_WITH", "onnxruntime")  # or openvino: scripts/check-all openvino


def run(path, *pictures):
    """The results of a file, channels last as the library's. It was made for any number of pictures."""
    onnx.checker.check_model(onnx.load(path), full_check=True)
    given = [np.ascontiguousarray(batch.transpose(0, 3, 1, 2)) for batch in pictures]
    results = {"onnxruntime": run_with_onnxruntime, "openvino": run_with_openvino}[engine](path, given)
    return [result.transpose(0, 2, 3, 1) for result in results]


def run_with_onnxruntime(path, given):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert all(entry.shape[0] == "batch" for entry in [*session.get_inputs(), *session.get_outputs()])
    results = session.run(None, {entry.name: batch for entry, batch in zip(session.get_inputs(), given, strict=True)})
    for entry, result in zip(session.get_outputs(), results):
        assert list(result.shape[1:]) == entry.shape[1:]
    return results


def run_with_openvino(path, given):
    import openvino
    # Without the hint it may compute in fewer bits.
    compiled = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 2})
    assert all(entry.partial_shape[0].is_dynamic for entry in [*compiled.inputs, *compiled.outputs])
    results = compiled(dict(zip(compiled.inputs, given, strict=True)))
    return [results[entry] for entry in compiled.outputs]


def close(found, expected, tolerance):
    assert found.shape == expected.shape
    largest = np.abs(expected).max((1, 2, 3), keepdims=True)
    error = np.abs(found - expected) / np.maximum(largest, 1e-30)
    assert error.max() <= tolerance, f"off by {error.max()}"
