"""What the classes of the extension have in Python beside their members: values are compared, hashed, copied and pickled by
what they hold, and every class has a repr."""

from . import _core

# Values by the arguments of their constructors, which are their fields.
FIELDS = {
    _core.Offset: ("x", "y", "z"),
    _core.ImageCoordinate: ("x", "y", "channel"),
    _core.ImageRegion: ("offset", "size"),
    _core.ImageReadWriteParams: ("feature_channel_offset", "number_of_feature_channels_to_read_write"),
    _core.DataStrides: ("bytes_per_column", "bytes_per_row", "bytes_per_image"),
    _core.ImageStrides: ("pixel", "row", "image"),
    _core.NormalizedRegion: ("x", "y", "width", "height"),
    _core.ScaleTransform: ("scale_x", "scale_y", "translate_x", "translate_y"),
    _core.StateResourceList: ("buffer_sizes",),
    _core.MatrixOffset: ("row_offset", "column_offset"),
    _core.MatrixCopyOffsets: ("source_row_offset", "source_column_offset", "destination_row_offset",
                              "destination_column_offset"),
    _core.LossScaleOptions: ("initial_scale", "growth_factor", "backoff_factor", "growth_interval"),
    _core.mtl.Origin: ("x", "y", "z"),
    _core.mtl.Size: ("width", "height", "depth"),
    _core.mtl.Region: ("origin", "size"),
}

# Values that the library codes.
CODED = (_core.ImageDescriptor, _core.MatrixDescriptor, _core.VectorDescriptor, _core.NDArrayDescriptor,
         _core.MatrixRandomDistributionDescriptor, _core.NNNeuronDescriptor, _core.CNNConvolutionDescriptor,
         _core.CNNDepthWiseConvolutionDescriptor, _core.CNNSubPixelConvolutionDescriptor, _core.CNNLossDescriptor,
         _core.CNNYOLOLossDescriptor, _core.NNOptimizerDescriptor)


def _coded(value):
    archiver = _core.KeyedArchiver()
    value.encode(archiver)
    return archiver.encoded_data()


def _decoded(bound, data):
    return bound.decode(_core.KeyedUnarchiver(data))


def _copied(value):
    """A loss scale is an object: the copy has the same one."""
    made = _decoded(type(value), _coded(value))
    if hasattr(made, "loss_scale"):
        made.loss_scale = value.loss_scale
    return made


def _held(value):
    """What tells one value from another of its class."""
    if getattr(value, "loss_scale", None) is None:
        return _coded(value)
    scale, without = value.loss_scale, _copied(value)
    without.loss_scale = None
    return id(scale), _coded(without)


def _of_fields(names):
    def held(value):
        return tuple(tuple(field) if isinstance(field, list) else field
                     for field in (getattr(value, name) for name in names))

    def shown(value):
        return f"{type(value).__name__}({', '.join(f'{name}={getattr(value, name)!r}' for name in names)})"

    def reduced(value):
        return type(value), tuple(getattr(value, name) for name in names)

    return {**_of_value(held), "__repr__": shown, "__reduce__": reduced}


def _of_value(held):
    def equal(value, other):
        return held(value) == held(other) if type(value) is type(other) else NotImplemented

    def hashed(value):
        """Of what it holds now: do not change a value that is a key."""
        return hash(held(value))

    return {"__eq__": equal, "__hash__": hashed}


def _properties(bound):
    """Names of the properties, those of base classes first."""
    return [name for base in reversed(bound.__mro__) for name, member in vars(base).items()
            if isinstance(member, property) and not name.startswith("_")]


def _shown_fields(value):
    fields = ", ".join(f"{name}={getattr(value, name)!r}" for name in dict.fromkeys(_properties(type(value))))
    return f"{type(value).__name__}({fields})"


def _shown(value):
    """The class, the label and the device."""
    text = type(value).__name__
    try:
        if getattr(value, "label", ""):
            text += f' "{value.label}"'
        if getattr(value, "device", None) is not None:
            text += f" on {value.device.name}"
    except Exception:  # noqa: BLE001  an object that was never initialised has a repr, too
        pass
    return f"<{text}>"


def _give(bound, members):
    for name, member in members.items():
        setattr(bound, name, member)


def _has_own_repr(bound):
    return any("__repr__" in vars(base) for base in bound.__mro__[:-1])


_give(_core.StateTextureInfo, _of_value(_shown_fields))
for _bound, _names in FIELDS.items():
    _give(_bound, _of_fields(_names))
for _bound in CODED:
    if _bound is not _core.NNNeuronDescriptor:  # which compares itself
        _give(_bound, _of_value(_held))
    _give(_bound, {"__reduce__": lambda value: (_decoded, (type(value), _coded(value))),
                   "__copy__": _copied, "__deepcopy__": lambda value, memo: _copied(value)})
    if not _has_own_repr(_bound) or issubclass(_bound, _core.CNNConvolutionDescriptor):
        _bound.__repr__ = _shown_fields
for _module in (_core, _core.mtl):
    for _bound in vars(_module).values():
        if isinstance(_bound, type) and not _has_own_repr(_bound):
            _bound.__repr__ = _shown
