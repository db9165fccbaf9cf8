"""Tensors and images of a GPU: one side writes, the other reads, on streams of their own."""

import gc
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import unmetal  # noqa: E402
from gpus import LONG, gpu, stream  # noqa: E402, F401
from sources import Filters  # noqa: E402
from torch_judge import assert_close, gamma, of_sums  # noqa: E402
from unmetal import DataLayout, Image, ImageBatch, ImageDescriptor, ImageFeatureChannelFormat, mtl  # noqa: E402

planes = DataLayout.FeatureChannelsxHeightxWidth
formats = {torch.float32: ImageFeatureChannelFormat.Float32, torch.float16: ImageFeatureChannelFormat.Float16,
           torch.uint8: ImageFeatureChannelFormat.Unorm8}
numpy_types = {torch.float32: np.float32, torch.float16: np.float16, torch.uint8: np.uint8}


@pytest.fixture
def queue():
    return gpu.new_command_queue()


def image(height, width, channels, dtype=torch.float32):
    return Image(gpu, ImageDescriptor(formats[dtype], width, height, channels))


def counting(*shape, dtype=torch.float32):
    return torch.arange(int(np.prod(shape)), device="cuda").reshape(shape).to(dtype)


def elements(queue, image, dtype=torch.float32):
    """A copy of those of an image of the GPU."""
    with queue.command_buffer() as command_buffer:
        image.synchronize(command_buffer)
    read = np.empty((image.height, image.width, image.feature_channels), numpy_types[dtype])
    image.read_bytes(read)
    return read


def copied(queue, source, result):
    """A kernel that copies an image."""
    with queue.command_buffer() as command_buffer:
        unmetal.CNNPoolingMax(gpu, 1, 1).encode(command_buffer, source, result)


