"""Data sources written in Python: what the library calls and when, what they raise, and how long they live."""

import gc
import threading
import weakref

import numpy as np
import pytest

import unmetal
from sources import Filters


def filters():
    return Filters(np.ones((1, 1, 1, 1), np.float32))


def test_a_failing_load_raises_the_sentence(device):
    class Absent(Filters):
        def load(self):
            super().load()
            return False

    source = Absent(np.ones((1, 1, 1, 1), np.float32))
    with pytest.raises(unmetal.Error, match='a data source "filters" whose load\\(\\) failed'):
        unmetal.CNNConvolution(device, source)
    assert source.calls == ["load"]


def test_what_a_source_raises_arrives_as_it_is(device):
    class Broken(Filters):
        def load(self):
            raise KeyError("no such file")

    with pytest.raises(KeyError, match="no such file"):
        unmetal.CNNConvolution(device, Broken(np.ones((1, 1, 1, 1), np.float32)))

    class BrokenWeights(unmetal.CNNConvolutionDataSource):
        descriptor = unmetal.CNNConvolutionDescriptor(1, 1, 1, 1)

        @property
        def weights(self):
            raise ZeroDivisionError("weights")

    with pytest.raises(ZeroDivisionError, match="weights"):
        unmetal.CNNConvolution(device, BrokenWeights())


def test_what_purge_raises_does_not_stop_anything(device, monkeypatch):
    class Broken(Filters):
        def purge(self):
            raise ValueError("purge")

    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda raised: seen.append(raised.exc_type))
    unmetal.CNNConvolution(device, Broken(np.ones((1, 1, 1, 1), np.float32)))
    assert seen == [ValueError]


def test_attributes_may_be_properties_and_of_the_class(device, queue):
    class Computed(unmetal.CNNConvolutionDataSource):
        descriptor = unmetal.CNNConvolutionDescriptor(1, 1, 1, 2)
        reads = 0

        @property
        def weights(self):
            self.reads += 1
            return np.array([[[[1.0]]], [[[2.0]]]], np.float32)

    source = Computed()
    convolution = unmetal.CNNConvolution(device, source)
    assert source.reads == 1  # once for each load
    convolution.reload_weights_and_biases_from_data_source()
    assert source.reads == 2
    assert source.load() is True and source.purge() is None  # C++'s defaults
    assert source.copy(device) is None and source.device_weights_and_biases(device) is None


def test_a_source_may_keep_its_weights_on_the_device(device, queue):
    class Live(Filters):
        def device_weights_and_biases(self, device):
            return self.state

    source = filters()
    source.__class__ = Live
    source.state = unmetal.CNNConvolutionWeightsAndBiasesState(device, source.descriptor)
    convolution = unmetal.CNNConvolution(device, source)
    convolution.destination_image_allocator = unmetal.Image.default_allocator()
    one = unmetal.Image.from_array(device, np.ones((1, 1, 1), np.float32))
    for value in (2, 5):
        source.state.weights.contents.view(np.float32)[:] = value
        source.state.weights.did_modify_range(0, 4)
        with queue.command_buffer() as command_buffer:
            result = convolution.encode(command_buffer, one)
        assert np.asarray(result).item() == value
    Live.device_weights_and_biases = lambda self, device: 3
    with pytest.raises(TypeError, match="what device_weights_and_biases"):
        unmetal.CNNConvolution(device, source)


def test_a_copy_may_have_a_source_of_its_own(device):
    class Copied(Filters):
        def copy(self, device):
            return Copied(self.weights * 2)

    source = Copied(np.ones((1, 1, 1, 1), np.float32))
    convolution = unmetal.CNNConvolution(device, source)
    for other in (convolution.copy(), convolution.copy(unmetal.mtl.new_cpu_device(1))):
        assert other.data_source is not source and other.data_source.weights.item() == 2
    assert convolution.data_source is source
    shared = filters()
    assert unmetal.CNNConvolution(device, shared).copy().data_source is shared


def test_kernels_keep_their_sources_alive_and_let_them_go(device, queue):
    source = filters()
    watched = weakref.ref(source)
    convolution = unmetal.CNNConvolution(device, source)
    array = weakref.ref(source.weights)
    del source
    gc.collect()
    assert watched() is not None and convolution.data_source is watched()
    convolution.reload_weights_and_biases_from_data_source()
    image = unmetal.Image.from_array(device, np.ones((1, 1, 1), np.float32))
    with queue.command_buffer() as command_buffer:
        _, state = convolution.encode(command_buffer, image, destination_state_is_temporary=False)
    del convolution
    assert watched() is state.convolution.data_source  # a state has its kernel
    del state, command_buffer
    gc.collect()
    assert watched() is None and array() is None


def test_nothing_leaks(device, queue):
    """As many objects after a thousand kernels, states and failures as after ten."""
    def round_of(count):
        for _ in range(count):
            source = filters()
            convolution = unmetal.CNNConvolution(device, source)
            gradient = unmetal.CNNConvolutionGradient(device, source)
            image = unmetal.Image.from_array(device, np.ones((1, 1, 1), np.float32))
            with queue.command_buffer() as command_buffer:
                result, state = convolution.encode(command_buffer, image, destination_state_is_temporary=False)
                gradient.encode(command_buffer, result, image, state)
            source.bias_terms = [1, 2, 3]
            with pytest.raises(unmetal.Error):
                convolution.reload_weights_and_biases_from_data_source()
        del source, convolution, gradient, image, result, state, command_buffer
        gc.collect()
        return sum(isinstance(kept, (Filters, unmetal.Kernel, unmetal.State)) for kept in gc.get_objects())

    before = round_of(10)
    used = device.current_allocated_size
    assert round_of(1000) == before
    assert device.current_allocated_size == used


def test_threads_may_share_a_source(device):
    class Fresh(unmetal.CNNConvolutionDataSource):
        descriptor = unmetal.CNNConvolutionDescriptor(3, 3, 16, 16)

        @property
        def weights(self):
            return np.full((16, 3, 3, 16), 2, np.float32)  # nobody but the library holds it

    source, failed = Fresh(), []

    def work():
        try:
            for _ in range(50):
                unmetal.CNNConvolution(device, source)
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.filterwarnings("ignore:nanobind")
def test_a_source_that_does_not_initialise_its_base_class(device):
    class Forgetful(unmetal.CNNConvolutionDataSource):
        def __init__(self):
            self.weights = np.zeros((1, 1, 1, 1), np.float32)

    source = Forgetful()
    with pytest.raises(TypeError, match="Forgetful is not initialised: its __init__ is to call super"):
        source.weights
    with pytest.raises(TypeError):
        unmetal.CNNConvolution(device, source)
