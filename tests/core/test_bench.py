"""``polydevice bench`` as a user runs it: inputs, steps, reports."""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from polydevice.benchmark.inputs import make_inputs
from polydevice.benchmark.options.arguments import (
    add_arguments,
)
from polydevice.benchmark.report import average, counter_lines
from polydevice.cli import main
from polydevice.dtype import ElementType
from polydevice.errors import BlobError
from polydevice.runtime.port_info import PortInfo
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from tests.core.bench_model import MODEL, QUICK, ROOT, dynamic


def test_mean_and_scale_are_part_of_the_network(tmp_path):
    """Fed 3 everywhere with mean 1 and scale 2, the network sees 1."""
    from polydevice import Core
    from polydevice.benchmark.options.network_options import set_precisions

    with Core() as core:
        network = core.read_network(MODEL)
        shape = [1, 3, 128, 128]
        network.reshape({"input": shape})
        right = core.load_network(network, "CPU").infer({"input": np.ones(shape, np.float32)})
        parser = argparse.ArgumentParser(add_help=False)
        add_arguments(parser)
        options = parser.parse_args(["-m", str(MODEL), "-imean", "[1]", "-iscale", "input[2,2,2]"])
        network = core.read_network(MODEL)
        network.reshape({"input": shape})
        set_precisions(network, options)
        y = core.load_network(network, "CPU").infer({"input": np.full(shape, 3, np.float32)})
    for name, answer in right.items():
        np.testing.assert_allclose(y[name], answer, rtol=1e-4, atol=1e-4)


def test_configurations_of_several_devices_are_dumped_together(tmp_path, capsys):
    path = tmp_path / "config.json"
    devices = ["-d", "CPU HETERO:CPU", "-dump_config", str(path), "-enforcebf16", "-nthreads", "1"]
    main([*QUICK[:3], "-niter", "1", "-api", "sync", *devices])
    assert list(json.loads(path.read_text())) == ["CPU", "HETERO:CPU"]


def test_folders_and_lists_of_inputs(tmp_path):
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.full((1, 2), number, np.float32))
    port = PortInfo("input", "x", TensorDesc(ElementType.f32, Shape([1, 2])), "NC", frozenset())
    first, last = tmp_path / "0.npy", tmp_path / "2.npy"
    for text, wanted in [
        (str(tmp_path), [0, 1, 2]), (f"x:{tmp_path}", [0, 1, 2]), (f"x:{last},{first}", [2, 0, 2]),
        (f"{last},{first}", [2, 0, 2]),
    ]:  # fmt: skip
        sets = make_inputs({"x": port}, [text], 0, 3)
        assert [int(one["x"][0, 0]) for one in sets] == wanted
    (tmp_path / "empty").mkdir()
    with pytest.raises(BlobError, match="has no files"):
        make_inputs({"x": port}, [str(tmp_path / "empty")], 0, 1)


def port(sizes, element_type=ElementType.f32, layout="NCHW") -> PortInfo:
    return PortInfo("input", "x", TensorDesc(element_type, Shape(sizes)), layout, frozenset())


def test_random_inputs_are_not_zero_and_differ_by_set():
    first, second = make_inputs({"x": port([1, 3, 4, 4])}, [], 0, 2)
    assert first["x"].std() > 0.5
    assert not np.array_equal(first["x"], second["x"])
    ints = make_inputs({"x": port([100], ElementType.u8)}, [], 0, 1)[0]["x"]
    assert ints.dtype == np.uint8
    assert ints.max() > 100


def test_inputs_from_files(tmp_path):
    pixels = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    np.save(tmp_path / "a.npy", pixels)
    pixels.tofile(tmp_path / "a.bin")
    for name in ("a.npy", "a.bin"):
        made = make_inputs({"x": port([1, 3, 4, 4])}, [str(tmp_path / name)], 0, 1)
        np.testing.assert_array_equal(made[0]["x"], pixels)
    photo = str(ROOT / "samples/images/cat.jpg")
    made = make_inputs({"x": port([2, 8, 8, 3], ElementType.u8, "NHWC")}, [f"x:{photo}"], 0, 1)
    assert made[0]["x"].shape == (2, 8, 8, 3)
    assert made[0]["x"].std() > 10
    with pytest.raises(BlobError, match="does not exist"):
        make_inputs({"x": port([1])}, ["nothing.png"], 0, 1)
    with pytest.raises(BlobError, match="holds 48 elements"):
        make_inputs({"x": port([7])}, [str(tmp_path / "a.bin")], 0, 1)
    with pytest.raises(BlobError, match="dynamic shape.*-shape"):
        make_inputs({"x": port([-1])}, [], 0, 1)


