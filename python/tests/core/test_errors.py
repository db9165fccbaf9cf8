"""Wrong use raises the library's sentence; nothing ends the interpreter."""

import subprocess
import sys

import numpy as np
import pytest

import unmetal
from unmetal import Image, ImageDescriptor, ImageFeatureChannelFormat, mtl

float32 = ImageFeatureChannelFormat.Float32


def test_the_classes_of_errors():
    assert issubclass(unmetal.Error, RuntimeError)
    assert issubclass(unmetal.ArgumentError, unmetal.Error) and issubclass(unmetal.ArgumentError, ValueError)
    assert issubclass(unmetal.ArgumentIndexError, unmetal.ArgumentError)
    assert issubclass(unmetal.ArgumentIndexError, IndexError)
    assert mtl.Error is unmetal.Error


def test_parts_of_the_sentence(device, image_of):
    wrong = image_of(np.zeros((4, 4, 1), np.uint8))
    pool = unmetal.CNNPoolingMax(device, 2, 2)
    pool.label = "pool1"
    with pytest.raises(unmetal.ArgumentError) as caught:
        pool.encode(device.new_command_queue().command_buffer(), image_of(np.zeros((4, 4, 1), np.float32)), wrong)
    error = caught.value
    assert str(error) == f"{error.kernel}: {error.argument} is {error.found}, expected {error.expected}"
    assert error.kernel == 'CNNPoolingMax "pool1"' and error.argument == "destination_image"
    with pytest.raises(unmetal.Error) as caught:
        mtl.device_named("abacus")
    assert caught.value.kernel == "" and "abacus" in str(caught.value)


def test_a_read_after_the_count_reached_zero(device, queue, image_of):
    pool = unmetal.CNNPoolingMax(device, 2, 2, 2, 2)
    command_buffer = queue.command_buffer()
    image = pool.encode(command_buffer, image_of(np.zeros((4, 4, 1), np.float32)))
    assert image.read_count == 1
    pool.encode(command_buffer, image)
    assert image.read_count == 0
    with pytest.raises(unmetal.Error, match="read_count is 0, written by CNNPoolingMax"):
        pool.encode(command_buffer, image)
    with pytest.raises(unmetal.Error, match="read_count is set after it reached 0"):
        image.read_count = 2


def test_objects_of_another_device(device, queue, image_of, poisoned):
    other = mtl.new_cpu_device(1)
    pool = unmetal.CNNPoolingMax(other, 2, 2)
    source, result = image_of(np.zeros((4, 4, 1), np.float32)), poisoned(4, 4, 1)
    with pytest.raises(unmetal.Error, match="device"):
        pool.encode(queue.command_buffer(), source, result)
    with pytest.raises(unmetal.Error, match="device"):
        pool.copy(device).encode(other.new_command_queue().command_buffer(), source, result)
    with pytest.raises(unmetal.Error, match="cuda"):
        mtl.device_named("cuda:99")


def test_wrong_formats_and_sizes(device, queue, image_of, poisoned):
    pool = unmetal.CNNPoolingMax(device, 2, 2, 2, 2)
    source = image_of(np.zeros((4, 4, 2), np.float32))
    command_buffer = queue.command_buffer()
    with pytest.raises(unmetal.ArgumentError, match="unorm8"):
        pool.encode(command_buffer, source, image_of(np.zeros((2, 2, 2), np.uint8)))
    with pytest.raises(unmetal.ArgumentError, match="destination"):
        pool.encode(command_buffer, source, poisoned(2, 2, 1))
    with pytest.raises(unmetal.ArgumentError, match="batch|images"):
        pool.encode_batch(command_buffer, [source, source], [poisoned(2, 2, 2)])
    with pytest.raises(unmetal.ArgumentError):
        Image(device, ImageDescriptor(float32, 0, 1, 1))
    with pytest.raises(unmetal.Error, match="commit|committed"):
        command_buffer.commit()
        pool.encode(command_buffer, source)


