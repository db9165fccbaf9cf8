"""Several ranks, here threads of this process: sums, agreement, a graph and a trainer."""

import threading

import numpy as np
import pytest

import unmetal
from unmetal import Communicator, mtl, train


def run_ranks(size, work):
    """Calls work(communicator) for each rank on a thread of its own; what each has returned or raised."""
    communicators = Communicator.create_group([mtl.new_cpu_device(1) for _ in range(size)])
    results = [None] * size

    def run(rank):
        try:
            results[rank] = work(communicators[rank])
        except Exception as error:  # noqa: BLE001  looked at by the test
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def buffer_of(communicator, values):
    return communicator.device.new_buffer(np.asarray(values, np.float32))


def encoded(communicator, encode):
    command_buffer = communicator.device.new_command_queue().command_buffer()
    encode(command_buffer)
    command_buffer.commit()
    command_buffer.throw_if_failed()


def test_of_one_does_nothing():
    communicator = Communicator.from_environment(mtl.new_cpu_device(1))
    assert (communicator.rank, communicator.size, communicator.engine_name) == (0, 1, "none")
    assert communicator.gather("a") == ["a"]
    communicator.agree("--seed", "1")
    assert communicator.failure == "" and communicator.missing_ranks == []
    communicator.give_up()
    with pytest.raises(unmetal.Error, match="NCCL"):
        Communicator.from_environment(communicator.device, unmetal.CommunicatorEngine.Nccl)
    with pytest.raises(unmetal.Error):
        Communicator.describe_library(unmetal.CommunicatorEngine.Automatic)


def test_sums_gathers_and_broadcasts():
    def work(communicator):
        own = buffer_of(communicator, [1 + communicator.rank, 10])
        everything = buffer_of(communicator, np.zeros(2 * communicator.size))
        sums = buffer_of(communicator, [1 + communicator.rank, 10])
        first = buffer_of(communicator, [communicator.rank])

        def encode(command_buffer):
            communicator.all_gather(command_buffer, own, everything)
            communicator.all_reduce(command_buffer, sums)
            communicator.broadcast(command_buffer, first, root=2)
        encoded(communicator, encode)
        return [buffer.contents.view(np.float32).tolist() for buffer in (everything, sums, first)]

    assert run_ranks(3, work) == [[[1, 10, 2, 10, 3, 10], [6, 30], [2]]] * 3


def test_images_and_vectors():
    def work(communicator):
        images = unmetal.ImageBatch.from_array(communicator.device, np.full((2, 3, 4, 1), 1 + communicator.rank, np.float32))
        vector = unmetal.Vector(buffer_of(communicator, [communicator.rank] * 4), unmetal.VectorDescriptor(4, unmetal.DataType.Float32))

        def encode(command_buffer):
            communicator.all_reduce(command_buffer, images)
            communicator.all_reduce(command_buffer, vector)
            communicator.broadcast(command_buffer, images, 1)
            communicator.broadcast(command_buffer, vector, 1)
        encoded(communicator, encode)
        return float(np.asarray(images).min()), vector.data.contents.view(np.float32).tolist()

    assert run_ranks(2, work) == [(3.0, [1, 1, 1, 1])] * 2


def test_agreement_names_what_differs():
    def buffers(communicator):
        encoded(communicator, lambda command_buffer: communicator.agree(
            command_buffer, [("weights", buffer_of(communicator, [1])), ("biases", buffer_of(communicator, [communicator.rank]))]))
    for error in run_ranks(2, buffers):
        assert "biases differs between ranks 0 and 1" in str(error)
    for error in run_ranks(2, lambda communicator: communicator.agree("seed", str(communicator.rank))):
        assert str(error) == "seed is 0 on rank 0, but 1 on rank 1"


def test_a_rank_that_does_not_come_is_named():
    def work(communicator):
        communicator.set_timeout(20)
        if communicator.rank == 1:
            return None
        with pytest.raises(unmetal.Error, match="rank 1 of 2 did not come to it within 100 ms"):
            communicator.gather("a")
        return communicator.missing_ranks, communicator.failure.endswith("100 ms")
    assert run_ranks(2, work)[0] == ([1], True)


