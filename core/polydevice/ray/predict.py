"""predict: a network over a data set of Ray Data's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polydevice.core import Core
from polydevice.dtype import Array
from polydevice.errors import (
    BlobError,
    InferenceError,
    OptionValueError,
    PolydeviceError,
    RequestError,
    nearest,
)
from polydevice.network import Network
from polydevice.ray.placement import config_here, core_here, device_here, import_ray
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.model import ModelSpec, ServedModel

_log = logging.getLogger(__name__)

BATCH = 32
"""Rows that are computed together, where nothing else is asked for."""

CALLS = 3
"""Blocks that an actor works on at a time: while the device computes for one or two, another is
read or written. With one, the CPU waited 6.7 ms of 155 for each batch of 16 images, with two 0.2.
"""

ON_ERROR = ("raise", "drop")


def predict(
    dataset: Any,
    model: str | Path | Network,
    device: str = "AUTO",
    *,
    batch_size: int = BATCH,
    concurrency: int | tuple[int, int] = 1,
    config: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
    on_error: str = "raise",
    max_concurrency: int = CALLS,
    **resources: Any,
) -> Any:
    """Compute a network for every row of a data set; each output becomes a column.

    Each of `concurrency` actors loads the network once. It is read here and sent to them through
    the object store, so that no other node needs the file; what they compile is kept in a folder
    of each node's, which its actors share. Batches are filled up to 1, 2, 4, … rows, so that few
    shapes are compiled. Ray computes again what a killed actor or node had not handed on.

    Args:
        dataset: a ``ray.data.Dataset``; each row has an array for each input of the network,
            without the batch.
        model: file of a model, or a network.
        device: "AUTO" for the GPUs that Ray gives to each actor, else the CPU; or a device's name.
        batch_size: rows that are computed together, at most.
        concurrency: number of actors, or the least and the most.
        config: configuration of the device.
        columns: input of the network → column, where they are called otherwise.
        on_error: "raise" ends with the first row that cannot be computed; "drop" leaves such rows
            out, with a warning for each in the log of its worker.
        max_concurrency: how many blocks an actor works on at a time.
        resources: further arguments of ``Dataset.map_batches``: ``num_gpus=1``, ``num_cpus``…

    Returns:
        A data set, computed when it is read, with the columns there were and one for each output.

    Raises:
        PluginError: Ray is not installed.
        OptionValueError: for a value that is not possible.
        PolydeviceError: the model cannot be read.
        UnsupportedNetworkError: (when it is read) the network's answer to an item depends on the
            other items of its batch.
    """
    ray = import_ray()
    if on_error not in ON_ERROR:
        raise OptionValueError(f"on_error={on_error!r} is not possible; use 'raise' or 'drop'")
    if max_concurrency < 1:
        raise OptionValueError(f"{max_concurrency=} is not possible; use 1 or more")
    Limits(max_batch=batch_size)
    with Core() as core:
        network = model if isinstance(model, Network) else core.read_network(model)
        inputs = list(network.inputs)
    given = dict(columns or {})
    if unknown := set(given) - set(inputs):
        name = min(unknown)
        raise OptionValueError(
            f"columns names {name!r}, which is no input of the network; inputs: "
            f"{', '.join(inputs)}.{nearest(name, inputs)}"
        )
    settings = {
        "network": ray.put(network),
        "device": device,
        "batch_size": batch_size,
        "config": dict(config or {}),
        "columns": {name: given.get(name, name) for name in inputs},
        "drops": on_error == "drop",
    }
    least, most = (concurrency,) * 2 if isinstance(concurrency, int) else concurrency
    actors = ray.data.ActorPoolStrategy(
        min_size=least,
        max_size=most,
        max_concurrent_calls_per_actor=max_concurrency,
        enable_true_multi_threading=True,
    )
    return dataset.map_batches(
        Predictor,
        fn_constructor_kwargs=settings,
        batch_size=batch_size,
        batch_format="numpy",
        zero_copy_batch=True,
        compute=actors,
        **resources,
    )


class Predictor:
    """What one actor does: a network, loaded once, and the batches that its threads are given."""

    def __init__(
        self,
        network: Any,
        device: str,
        batch_size: int,
        config: Mapping[str, Any],
        columns: Mapping[str, str],
        drops: bool,
    ) -> None:
        """Load the network on the device that Ray gave to this worker.

        Args:
            network: reference to it in the object store.
            device: as the user named it.
            batch_size: rows of a batch, at most.
            config: of the device.
            columns: input → column.
            drops: whether rows that cannot be computed are left out.
        """
        ray = import_ray()
        self._core = core_here()
        self._columns = columns
        self._drops = drops
        self._size = batch_size
        here = device_here(self._core, device)
        spec = ModelSpec(
            ray.get(network), name="predict", device=here, config=config_here(here, config)
        )
        self._model = ServedModel(self._core, spec, Limits(max_batch=batch_size, queue=1 << 16))

    def __call__(self, batch: dict[str, Array]) -> dict[str, Any]:
        """Return the batch with a column for each output.

        Raises:
            BlobError: a column lacks, or its arrays do not fit.
            InferenceError: a row cannot be computed, and is not to be left out.
        """
        for name, column in self._columns.items():
            if column not in batch:
                raise BlobError(
                    f"there is no column {column!r} for input {name!r}; columns: "
                    f"{', '.join(batch)}.{nearest(column, batch)} Say which it is with "
                    f"columns={{{name!r}: …}}"
                )
        rows = len(next(iter(batch.values())))
        try:
            return {**batch, **self._infer(batch)}
        except PolydeviceError:
            outputs, kept = self._one_by_one(batch, rows)
        return {**{name: column[kept] for name, column in batch.items()}, **outputs}

    def _infer(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        inputs = {
            name: self._model.inputs[name].as_array(batch[column])
            for name, column in self._columns.items()
        }
        return self._model.batcher.submit(inputs).result()

    def _one_by_one(self, batch: Mapping[str, Array], rows: int) -> tuple[dict[str, Array], Array]:
        """Find the rows that cannot be computed; return the outputs of the others, and which."""
        answers: list[dict[str, Array]] = []
        kept: list[int] = []
        for row in range(rows):
            try:
                # Arrays of rows that differ in shape are objects in an array.
                alone = {c: np.asarray(batch[c][row])[None] for c in self._columns.values()}
                answers.append(self._infer(alone))
                kept.append(row)
            except RequestError as error:
                if not self._drops:
                    raise InferenceError(
                        f"row {row} of a batch of {rows} cannot be computed: {error}. "
                        "on_error='drop' leaves such rows out"
                    ) from error
                _log.warning("a row is left out, which cannot be computed: %s", error)
        names = self._model.outputs
        outputs = {
            name: np.concatenate([answer[name] for answer in answers])
            if answers
            else np.empty((0,), port.dtype)
            for name, port in names.items()
        }
        return outputs, np.array(kept, np.int64)