def test_wrong_types_are_type_errors(device, queue):
    pool = unmetal.CNNPoolingMax(device, 2, 2)
    for wrong in (lambda: pool.encode(None, 3), lambda: pool.encode(queue, queue), lambda: Image(device),
                  lambda: unmetal.CNNPoolingMax(device, -1, 2), lambda: unmetal.CNNPoolingMax(device, 2.5, 2),
                  lambda: unmetal.CNNPooling(device), lambda: unmetal.Kernel(), lambda: mtl.Device(),
                  lambda: mtl.CommandBuffer(), lambda: unmetal.CNNKernel(device), lambda: unmetal.State()):
        with pytest.raises(TypeError):
            wrong()
    for name in ("offset", "clip_rect", "destination_image_allocator", "label"):
        with pytest.raises(TypeError):
            setattr(pool, name, 3)
    for name in ("padding", "destination_image_allocator"):
        with pytest.raises((TypeError, unmetal.Error)):
            setattr(pool, name, None)
    with pytest.raises(AttributeError):
        pool.device = device


def test_a_wrong_type_names_the_argument(device, queue, image_of):
    pool = unmetal.CNNPoolingMax(device, 2, 2)
    image = image_of(np.zeros((4, 4, 1), np.float32))
    for wrong, sentence in (
            (lambda: unmetal.CNNPoolingMax(device, "two", 2), "CNNPoolingMax: kernel_width is 'two' (str), expected int"),
            (lambda: unmetal.CNNPoolingMax(device, 2, kernel_height=2.5), "CNNPoolingMax: kernel_height is 2.5 (float), expected int"),
            (lambda: unmetal.CNNPoolingMax(device, -1, 2), "CNNPoolingMax: kernel_width is -1 (int), expected an int in range"),
            (lambda: unmetal.CNNPoolingMax(queue, 2, 2), "CNNPoolingMax: device is of type CommandQueue, expected mtl.Device"),
            (lambda: unmetal.CNNPoolingMax(device, 2), "CNNPoolingMax: missing a required argument: 'kernel_height'"),
            (lambda: unmetal.CNNPoolingMax(device, 2, 2, stride=2), "CNNPoolingMax: got an unexpected keyword argument 'stride'"),
            (lambda: pool.encode(None, image), "CNNKernel.encode: command_buffer is None, expected mtl.CommandBuffer"),
            (lambda: pool.encode(queue.command_buffer(), image, 3), "CNNKernel.encode: destination_image is 3 (int), expected Image"),
            (lambda: setattr(pool, "edge_mode", unmetal.DataType.Float32),
             "CNNKernel.edge_mode: the value is DataType.Float32, expected ImageEdgeMode"),
            (lambda: setattr(pool, "edge_mode", 1), "CNNKernel.edge_mode: the value is 1 (int), expected ImageEdgeMode"),
            (lambda: unmetal.ImageBatch(image), "ImageBatch: images is of type Image, expected Sequence[Image]")):
        with pytest.raises(TypeError) as caught:
            wrong()
        lines = str(caught.value).splitlines()
        assert lines[0] == sentence
        assert any("incompatible function arguments" in line for line in lines[1:]), "the overloads follow"


def test_what_a_callback_raises_stays(device, queue, image_of):
    class Wrong(unmetal.ImageAllocator):
        def image(self, command_buffer, descriptor, kernel):
            return unmetal.CNNPoolingMax(kernel.device, "two", 2)

    pool = unmetal.CNNPoolingMax(device, 2, 2)
    pool.destination_image_allocator = Wrong()
    with pytest.raises(TypeError) as caught:
        pool.encode(queue.command_buffer(), image_of(np.zeros((4, 4, 1), np.float32)))
    assert str(caught.value).startswith("CNNPoolingMax: kernel_width is 'two'")