def small_network(device):
    network = train.Network((8, 8, 1), seed=3, device=device)
    network.input.convolution(4, 3, biases=False).batch_normalization().relu().dense(2)
    return network


def pictures():
    generator = np.random.default_rng(1)
    return train.Dataset(generator.random((26, 8, 8, 1), dtype=np.float32), np.arange(26) % 2)


def test_a_trainer_of_several_follows_one():
    def losses_of(device, communicator):
        losses = []
        trainer = train.Trainer(small_network(device), optimizer="momentum", epochs=3, batch_size=5, communicator=communicator,
                                on_step=lambda report: losses.append(report.loss) is None)
        data = pictures()
        trainer.fit(data)
        return losses, trainer.evaluate(data).count
    alone = losses_of(mtl.new_cpu_device(1), None)
    for losses, count in run_ranks(3, lambda communicator: losses_of(communicator.device, communicator)):
        assert count == 26
        np.testing.assert_allclose(losses, alone[0], rtol=1e-5)


def test_a_trainer_of_ranks_that_disagree_is_refused():
    def work(communicator):
        train.Trainer(small_network(communicator.device), batch_size=4 + communicator.rank, communicator=communicator,
                      synchronizes_batch_normalization=False, checks_agreement=False).fit(pictures())
    for error in run_ranks(2, work):
        assert "batch_size is 4 on rank 0, but 5 on rank 1" in str(error).replace("batchSize", "batch_size")


def test_a_graph_has_its_communicator():
    def work(communicator):
        device = communicator.device
        descriptor = unmetal.CNNConvolutionDescriptor(3, 3, 1, 2)
        layer = unmetal.TrainableConvolution(device, descriptor, "conv", seed=1 + communicator.rank,
                                             optimizer=unmetal.NNOptimizerStochasticGradientDescent(device, 0.1))
        node = unmetal.CNNConvolutionNode(unmetal.NNImageNode(), layer)
        loss = unmetal.CNNLossNode(node.result_image, unmetal.CNNLossDescriptor(
            unmetal.CNNLossType.MeanSquaredError, unmetal.CNNReductionType.Sum))
        graph = unmetal.NNGraph(device, loss.training_graph()[0].result_image, False)
        assert graph.communicator is None and not graph.synchronizes_batch_normalization
        graph.communicator = communicator
        graph.synchronizes_batch_normalization = True
        graph.set_batch_share(communicator.rank, 2)
        assert graph.communicator is communicator and graph.synchronizes_batch_normalization
        encoded(communicator, graph.encode_agreement)
    for error in run_ranks(2, work):
        assert '"conv": weights differs between ranks 0 and 1' in str(error)


def test_batch_statistics_are_gathered():
    whole = np.random.default_rng(2).random((4, 3, 3, 2), dtype=np.float32)

    def work(communicator):
        device = communicator.device
        own = whole[2 * communicator.rank:2 * communicator.rank + 2]
        images = unmetal.ImageBatch.from_array(device, own)
        layer = unmetal.TrainableBatchNormalization(device, 2, "bn")
        kernel = unmetal.CNNBatchNormalization(device, layer)
        statistics = unmetal.CNNBatchNormalizationStatistics(device)
        sums = unmetal.CNNBatchNormalizationStatisticsGradient(device)
        state = kernel.result_state(images[0])

        def encode(command_buffer):
            statistics.encode_batch(command_buffer, images, state)
            statistics.gather_statistics(command_buffer, communicator, 4 * 9, state)
            sums.encode_batch(command_buffer, images, images, state)
            sums.reduce_gradients(command_buffer, communicator, state)
            state.mean.synchronize(command_buffer)
        encoded(communicator, encode)
        return state.mean.contents.view(np.float32).tolist()

    for mean in run_ranks(2, work):
        np.testing.assert_allclose(mean, whole.mean((0, 1, 2)), rtol=1e-6)
