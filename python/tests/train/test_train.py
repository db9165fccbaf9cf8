"""Networks, data sets and the trainer from Python."""

import struct
import zlib

import numpy as np
import pytest

import unmetal
from unmetal import train

random = np.random.default_rng(1)


def bars(count):
    """Pictures with a bar that lies (0) or stands (1)."""
    labels = np.arange(count) % 2
    pictures = random.random((count, 8, 8, 1), np.float32) / 2
    for picture, place, stands in zip(pictures, random.integers(8, size=count), labels):
        picture[(slice(None), place) if stands else place] = 1
    return pictures, labels


def small_network(seed=1):
    network = train.Network((8, 8, 1), seed=seed)
    network.input.convolution(6, 5).relu().max_pool(2).dense(2)
    return network


def test_layers_and_shapes():
    network = train.Network((9, 8, 3))
    x = network.input.convolution(6, 3, stride=2, biases=False, label="stem").batch_normalization().leaky_relu(0.1)
    y = x.convolution(6, 3, groups=3).instance_normalization().tanh()
    x = (x + y).concatenate(y.group_normalization(2)).cross_channel_normalization()
    assert x.shape == (5, 4, 12)
    x = x.upsample(2, train.UpsamplingMode.Bilinear).max_pool(3, stride=2, padding=train.Padding.Same).average_pool(2)
    x = x.transposed_convolution(4, 2).dropout(0.25).global_average_pool().dense(3)
    assert (x.height, x.width, x.channels) == network.output_shape == (1, 1, 3)
    assert network.input_shape == (9, 8, 3)
    assert network.labels[:4] == ["input", "stem", "bn1", "leakyRelu1"]
    for activation in ("relu", "relu6", "gelu", "sigmoid", "hard_sigmoid", "softplus", "softsign", "softmax"):
        x = getattr(x, activation)()
    x = x.elu().add(x)
    assert network.parameter_count > 0 and "stem (convolution)" in network.summary()


def test_wrong_layers_are_refused():
    x = train.Network((8, 8, 1)).input
    with pytest.raises(unmetal.ArgumentError, match="input is 8x8x1, expected at least 9x9 pixels"):
        x.max_pool(9)
    with pytest.raises(unmetal.ArgumentError, match='convolution "conv1": stride is 0'):
        x.convolution(4, 3, stride=0)


def test_training_and_files(tmp_path):
    pictures, labels = bars(128)
    data = train.Dataset(pictures, labels, ["lies", "stands"])
    assert len(data) == 128 and data.shape == (8, 8, 1) and data.class_names == ["lies", "stands"]
    network = small_network()
    steps, epochs = [], []
    trainer = train.Trainer(network, epochs=12, batch_size=16, learning_rate=0.01, schedule="cosine",
                            on_step=lambda report: steps.append(report.loss) is None,
                            on_epoch=lambda report: epochs.append(report.epoch) is None)
    reports = trainer.fit(data, data)
    assert epochs == list(range(1, 13)) and len(steps) == 96 and reports[-1].loss < reports[0].loss
    assert trainer.evaluate(data).accuracy == reports[-1].validation.accuracy > 0.95
    probabilities = network.predict(pictures)
    assert probabilities.shape == (128, 2) and probabilities.dtype == np.float32
    assert np.allclose(probabilities.sum(axis=1), 1)
    network.save(tmp_path / "net.safetensors")
    loaded = train.Network.load(tmp_path / "net.safetensors")
    assert np.array_equal(loaded.predict(pictures), probabilities)
    other = small_network(2)
    other.load_weights(tmp_path / "net.safetensors")
    assert np.array_equal(trainer.predict(pictures[:, :, :, 0]), other.predict(pictures))


def test_the_same_seed_gives_the_same_numbers():
    pictures, labels = bars(64)
    found = []
    for _ in range(2):
        network = small_network()
        train.Trainer(network, epochs=1, batch_size=16, optimizer="momentum").fit(train.Dataset(pictures, labels))
        found.append(network.predict(pictures))
    assert np.array_equal(*found)


