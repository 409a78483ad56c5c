"""What a device says of itself and of its networks: metrics, keys, counters, reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from polydevice.bounds import this_thread
from polydevice.core import Core
from polydevice.errors import (
    DeviceError,
    DeviceNotFoundError,
    UnknownMetricError,
    UnknownOptionError,
    UnsupportedNetworkError,
)
from polydevice.node import Node
from polydevice.shape import Shape
from polydevice.testing.suite.subject import SHAPE, Subject, Unheard, random_input


class Description(Subject):
    """Tests of what a device tells."""

    def test_is_listed(self, core: Core) -> None:
        """`available_devices` lists it; `explain_devices` calls it available."""
        if self.is_composite:
            assert self.family not in core.available_devices
            return
        names = [name.partition(".")[0] for name in core.available_devices]
        assert self.family in names
        reports = [r for r in core.explain_devices() if r.device.startswith(self.family)]
        assert any(report.status == "available" for report in reports)

    def test_has_a_version(self, core: Core) -> None:
        """`get_versions` describes the plugin."""
        version = core.get_versions(self.device)[self.family]
        assert version.description
        assert isinstance(version.major, int)
        assert isinstance(version.minor, int)

    def test_every_metric_it_lists_can_be_read(self, core: Core) -> None:
        """SUPPORTED_METRICS is the truth, and another name is refused."""
        device = self.family if self.is_composite else self.device
        metrics = core.get_metric(device, "SUPPORTED_METRICS")
        assert "SUPPORTED_METRICS" in metrics
        for name in metrics:
            core.get_metric(device, name)
        if not self.is_composite:
            assert core.get_metric(device, "FULL_DEVICE_NAME")
        with pytest.raises(UnknownMetricError, match="NO_SUCH_METRIC"):
            core.get_metric(device, "NO_SUCH_METRIC")

    def test_every_key_it_lists_can_be_read(self, core: Core) -> None:
        """SUPPORTED_CONFIG_KEYS is the truth, and another key is refused, changing nothing."""
        keys = core.get_metric(self.family, "SUPPORTED_CONFIG_KEYS")
        before = {key: core.get_config(self.family, key) for key in keys}
        assert all(isinstance(value, str) for value in before.values())
        if not self.is_composite:  # which keeps a key for its members, and asks them when loading
            with pytest.raises(UnknownOptionError, match="NO_SUCH_KEY"):
                core.set_config({"NO_SUCH_KEY": "1"}, self.family)
        assert before == {key: core.get_config(self.family, key) for key in keys}
        with pytest.raises(UnknownOptionError, match="NO_SUCH_KEY"):
            core.load_network(self.network(), self.device, {**self.config, "NO_SUCH_KEY": "1"})

    def test_another_id_is_not_found(self, core: Core) -> None:
        """A device id that does not exist is refused."""
        if self.is_composite:
            return
        with pytest.raises(DeviceNotFoundError):
            core.load_network(self.network(), f"{self.family}.no-such-id")

    # -- loading ------------------------------------------------------------------------------

    def test_loading_leaves_the_network_alone(self, core: Core) -> None:
        """The caller's network is the same before and after, and nothing bounds the next one."""
        network = self.network()
        before = [repr(node) for node in network.nodes()]
        core.load_network(network, self.device, self.config)
        assert before == [repr(node) for node in network.nodes()]
        assert this_thread.bounds is None

    def test_query_names_every_node(self, core: Core) -> None:
        """`query_network` places all nodes of the suite's network on this family's devices."""
        network = self.network()
        placed = core.query_network(network, self.device, self.config)
        assert {node.name for node in network.nodes()} == set(placed)
        if not self.is_composite:
            assert {name.partition(".")[0] for name in placed.values()} == {self.family}

    def test_an_unknown_operation_is_refused(self, core: Core) -> None:
        """`query_network` leaves the node out; `load_network` names it."""
        network = self.network()
        (result,) = network.results
        result.inputs = [Node("stranger", Unheard(), result.inputs).output]
        assert "stranger" not in core.query_network(network, self.device, self.config)
        with pytest.raises(UnsupportedNetworkError, match="stranger"):
            core.load_network(network, self.device, self.config)

    def test_a_loaded_network_describes_itself(self, core: Core) -> None:
        """Inputs, outputs, metrics and configuration of the executable network."""
        executable = self.load(core)
        assert list(executable.inputs) == ["x"]
        assert list(executable.outputs) == ["y"]
        assert executable.inputs["x"].shape == Shape(SHAPE)
        for name in executable.get_metric("SUPPORTED_METRICS"):
            executable.get_metric(name)
        assert executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") >= 1
        for key in executable.get_metric("SUPPORTED_CONFIG_KEYS"):
            assert isinstance(executable.get_config(key), str)

    def test_counts_times(self, core: Core) -> None:
        """PERF_COUNT, where the device has it, gives legal counters for known layers."""
        if "PERF_COUNT" not in core.option_keys(self.device):
            pytest.skip(f"{self.device} has no key PERF_COUNT")
        config = {**self.config, "PERF_COUNT": "YES"}
        request = core.load_network(self.network(), self.device, config).create_infer_request()
        request.infer({"x": random_input(0)})
        counts = request.get_perf_counts()
        assert any(count["status"] == "EXECUTED" for count in counts.values())
        for count in counts.values():
            assert count["status"] in ("EXECUTED", "OPTIMIZED_OUT", "NOT_RUN")
            assert count["real_time"] >= 0
            assert count["layer_type"]

    def test_explains_every_layer(self, core: Core) -> None:
        """`explain` names every layer of the model."""
        text = self.load(core).explain()
        for node in self.network():
            assert node.type == "Const" or node.name in text

    def test_the_graph_that_runs(self, core: Core, tmp_path: Path) -> None:
        """`get_exec_graph_info`, where the device has it, is an IR with the usual notes."""
        try:
            graph = self.load(core).get_exec_graph_info()
        except DeviceError as error:
            pytest.skip(str(error))
        assert [node.name for node in graph.parameters] == ["x"]
        assert [name for name, _ in graph.output_ports()] == ["y"]
        for order, node in enumerate(sorted(graph, key=lambda n: int(n.rt_info["execOrder"]))):
            assert node.rt_info["execOrder"] == str(order)
            assert node.rt_info["execTimeMcs"] == "not_executed"
            assert node.rt_info.keys() >= {"originalLayersNames", "primitiveType", "layerType"}
        graph.serialize(tmp_path / "graph.xml")
        again = core.read_network(tmp_path / "graph.xml")
        assert [node.rt_info for node in again] == [node.rt_info for node in graph]