def test_messages_have_the_names_of_python(device, queue, image_of):
    with pytest.raises(unmetal.ArgumentError, match="kernel_width is 0") as caught:
        unmetal.CNNPoolingMax(device, 0, 2)
    assert caught.value.argument == "kernel_width"
    with pytest.raises(unmetal.ArgumentError, match="max_command_buffer_count is 0"):
        device.new_command_queue(0)
    pool = unmetal.CNNPoolingMax(device, 2, 2)
    pool.label = "myLabel"
    with pytest.raises(unmetal.ArgumentError, match='"myLabel": destination_image is unorm8'):
        pool.encode(queue.command_buffer(), image_of(np.zeros((4, 4, 1), np.float32)), image_of(np.zeros((4, 4, 1), np.uint8)))


def classes():
    """All classes of the module."""
    for module in (unmetal, mtl):
        yield from (found for name, found in vars(module).items() if isinstance(found, type))


@pytest.mark.filterwarnings("ignore:nanobind")
@pytest.mark.parametrize("bound", sorted(set(classes()), key=lambda bound: bound.__name__), ids=lambda bound: bound.__name__)
def test_none_for_every_argument(bound, device):
    """An object that was never initialised, None and strange values raise, whatever the method."""
    raw = None
    try:
        raw = bound.__new__(bound)
    except (TypeError, ValueError, unmetal.Error):
        pass
    for name in dir(bound):
        member = getattr(bound, name, None)
        if name.startswith("__") or not callable(member):
            continue
        for arguments in ((), (None,), (None, None), (None, None, None), (raw,), (raw, None, None), (device, None)):
            try:
                member(*arguments)
            except Exception:  # noqa: BLE001  any exception will do
                pass


def test_an_index_error_ends_a_loop(device):
    batch = unmetal.ImageBatch(device, ImageDescriptor(float32, 2, 2, 1), 3)
    assert len(list(batch)) == 3 and batch[-1] is batch[2]
    with pytest.raises(IndexError):
        batch[3]


@pytest.mark.parametrize("waiting", (
    "with queue.command_buffer(): pass", "command_buffer = queue.command_buffer(); command_buffer.commit(); "
    "command_buffer.wait_until_completed()", "unmetal.write_safetensors(path, {'x': np.zeros(100000, np.float32)})"))
def test_leaving_while_another_thread_waits(waiting, tmp_path):
    """A daemon thread inside the library keeps nobody from leaving, nor ends the process in another way."""
    program = f"""
import threading, time
import numpy as np, unmetal
path = {str(tmp_path / "file")!r}
def work():
    queue = unmetal.mtl.create_system_default_device().new_command_queue()
    while True:
        {waiting}
threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_waiting_while_the_interpreter_ends():
    """Functions that run at exit may use the library."""
    program = """
import atexit
atexit.register(lambda: (wait(), print("waited")))
import unmetal
queue = unmetal.mtl.create_system_default_device().new_command_queue()
def wait():
    with queue.command_buffer():
        pass
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "waited\n", "")


def test_leaving_with_work_in_flight_and_objects_alive():
    """The process ends by itself, says nothing and leaks nothing that nanobind would report."""
    program = """
import numpy as np, unmetal
from unmetal import mtl
class Mine(unmetal.ImageAllocator):
    def image(self, command_buffer, descriptor, kernel):
        return unmetal.Image(command_buffer.device, descriptor)
device = mtl.create_system_default_device()
queue = device.new_command_queue()
pool = unmetal.CNNPoolingMax(device, 3, 3)
pool.destination_image_allocator = Mine()
image = unmetal.Image.from_array(device, np.zeros((256, 256, 16), np.float32))
view = np.asarray(image)
for _ in range(8):
    command_buffer = queue.command_buffer()
    command_buffer.add_completed_handler(lambda done: None)
    result = pool.encode(command_buffer, image)
    command_buffer.commit()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