def row(index: int, time: int) -> dict[str, object]:
    return {
        "status": "EXECUTED",
        "exec_type": "jit",
        "layer_type": "Convolution",
        "real_time": time,
        "cpu_time": time,
        "execution_index": index,
    }


def test_counters():
    name = "a_very_long_layer_name_that_does_not_fit"
    lines = counter_lines({"last": row(1, 5), name: row(0, 7)})
    assert lines[0].startswith("a_very_long_layer_name_tha... EXECUTED")
    assert lines[-2] == "Total time:     12 microseconds"
    first = {"x": row(0, 2)}
    assert average([first, {"x": row(0, 4)}])["x"]["real_time"] == 3
    assert first["x"]["real_time"] == 2


def test_the_tool_reports_every_step(tmp_path, capsys):
    status = main([
        "bench", "-m", str(MODEL), "-niter", "5", "-nthreads", "1", "-pc",
        "-report_type", "average_counters", "-report_folder", str(tmp_path / "reports"),
        "-json", str(tmp_path / "out.json"), "-dump_config", str(tmp_path / "config.json"),
        "-i", str(ROOT / "samples/images/cat.jpg"), "--compare", "openvino",
    ])  # fmt: skip
    out = capsys.readouterr().out
    assert status == 0
    for step in range(1, 12):
        assert f"[Step {step}/11]" in out
    assert "First inference took" in out
    assert "Throughput:" in out
    assert "openvino" in out
    assert "execType:" in out
    (result,) = json.loads((tmp_path / "out.json").read_text())["results"]
    assert result["latency p50 (ms)"] > 0
    assert result["number of iterations"] >= 5
    assert set(result["compare (ms)"]) == {"polydevice", "openvino"}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["CPU"]["PERF_COUNT"] == "YES"
    with (tmp_path / "reports/benchmark_average_counters_report.csv").open() as file:
        rows = list(csv.reader(file, delimiter=";"))
    assert rows[0][0] == "layerName"
    assert any(len(r) > 2 and "Conv" in r[2] for r in rows)
    assert (tmp_path / "reports/benchmark_report.csv").is_file()


def test_the_configuration_file_is_read_and_first_inference_is_split(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"CPU": {"CPU_THROUGHPUT_STREAMS": "2"}}')
    status = main([
        "bench", "-m", str(MODEL), "-niter", "2", "-load_config", str(tmp_path / "config.json"),
        "-nstreams", "1", "--first_inference", "-json", str(tmp_path / "out.json"),
    ])  # fmt: skip
    assert status == 0
    (result,) = json.loads((tmp_path / "out.json").read_text())["results"]
    assert result["config"]["CPU_THROUGHPUT_STREAMS"] == "1", "the command line wins"
    cold = result["first inference, cold process (ms)"]
    assert set(cold) == {"start", "imports", "read", "load", "first_run"}
    assert all(value > 0 for value in cold.values())
    assert "First answer of a warm process" in capsys.readouterr().out