def until(condition):
    """The library lets go of what a command buffer needed on a thread of its own."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("dtype", formats)
def test_a_tensor_over_an_image(queue, stream, dtype):
    made = image(2, 3, 5, dtype)
    assert made.__dlpack_device__() == (2, 0)
    tensor = torch.from_dlpack(made)
    assert tensor.device == torch.device("cuda", 0) and tuple(tensor.shape) == (2, 3, 5) and tensor.dtype == dtype
    assert tensor.data_ptr() == torch.from_dlpack(made).data_ptr() and not tensor.any()
    tensor.copy_(counting(2, 3, 5, dtype=dtype))
    torch.cuda.synchronize()
    assert np.array_equal(elements(queue, made, dtype), counting(2, 3, 5, dtype=dtype).cpu())
    made.write_bytes(np.full((2, 3, 5), 7, numpy_types[dtype]))
    assert (torch.from_dlpack(made) == 7).all() and (tensor == 7).all()


@pytest.mark.parametrize("dtype", formats)
def test_an_image_over_a_tensor(queue, stream, dtype):
    tensor, other = counting(2, 3, 5, dtype=dtype), image(2, 3, 5, dtype)
    made = Image.from_array(gpu, tensor, copy=False)
    assert torch.from_dlpack(made).data_ptr() == tensor.data_ptr()
    assert made.feature_channel_format == formats[dtype] and made.resource_size == 0
    assert np.array_equal(elements(queue, made, dtype), tensor.cpu())
    tensor += 1
    torch.cuda.synchronize()
    assert np.array_equal(elements(queue, made, dtype), tensor.cpu())
    if dtype.is_floating_point:  # kernels only read the others
        copied(queue, other, made)
        assert not tensor.any()
    made.write_bytes(np.full((2, 3, 5), 9, numpy_types[dtype]))
    assert (tensor == 9).all()


def test_part_of_a_tensor(queue):
    whole = counting(6, 8, 3)
    result = torch.zeros(4, 4, 3, device="cuda")
    copied(queue, Image.from_array(gpu, whole[1:5, 2:6], copy=False), Image.from_array(gpu, result, copy=False))
    assert torch.equal(result, whole[1:5, 2:6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_channels_last_tensors_are_batches(queue, stream, dtype):
    tensor = torch.randn(2, 3, 4, 6, device="cuda").to(dtype).contiguous(memory_format=torch.channels_last)
    result = torch.full((2, 3, 2, 3), float("nan"), device="cuda", dtype=dtype).contiguous(memory_format=torch.channels_last)
    pool = unmetal.CNNPoolingMax(gpu, 2, 2, 2, 2)
    pool.offset = unmetal.Offset(1, 1, 0)
    with queue.command_buffer() as command_buffer:
        pool.encode_batch(command_buffer, ImageBatch.from_array(gpu, tensor, planes, copy=False),
                          ImageBatch.from_array(gpu, result, planes, copy=False))
    assert torch.equal(result, torch.nn.functional.max_pool2d(tensor, 2))
    stack = Image.from_array(gpu, tensor.permute(0, 2, 3, 1), copy=False)
    assert torch.equal(torch.from_dlpack(stack), tensor.permute(0, 2, 3, 1))
    assert torch.from_dlpack(stack.batch_representation(1, 1)).data_ptr() == tensor[1].data_ptr()


def test_what_cannot_be_shared():
    cpu = mtl.create_system_default_device()
    tensor = counting(2, 3, 4)
    for device, array, layout, sentence in (
            (cpu, tensor, None, "array is on another device, memory of a GPU, expected memory of the host, or of device cpu"),
            (gpu, tensor, planes, "channels that are not adjacent, memory of a GPU"),
            (gpu, tensor[..., ::2], None, "channels that are not adjacent"),
            (gpu, tensor[:1].expand(3, 3, 4), None, "strides that overlap or run backwards, memory of a GPU"),
            (gpu, tensor.double(), None, "array is float64, expected float32"),
            (gpu, tensor.bfloat16(), None, "array is bfloat16"),
            (gpu, tensor[0], None, "array is 2-dimensional"),
            (gpu, tensor[:0], None, "image_descriptor is float32 3x0x4")):
        with pytest.raises(unmetal.ArgumentError, match=sentence):
            Image.from_array(device, array, *([] if layout is None else [layout]))
    with pytest.raises(unmetal.ArgumentError, match="array is memory of a GPU, expected memory of the host"):
        Image.from_array(gpu, tensor, copy=True)
    with pytest.raises(unmetal.ArgumentError, match="on another device, expected memory that can be shared"):
        Image.from_array(gpu, tensor.cpu(), copy=False)
    with pytest.raises(unmetal.ArgumentError, match="memory of a GPU"):
        unmetal.NDArray.from_array(gpu, tensor)
    with pytest.raises(TypeError):
        image(2, 3, 4).write_bytes(tensor)
    with pytest.raises(TypeError, match="weights is .*, expected an array on the host"):
        unmetal.CNNConvolution(gpu, Filters(torch.zeros(4, 1, 1, 4, device="cuda")))


def test_arrays_of_the_host_are_copied(queue):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    made = Image.from_array(gpu, array)
    tensor = torch.from_dlpack(made)
    assert np.array_equal(tensor.cpu(), array)
    array[:] = 0
    assert tensor.any()


def test_numpy_has_no_arrays_of_a_gpu():
    made = image(2, 3, 4)
    for call in (lambda: np.asarray(made), lambda: np.asarray(ImageBatch([made])),
                 lambda: np.asarray(unmetal.Vector.from_array(gpu, counting(3)))):
        with pytest.raises(unmetal.ArgumentError, match="device is cuda:0, expected the host's for NumPy"):
            call()
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(made)


def test_temporary_and_private_images(queue):
    command_buffer = queue.command_buffer()
    descriptor = ImageDescriptor(ImageFeatureChannelFormat.Float32, 4, 4, 4)
    scratch = unmetal.TemporaryImage(command_buffer, descriptor)
    with pytest.raises(unmetal.ArgumentError, match="array is of a temporary image"):
        torch.from_dlpack(scratch)
    scratch = unmetal.CNNPoolingMax(gpu, 1, 1).encode(command_buffer, image(4, 4, 4))
    scratch.read_count = 0
    with pytest.raises(unmetal.Error, match="read_count is 0, written by CNNPoolingMax"):
        unmetal.CNNPoolingMax(gpu, 1, 1).encode(command_buffer, scratch)
    descriptor.storage_mode = mtl.StorageMode.Private
    with pytest.raises(unmetal.ArgumentError, match="array is of a private image"):
        torch.from_dlpack(Image(gpu, descriptor))


def test_capsules():
    """The protocol: any stream, versioned for those who ask for that; copies and other devices are refused."""
    made, own = image(2, 3, 4), torch.cuda.Stream()
    made.write_bytes(np.full((2, 3, 4), 5, np.float32))
    for stream in (None, -1, 1, 2, own.cuda_stream):
        for version, name in ((None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned")):
            capsule = made.__dlpack__(stream=stream, max_version=version)
            assert f'"{name}"' in repr(capsule)
            assert (torch.utils.dlpack.from_dlpack(capsule) == 5).all()
    assert (torch.utils.dlpack.from_dlpack(made.__dlpack__()) == 5).all()
    for wrong in ({"copy": True}, {"dl_device": (1, 0)}, {"dl_device": (2, 1)}):
        with pytest.raises(BufferError):
            made.__dlpack__(max_version=(1, 0), **wrong)
    before = gpu.current_allocated_size
    capsule = made.__dlpack__()
    del made
    assert gpu.current_allocated_size == before
    del capsule
    gc.collect()
    assert gpu.current_allocated_size < before


def test_a_kernel_reads_what_pytorch_is_still_making(queue, stream):
    tensor, result = torch.zeros(64, 64, 8, device="cuda"), torch.zeros(64, 64, 8, device="cuda")
    torch.cuda._sleep(LONG)
    tensor.fill_(3)
    copied(queue, Image.from_array(gpu, tensor, copy=False), Image.from_array(gpu, result, copy=False))
    assert (result == 3).all()
    torch.cuda._sleep(LONG)
    tensor.fill_(4)
    torch.cuda.current_stream().synchronize()  # shared already: later changes are waited for by whoever makes them
    copied(queue, Image.from_array(gpu, tensor, copy=False), Image.from_array(gpu, result, copy=False))
    assert (result == 4).all()


def test_pytorch_reads_what_a_kernel_has_made(queue, stream):
    source = Image.from_array(gpu, np.full((512, 512, 64), 1, np.float32))
    for step in range(5):
        result = image(512, 512, 64)
        copied(queue, source, result)
        assert (torch.from_dlpack(result) == 1).all(), step


def test_zeros_and_copies_of_the_host_come_before_what_pytorch_does(stream):
    ones = np.ones((512, 1024, 16), np.float32)
    for step in range(5):
        tensor = torch.from_dlpack(image(2048, 1024, 128)).fill_(7)  # whose zeros take longer than a kernel to be started
        torch.cuda.synchronize()
        assert (tensor == 7).all(), step
        written = image(*ones.shape)
        written.write_bytes(ones)
        assert (torch.from_dlpack(written).clone() == 1).all(), step


def test_memory_lives_as_long_as_its_tensors(queue, stream):
    tensor = torch.from_dlpack(image(256, 256, 16)).fill_(3)
    gc.collect()
    others = [Image.from_array(gpu, np.full((256, 256, 16), 9, np.float32)) for _ in range(4)]
    assert (tensor == 3).all() and len(others) == 4


def test_tensors_live_as_long_as_their_images(queue, stream):
    before = torch.cuda.memory_allocated()
    tensor = torch.full((256, 256, 16), 3.0, device="cuda")
    made = Image.from_array(gpu, tensor, copy=False)
    del tensor
    others = [torch.full((256, 256, 16), 9.0, device="cuda") for _ in range(4)]
    assert (elements(queue, made) == 3).all() and len(others) == 4
    del others, made
    gc.collect()
    until(lambda: torch.cuda.memory_allocated() == before)


def test_memory_that_pytorch_still_reads_is_not_used_again(stream):
    """The work that reads the tensor is on its stream when tensor and image are let go."""
    for step in range(3):
        tensor = torch.from_dlpack(image(256, 256, 16)).fill_(3)
        torch.cuda._sleep(LONG)
        result = tensor.clone()
        del tensor
        gc.collect()
        others = [Image.from_array(gpu, np.full((256, 256, 16), 9, np.float32)) for _ in range(4)]
        assert (result == 3).all() and len(others) == 4, step


def test_tensors_that_kernels_still_read_are_not_used_again(queue, stream):
    result = torch.zeros(512, 512, 64, device="cuda")
    for step in range(3):
        pools = [unmetal.CNNPoolingMax(gpu, 15, 15) for _ in range(4)]
        command_buffer = queue.command_buffer()
        tensor = torch.full((512, 512, 64), 3.0, device="cuda")
        made = Image.from_array(gpu, tensor, copy=False)
        for pool in pools:
            pool.encode(command_buffer, made, Image.from_array(gpu, result, copy=False))
        command_buffer.commit()
        del made, tensor
        others = [torch.full((512, 512, 64), 9.0, device="cuda") for _ in range(4)]
        command_buffer.throw_if_failed()
        assert (result == 3).all() and len(others) == 4, step


def test_steps_of_many_kernels_on_new_tensors(queue, stream):
    """What comes again is replayed, with the addresses of the step."""
    pools = [unmetal.CNNPoolingMax(gpu, 1, 1) for _ in range(6)]
    kept = []
    for step in range(20):
        source, result = counting(16, 16, 4) + step, torch.zeros(16, 16, 4, device="cuda")
        kept += [source] if step % 3 else []
        with queue.command_buffer() as command_buffer:
            passed = Image.from_array(gpu, source, copy=False)
            for pool in pools[:-1]:
                passed = pool.encode(command_buffer, passed)
            pools[-1].encode(command_buffer, passed, Image.from_array(gpu, result, copy=False))
        assert torch.equal(result, source), step


def test_the_gpu_is_waited_for_while_kernels_are_captured(queue):
    """Command buffers are committed, not waited for; what comes for the second time is captured."""
    tensor, results = torch.full((16, 16, 4), 3.0, device="cuda"), []
    for _ in range(30):
        pools = [unmetal.CNNPoolingMax(gpu, 1, 1) for _ in range(12)]
        for _ in range(2):
            result = torch.zeros(16, 16, 4, device="cuda")
            passed, destination = (Image.from_array(gpu, each, copy=False) for each in (tensor, result))
            command_buffer = queue.command_buffer()
            for pool in pools[:-1]:
                passed = pool.encode(command_buffer, passed)
            pools[-1].encode(command_buffer, passed, destination)
            command_buffer.commit()
            results.append((command_buffer, result))
        for _ in range(20):
            torch.from_dlpack(Image.from_array(gpu, tensor, copy=False))
    for command_buffer, result in results:
        command_buffer.throw_if_failed()
        assert (result == 3).all()


def test_threads(queue):
    """Some wait for the GPU while others run."""
    failures = []

    def work(number):
        own = gpu.new_command_queue()
        for _ in range(20):
            tensor, result = torch.full((32, 32, 4), float(number), device="cuda"), torch.zeros(32, 32, 4, device="cuda")
            copied(own, Image.from_array(gpu, tensor, copy=False), Image.from_array(gpu, result, copy=False))
            if not (result == number).all() or torch.from_dlpack(image(8, 8, 4)).any():
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_convolution(queue, stream, random):
    """Result and gradients of tensors, against PyTorch in float64."""
    x = torch.tensor(random.standard_normal((4, 32, 17, 19)), dtype=torch.float32, device="cuda")
    x = x.contiguous(memory_format=torch.channels_last)
    w = torch.tensor(random.standard_normal((24, 32, 3, 3)), dtype=torch.float32)
    g = torch.tensor(random.standard_normal((4, 24, 17, 19)), dtype=torch.float32, device="cuda")
    g = g.contiguous(memory_format=torch.channels_last)
    y, dx = torch.full_like(g, float("nan")), torch.full_like(x, float("nan"))
    filters = Filters(np.ascontiguousarray(w.permute(0, 2, 3, 1)))
    forward, gradient = unmetal.CNNConvolution(gpu, filters), unmetal.CNNConvolutionGradient(gpu, filters)
    batch = {name: ImageBatch.from_array(gpu, tensor, planes, copy=False)
             for name, tensor in (("x", x), ("y", y), ("g", g), ("dx", dx))}
    states = forward.result_state_batch(batch["x"])
    with queue.command_buffer() as command_buffer:
        forward.encode_batch(command_buffer, batch["x"], states, batch["y"])
        gradient.encode_batch(command_buffer, batch["g"], batch["x"], gradient_states=states,
                              destination_gradients=batch["dx"])
        states[0].gradient_for_weights.synchronize(command_buffer)
    dw = states[0].gradient_for_weights.contents.view(np.float32).reshape(24, 3, 3, 32).transpose(0, 3, 1, 2)

    def theirs(x, w):
        return torch.nn.functional.conv2d(x, w, padding=1)

    wide = [tensor.detach().cpu().double().requires_grad_() for tensor in (x, w)]
    expected = theirs(*wide)
    expected.backward(g.cpu().double())
    allowed = of_sums(theirs, [9 * 32 + 2, 9 * 24 + 2, x[:, 0].numel() + 2])
    bounds = allowed([tensor.detach().numpy() for tensor in wide], g.cpu().double().numpy())
    for name, found, exact, bound in (("result", y.cpu(), expected.detach(), bounds[0]), ("dx", dx.cpu(), wide[0].grad, bounds[1]),
                                      ("dw", dw, wide[1].grad, bounds[2])):
        assert_close(name, found, exact, bound)


def test_matrices(queue, stream, random):
    a, b = (torch.tensor(random.standard_normal(shape), dtype=torch.float32, device="cuda") for shape in ((70, 90), (90, 50)))
    whole = torch.full((70, 64), float("nan"), device="cuda")
    left, right, result = (unmetal.Matrix.from_array(gpu, tensor, copy=False) for tensor in (a, b, whole[:, :50]))
    with queue.command_buffer() as command_buffer:
        unmetal.MatrixMultiplication(gpu, 70, 50, 90).encode(command_buffer, left, right, result)
    bound = gamma(92) * (a.double().abs() @ b.double().abs()).cpu().numpy()
    assert_close("product", whole[:, :50].cpu(), (a.double() @ b.double()).cpu().numpy(), bound)
    assert torch.isnan(whole[:, 50:]).all() and torch.from_dlpack(result).data_ptr() == whole.data_ptr()
    vector = unmetal.Vector.from_array(gpu, a[0], copy=False)
    assert torch.equal(torch.from_dlpack(vector), a[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_tensors_that_begin_anywhere(queue, dtype):
    """Elements are aligned, rows of 16 bytes are not. An address that a kernel cannot take would end the process's use of the
    GPU: the last test here."""
    for offset in (1, 2, 3):
        memory, target = counting(offset + 8 * 8 * 16, dtype=dtype), torch.zeros(offset + 8 * 8 * 16, device="cuda", dtype=dtype)
        source, result = (flat[offset:].view(8, 8, 16) for flat in (memory, target))
        copied(queue, Image.from_array(gpu, source, copy=False), Image.from_array(gpu, result, copy=False))
        assert torch.equal(result, source)
        weights = np.zeros((16, 1, 1, 16), np.float32)
        weights[range(16), 0, 0, range(16)] = 1
        result.fill_(float("nan"))
        torch.cuda.synchronize()
        with queue.command_buffer() as command_buffer:
            unmetal.CNNConvolution(gpu, Filters(weights)).encode(
                command_buffer, Image.from_array(gpu, source, copy=False), Image.from_array(gpu, result, copy=False))
        assert torch.equal(result, source) and not target[:offset].any()