def test_bytes_are_numbers_over_255():
    pictures = random.integers(256, size=(6, 8, 8), dtype=np.uint8)
    network = small_network()
    assert np.array_equal(network.predict(pictures), network.predict(pictures.astype(np.float32) / np.float32(255)))
    picture, label = train.Dataset(pictures, np.full(6, 3, np.uint8)).load(-1)
    assert label == 3 and picture.shape == (8, 8, 1) and np.array_equal(picture[:, :, 0], pictures[5] / np.float32(255))


def test_callbacks_stop_and_raise():
    data = train.Dataset(*bars(32))
    device = unmetal.mtl.create_system_default_device()
    adam = unmetal.NNOptimizerAdam(device, 0.003)
    assert len(train.Trainer(small_network(), optimizer=adam, batch_size=16, on_epoch=lambda report: False).fit(data)) == 1

    def fail(report):
        raise KeyError(report.step)

    with pytest.raises(KeyError):
        train.Trainer(small_network(), batch_size=16, on_step=fail).fit(data)


@pytest.mark.parametrize("pictures, labels, sentence", [
    (np.zeros((2, 8, 8), np.float64), [0, 1], "pictures is an array of another type, expected uint8 or float32"),
    (np.zeros((2, 8), np.float32), [0, 1], "pictures is 2-dimensional"),
    (np.zeros((2, 8, 8), np.float32), [0.0, 1.0], "labels is an array of another type, expected whole numbers"),
    (np.zeros((2, 8, 8), np.float32), [[0], [1]], "labels is 2-dimensional"),
    (np.zeros((2, 8, 8), np.float32), [0, -1], "label of picture 1 is -1"),
    (np.zeros((2, 8, 8), np.float32), [0, 1, 1], "number of pixels is 128, expected 3 pictures of 8x8x1"),
])
def test_wrong_arrays_are_refused(pictures, labels, sentence):
    with pytest.raises(unmetal.ArgumentError, match=sentence):
        train.Dataset(pictures, np.array(labels))


def test_wrong_data_and_options_are_refused():
    with pytest.raises(unmetal.ArgumentError, match="number of classes is 3, expected 2"):
        train.Trainer(small_network(), batch_size=2).fit(train.Dataset(np.zeros((3, 8, 8), np.float32), np.arange(3)))
    with pytest.raises(unmetal.Error, match='optimizer "adamant" is unknown'):
        train.Trainer(small_network(), optimizer="adamant")
    with pytest.raises(unmetal.ArgumentError, match="shape of a picture is 4x8x1, expected 8x8x1"):
        small_network().predict(np.zeros((1, 4, 8), np.float32))


def test_labels_that_begin_with_one_are_refused():
    pictures, labels = bars(32)
    network = train.Network((8, 8, 1))
    network.input.dense(3)
    trainer = train.Trainer(network, epochs=1, batch_size=16)
    with pytest.raises(unmetal.Error, match="number of pictures of class 0 is 0, expected some, unless class_names are given"):
        trainer.fit(train.Dataset(pictures, labels + 1))
    assert len(trainer.fit(train.Dataset(pictures, labels + 1, ["none", "lies", "stands"]))) == 1


def write_png(path, pixels):
    """A PNG file of bytes in grey."""
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def test_a_folder_of_pictures(tmp_path):
    for name, value in ("cat", 51), ("dog", 102):
        for i in range(5):
            write_png(tmp_path / name / f"{i}.png", np.full((9, 12), value + i, np.uint8))
    training = train.PictureFolder(tmp_path, train.Split.Training, size=(8, 8, 1))
    validation = train.PictureFolder(tmp_path, train.Split.Test, size=(8, 8, 1), memory=0, threads=2)
    assert (len(training), len(validation), training.class_names) == (8, 2, ["cat", "dog"])
    assert training.shape == (8, 8, 1) and training.file(4) == tmp_path / "dog" / "0.png"
    picture, label = validation.load(1)
    assert label == 1 and np.array_equal(picture, np.full((8, 8, 1), 106 / np.float32(255), np.float32))
    network = small_network()
    network.normalization = train.Normalization.of(training)
    trainer = train.Trainer(network, epochs=2, batch_size=4, augmentation="crop+flip+rotate:10+smooth:0.1")
    reports = trainer.fit(training, validation)
    assert reports[-1].validation.count == 2 and network.evaluate(validation).count == 2
    (tmp_path / "dog" / "5.png").write_bytes(b"")
    with pytest.raises(unmetal.Error, match="5.png is empty; skip_bad goes on without"):
        train.PictureFolder(tmp_path, train.Split.Training, size=(8, 8, 1), validation=0.01)
    skipped = train.PictureFolder(tmp_path, train.Split.Training, size=(8, 8, 1), validation=0.01, skip_bad=True)
    assert len(skipped) == 10 and skipped.left_out == [f"{tmp_path}/dog/5.png is empty"]


