"""Files of weights."""

import json
import struct

import numpy as np
import pytest

import unmetal
from unmetal import DataType, SafetensorsFile, SafetensorsTensor


def test_written_and_read_again(tmp_path, random):
    path = tmp_path / "weights.safetensors"
    arrays = {"a": random.standard_normal((2, 3)).astype(np.float32), "b": np.arange(4, dtype=np.uint64),
              "half": random.standard_normal((2, 2)).astype(np.float16), "one": np.array(7, np.uint64),
              "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T}
    unmetal.write_safetensors(path, arrays, {"kind": "test"})
    file = SafetensorsFile.read(path)
    assert {tensor.name for tensor in file.tensors} == set(arrays)
    assert file.metadata["kind"] == "test"
    for name, array in arrays.items():
        tensor = file.tensor(name)
        assert tensor.shape == list(array.shape) and np.array_equal(tensor.array, array)
        assert tensor.array.dtype == array.dtype and len(tensor.bytes) == array.nbytes
    assert file.contains("a") and "a" in file and "z" not in file
    assert file.tensor("a", DataType.Float32, [2, 3]).name == "a"
    assert np.array_equal(file.floats("half", [2, 2]), arrays["half"].astype(np.float32))
    assert file.unsigned_number("one") == 7
    kept = file.tensor("a").array
    del file
    assert np.array_equal(kept, arrays["a"]) and not kept.flags.writeable


def test_a_header_is_read_without_the_tensors(tmp_path):
    path = tmp_path / "weights.safetensors"
    unmetal.write_safetensors(path, {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}, {"kind": "test"})
    header = unmetal.SafetensorsHeader.read(path)
    assert header.data_length == 24 and header.metadata["kind"] == "test" and "a" in header
    assert header.tensor("a").shape == [2, 3] and len(header.tensor("a").bytes) == 0
    file = SafetensorsFile.read(header)
    assert np.array_equal(file.tensor("a").array, np.arange(6, dtype=np.float32).reshape(2, 3))


def test_others_read_the_same_file(tmp_path):
    path = str(tmp_path / "weights.safetensors")
    unmetal.write_safetensors(path, [SafetensorsTensor("a", np.arange(3, dtype=np.float32))])
    data = open(path, "rb").read()
    length, = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8:8 + length])["a"]
    assert entry["dtype"] == "F32" and entry["shape"] == [3]
    begin, end = entry["data_offsets"]
    assert np.frombuffer(data[8 + length + begin:8 + length + end], np.float32).tolist() == [0, 1, 2]
    assert SafetensorsFile.parse(data, "memory").tensor("a").array.tolist() == [0, 1, 2]


def test_what_is_wrong(tmp_path):
    with pytest.raises(unmetal.Error, match="missing.safetensors"):
        SafetensorsFile.read(tmp_path / "missing.safetensors")
    with pytest.raises(unmetal.Error, match="memory"):
        SafetensorsFile.parse(b"\xff" * 40, "memory")
    path = tmp_path / "weights.safetensors"
    unmetal.write_safetensors(path, {"a": np.zeros(2, np.float32)})
    file = SafetensorsFile.read(path)
    for wrong in (lambda: file.tensor("b"), lambda: file.tensor("a", DataType.Float16, [2]),
                  lambda: file.floats("a", [3]), lambda: file.unsigned_number("a"),
                  lambda: unmetal.write_safetensors(path, {"a": np.zeros(2, np.complex64)}),
                  lambda: unmetal.write_safetensors(path, {"__metadata__": np.zeros(2, np.float32)}),
                  lambda: unmetal.write_safetensors(tmp_path / "no" / "folder", {})):
        with pytest.raises(unmetal.Error):
            wrong()
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    with pytest.raises(unmetal.Error):
        SafetensorsFile.parse(bytes(damaged), "damaged")
    with pytest.raises(TypeError):
        SafetensorsTensor("a", np.zeros((3, 3), np.float32).T[::2])