def test_several_devices_and_errors(tmp_path, capsys):
    status = main(["bench", "-m", str(MODEL), "-niter", "1", "-api", "sync", "-d", "CPU NPU"])
    captured = capsys.readouterr()
    assert status == 1
    assert "'NPU' is registered" in captured.err
    assert "failed" in captured.out
    assert "Throughput:" in captured.out
    assert main(["bench", "-m", "nothing.xml"]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_the_sample_is_the_same_tool():
    done = subprocess.run(
        [sys.executable, str(ROOT / "samples/benchmark_app.py"), "-h"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "--paths_to_input" in done.stdout


def test_the_executed_graph_is_written_where_a_device_describes_it(device, tmp_path, capsys):
    model = ROOT / "tests/models/data/wechat_qr_sr.xml"
    path = tmp_path / "graph.xml"
    arguments = ["-shape", "[1,1,12,12]", "-niter", "2", "-api", "sync", "-exec_graph_path"]
    status = main(["bench", "-m", str(model), "-d", device, *arguments, str(path)])
    if device.startswith(("CPU", "GPU", "HETERO")):
        assert status == 0
        out = capsys.readouterr().out
        assert ("Peak device memory:" in out) == device.startswith("GPU")
        assert re.search(r'execTimeMcs="\d+"', path.read_text())


@pytest.mark.parametrize("api", ["sync", "async"])
def test_data_of_several_shapes(api, tmp_path, capsys) -> None:
    out = tmp_path / "out.json"
    arguments = ["bench", "-m", str(dynamic(tmp_path)), "-api", api, "-niter", "9", "-pcseq"]
    assert main([*arguments, "-data_shape", "[1,5][2,300][1,7]", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    for shape in ("x[1, 5]", "x[2, 300]", "x[1, 7]"):
        assert f"{shape}: " in printed
    assert json.loads(out.read_text())["results"][0]["number of iterations"] >= 9
    assert main([*arguments, "-shape", "[1..2,?]"]) == 1
    assert "-data_shape" in capsys.readouterr().err


def test_the_rate_is_kept(tmp_path) -> None:
    """40 items a second, in whichever way they are started: never more."""
    out = tmp_path / "out.json"
    arguments = ["-m", str(dynamic(tmp_path)), "-shape", "[2,4]", "-niter", "8"]
    for api in ("sync", "async"):
        assert main(["bench", *arguments, "-max_irate", "40", "-api", api, "--json", str(out)]) == 0
        (result,) = json.loads(out.read_text())["results"]
        seconds = result["total execution time (ms)"] / 1e3
        assert seconds >= (result["number of iterations"] - 1) * 2 / 40


def test_compiling_alone(tmp_path, capsys) -> None:
    assert main(["bench", "-m", str(dynamic(tmp_path)), "-niter", "0", "-d", "CPU AUTO:CPU"]) == 0
    out = capsys.readouterr().out
    assert "nothing is measured" in out
    assert "Throughput" not in out
    assert out.count("compiled") >= 2


def test_options_that_say_how(tmp_path, capsys) -> None:
    """Hints by all their names, precision, streams, order of counters, reports as JSON."""
    base = ["bench", "-m", str(dynamic(tmp_path)), "-shape", "[2,4]", "-niter", "2"]
    dumped, reports = tmp_path / "config.json", tmp_path / "reports"

    def config(*given: str) -> dict[str, str]:
        assert main([*base, *given, "-dump_config", str(dumped)]) == 0
        (found,) = json.loads(dumped.read_text()).values()
        return found

    assert config("-hint", "tput")["PERFORMANCE_HINT"] == "THROUGHPUT"
    assert config("-hint", "latency")["PERFORMANCE_HINT"] == "LATENCY"
    assert "sync, 1 inference requests" in capsys.readouterr().out
    assert "PERFORMANCE_HINT" not in config("-hint", "none")
    assert config("-nstreams", "AUTO")["CPU_THROUGHPUT_STREAMS"] == "CPU_THROUGHPUT_AUTO"
    assert config("-infer_precision", "CPU:f32")["ENFORCE_BF16"] == "NO"
    assert config("--infer_threads_pinning", "yes")["CPU_BIND_THREAD"] == "YES"
    assert config("-pc", "True")["PERF_COUNT"] == "YES"
    assert config("-pc", "False")["PERF_COUNT"] == "NO"
    assert config("-d", "AUTO:CPU", "-hint", "ctput")["PERFORMANCE_HINT"] == "THROUGHPUT"
    assert "AUTO:CPU is MULTI:CPU" in capsys.readouterr().out
    assert main([*base, "-no_warmup", "-inference_only", "-latency_percentile", "90"]) == 0
    out = capsys.readouterr().out
    assert "First inference took" not in out
    assert "Latency (90 percentile)" in out
    report = ["-report_type", "detailed_counters", "-report_folder", str(reports), "-json_stats"]
    assert main([*base, "-pcsort", "simple_sort", *report]) == 0
    assert "NOT_RUN" not in capsys.readouterr().out
    written = json.loads((reports / "benchmark_report.json").read_text())
    assert written["Execution results"]["throughput (FPS)"] > 0
    counters = json.loads((reports / "benchmark_detailed_counters_report.json").read_text())
    assert "y" in counters["requests"][0]
    assert main([*base, "-infer_precision", "i4"]) == 1
    assert "CPU computes in bf16, f32" in capsys.readouterr().err


def test_shapes_of_data_are_read_before_the_network_is_loaded(tmp_path, capsys) -> None:
    assert main(["bench", "-m", str(dynamic(tmp_path)), "-data_shape", "[1,x]"]) == 1
    done = capsys.readouterr()
    assert "sizes of data are numbers from 0" in done.err
    assert "Loading the model" not in done.out