def test_generated_pictures_and_cifar(tmp_path):
    data = train.SyntheticDataset(train.Split.Test, (16, 16, 3))
    assert len(data) == 1024 and data.shape == (16, 16, 3) and isinstance(data, train.AnyDataset)
    (tmp_path / "test_batch.bin").write_bytes(bytes([7]) + bytes(3072))
    cifar = train.cifar10(train.Split.Test, tmp_path)
    assert len(cifar) == 1 and cifar.load(0)[1] == 7


class Bars(train.AnyDataset):
    """Pictures that are made when they are asked for."""

    shape = (8, 8, 1)
    class_names = ["lies", "stands"]

    def __init__(self, dtype=np.float32):
        super().__init__()
        self.dtype = dtype
        self.loaded = 0

    def __len__(self):
        return 64

    def load(self, index):
        self.loaded += 1
        picture = np.zeros((8, 8), self.dtype)
        picture[(slice(None), index // 2 % 8) if index % 2 else index // 2 % 8] = 255 if self.dtype == np.uint8 else 1
        return picture, index % 2


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_a_data_set_of_ones_own(dtype):
    data = Bars(dtype)
    network = small_network()
    reports = train.Trainer(network, epochs=10, batch_size=16, learning_rate=0.01, loader_threads=3).fit(data, data)
    assert reports[-1].validation.accuracy == 1 and data.loaded >= 20 * len(data)
    memory = [data.load(i) for i in range(len(data))]
    assert np.array_equal(train.Normalization.of(data).mean,
                          train.Normalization.of(train.Dataset(*map(np.array, zip(*memory)))).mean)


@pytest.mark.parametrize("name, value, error, sentence", [
    ("shape", (8, 8), TypeError, r"shape .*\(height, width, channels\)"),
    ("class_names", 2, TypeError, "class_names .* a list of names"),
    ("__len__", lambda self: -1, TypeError, r"what __len__\(\) returns .* a number of pictures"),
    ("load", lambda self, index: 3, TypeError, r"what load\(\) returns .* \(array, class\)"),
    ("load", lambda self, index: (np.zeros((8, 7), np.float32), 0), unmetal.ArgumentError,
     "shape of picture [0-9]+ is 8x7x1, expected 8x8x1"),
    ("load", lambda self, index: (np.zeros(64, np.float32), 0), unmetal.ArgumentError, "expected 8x8x1"),
    ("load", lambda self, index: (np.zeros((8, 8)), 0), unmetal.ArgumentError, "expected uint8 or float32"),
    ("load", lambda self, index: (np.zeros((8, 8), np.float32), 2), unmetal.ArgumentError,
     "class of picture [0-9]+ is 2, expected 0 to 1"),
    ("load", lambda self, index: (np.zeros((8, 8), np.float32), -1), unmetal.ArgumentError, "is -1, expected 0 to 1"),
    ("load", lambda self, index: {}[index], KeyError, "^[0-9]+$"),
])
def test_a_wrong_data_set_of_ones_own_is_refused(name, value, error, sentence):
    wrong = type("Wrong", (Bars,), {name: value})()
    with pytest.raises(error, match=sentence):
        train.Trainer(small_network(), epochs=1, batch_size=16, loader_threads=2).fit(wrong)


@pytest.mark.parametrize("name", ["shape", "class_names", "__len__", "load"])
def test_what_a_data_set_lacks_is_named(name):
    members = {key: member for key, member in vars(Bars).items() if key in {"shape", "class_names", "__len__", "load"}}
    del members[name]
    lacking = type("Lacking", (train.AnyDataset,), members)()
    with pytest.raises(NotImplementedError, match=name):
        train.Trainer(small_network(), epochs=1).fit(lacking)
    with pytest.raises(NotImplementedError, match=name):
        {"__len__": len, "load": lambda data: data.load(0)}.get(name, lambda data: getattr(data, name))(lacking)


def write_idx(path, array):
    path.write_bytes(struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes())


def test_files_of_the_idx_format(tmp_path):
    pictures = random.integers(256, size=(3, 4, 5), dtype=np.uint8)
    write_idx(tmp_path / "images", pictures)
    write_idx(tmp_path / "labels", np.array([1, 0, 2]))
    data = train.read_idx_dataset(tmp_path / "images", tmp_path / "labels", ["a", "b", "c"])
    assert (len(data), data.shape, data.class_names) == (3, (4, 5, 1), ["a", "b", "c"])
    picture, label = data.load(2)
    assert label == 2 and np.array_equal(picture[:, :, 0], pictures[2] / np.float32(255))
    with pytest.raises(unmetal.Error, match="expected one label for each image"):
        train.read_idx_dataset(tmp_path / "images", tmp_path / "images")


def test_normalization_is_stored(tmp_path):
    pictures, _ = bars(4)
    network = small_network()
    expected = network.predict((pictures - np.float32(0.5)) / np.float32(0.25))
    assert network.normalization is None
    network.normalization = train.Normalization([0.5], [0.25])
    assert np.allclose(network.predict(pictures), expected)
    network.save(tmp_path / "net.safetensors")
    loaded = train.Network.load(tmp_path / "net.safetensors")
    assert (loaded.normalization.mean, loaded.normalization.deviation) == ([0.5], [0.25])
    with pytest.raises(unmetal.Error, match="3 means and 3 deviations"):
        network.normalization = train.Normalization.imagenet()


@pytest.mark.parametrize("augmentation, sentence", [
    ("rotate:400", "rotate is \"rotate:400\", expected degrees above 0 and up to 180"),
    ("flip+crop", "augmentation \"flip\\+crop\" is not known"),
])
def test_augmentation_that_cannot_be(augmentation, sentence):
    with pytest.raises(unmetal.Error, match=sentence):
        train.Trainer(small_network(), augmentation=augmentation)


def test_adamw_decays_weights():
    data = train.Dataset(*bars(32))

    def predictions(**options):
        network = small_network()
        train.Trainer(network, epochs=1, batch_size=16, **options).fit(data)
        return network.predict(bars(4)[0] * 0 + 1)

    adam, adamw = predictions(optimizer="adam"), predictions(optimizer="adamw")
    assert np.array_equal(predictions(optimizer="adamw", weight_decay=0.01), adamw)
    assert np.array_equal(predictions(optimizer="adamw", weight_decay=0), adam) and not np.array_equal(adam, adamw)
    with pytest.raises(unmetal.ArgumentError, match="weight_decay is -1|weightDecay is -1"):
        train.Trainer(small_network(), weight_decay=-1)


def test_gradients_are_clipped():
    data = train.Dataset(*bars(32))

    def predictions(**options):
        network = small_network()
        train.Trainer(network, epochs=1, batch_size=16, optimizer="sgd", **options).fit(data)
        return network.predict(bars(4)[0] * 0 + 1)

    assert np.array_equal(predictions(), predictions(clip_norm=1e6))
    assert not np.array_equal(predictions(), predictions(clip_norm=1e-3))
    with pytest.raises(unmetal.ArgumentError, match="clipNorm is -1|clip_norm is -1"):
        train.Trainer(small_network(), clip_norm=-1)


def test_frozen_layers_stay():
    data = train.Dataset(*bars(32))
    network = small_network()
    assert network.freeze("conv") == 1 and network.is_frozen("conv1") and not network.is_frozen("dense1")
    before = network.copy()
    train.Trainer(network, epochs=1, batch_size=16).fit(data)
    frozen = small_network(2)
    frozen.freeze("")
    train.Trainer(frozen, epochs=1, batch_size=16).fit(data)
    picture = bars(1)[0]
    assert np.array_equal(frozen.predict(picture), small_network(2).predict(picture))
    assert not np.array_equal(before.predict(picture), network.predict(picture))
    assert network.unfreeze("conv1") == 1
    with pytest.raises(unmetal.Error, match='begins with "wings"'):
        network.freeze("wings")


def test_networks_from_files_and_other_heads(tmp_path):
    (tmp_path / "net.json").write_text("""{"layers": [{"kind": "convolution", "channels": 6, "kernelSize": 5}, {"kind": "relu"},
        {"kind": "maxPool", "kernelSize": 2}, {"kind": "dense", "channels": "classes"}]}""")
    network = train.Network.from_file(tmp_path / "net.json", seed=1, pictures=(8, 8, 1), classes=2)
    assert np.array_equal(network.predict(bars(1)[0] * 0 + 1), small_network().predict(bars(1)[0] * 0 + 1))
    network.save(tmp_path / "net.safetensors")
    assert train.Network.load(tmp_path / "net.safetensors", classes=5).output_shape == (1, 1, 5)
    other = train.Network.from_file(tmp_path / "net.json", pictures=(8, 8, 1), classes=3)
    with pytest.raises(unmetal.Error, match="dense1.weight"):
        other.load_weights(tmp_path / "net.safetensors")
    assert other.load_weights(tmp_path / "net.safetensors", keep_head=True) == "dense1"
    (tmp_path / "net.json").write_text('{"layers": [{"kind": "relu", "slope": 1}]}')
    with pytest.raises(unmetal.Error, match='layer 1: "slope" is no field of it'):
        train.Network.from_file(tmp_path / "net.json", pictures=(8, 8, 1))


def test_early_stopping_class_weights_and_averages():
    pictures, labels = bars(64)
    data = train.Dataset(pictures, labels)
    assert train.balanced_class_weights(data) == [1, 1]
    trainer = train.Trainer(small_network(), epochs=60, batch_size=16, learning_rate=0.01, patience=2, keep_best=True,
                            class_weights=[1, 2], warmup=0.5)
    reports = trainer.fit(data, data)
    right = [report.validation.correct for report in reports]
    assert len(reports) < 60 and right.index(max(right)) == len(right) - 3
    assert trainer.evaluate(data).loss == reports[-3].validation.loss
    reports = train.Trainer(small_network(), batch_size=16, best_by=train.BestBy.Loss).fit(data, data)
    losses = [report.validation.loss for report in reports]
    assert [report.is_best for report in reports] == [loss == min(losses[:i + 1]) for i, loss in enumerate(losses)]
    averaged = train.Trainer(small_network(), epochs=2, batch_size=16, average_decay=0.9,
                             loader_threads=3).fit(data, data)
    plain = train.Trainer(small_network(), epochs=2, batch_size=16).fit(data, data)
    assert averaged[-1].loss == plain[-1].loss and averaged[-1].validation.loss != plain[-1].validation.loss
    with pytest.raises(unmetal.ArgumentError, match="number of classWeights is 1|number of class_weights is 1"):
        train.Trainer(small_network(), class_weights=[1])


def test_learning_rate_finder():
    network = small_network()
    before = network.predict(bars(1)[0] * 0 + 1)
    points, suggestion = train.find_learning_rate(network, train.Dataset(*bars(64)), batch_size=16, lowest=1e-5, highest=10)
    rates = [rate for rate, loss, smoothed in points]
    assert rates == sorted(rates) and np.isclose(rates[0], 1e-5) and 1e-5 < suggestion < 1
    assert np.array_equal(network.predict(bars(1)[0] * 0 + 1), before)


def test_scores_of_each_class():
    pictures, labels = bars(20)
    evaluation = small_network().evaluate(train.Dataset(pictures, labels))
    assert sum(evaluation.confusion.values()) == evaluation.count == 20
    predicted = small_network().predict(pictures).argmax(axis=1)
    assert evaluation.confusion.get((0, 1), 0) == np.count_nonzero((labels == 0) & (predicted == 1))
    scores = evaluation.class_scores[1]
    assert scores.count == 10 and np.isclose(scores.recall, np.mean(predicted[labels == 1] == 1))
    assert np.isclose(evaluation.macro_f1, np.mean([score.f1 for score in evaluation.class_scores]))
