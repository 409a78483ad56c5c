"""``polydevice bench``: statistics, options, and the tool as a user runs it."""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from polydevice.benchmark import configuration
from polydevice.benchmark.arguments import (
    Limits,
    add_arguments,
)
from polydevice.benchmark.inputs import make_inputs
from polydevice.benchmark.measure import Statistics
from polydevice.benchmark.report import average, closing_lines, counter_lines
from polydevice.benchmark.texts import (
    parse_channels,
    parse_data_shapes,
    parse_names,
    parse_shapes,
    parse_values,
)
from polydevice.cli import main
from polydevice.dtype import ElementType
from polydevice.errors import BlobError, OptionValueError
from polydevice.runtime.port_info import PortInfo
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from tests.cpu.models import build

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "samples/models/efficientnet_lite0/efficientnet_lite0.xml"


def test_percentiles_are_nearest_rank():
    statistics = Statistics(tuple(float(i) for i in range(1, 101)), 100, 1000.0, 2, True)
    assert [statistics.percentile(p) for p in (1, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert statistics.throughput == 200
    assert Statistics((4.0,), 1, 100.0, 2, False).throughput == 500


def test_closing_lines():
    statistics = Statistics((1.0, 2.0, 3.0), 3, 6.0, 1, False)
    lines = closing_lines(statistics, 50)
    assert lines[0] == "Count:      3 iterations"
    assert lines[1] == "Duration:   6.00 ms"
    assert lines[2] == "Latency:    2.00 ms"
    assert lines[-1] == "Throughput: 500.00 FPS"
    assert closing_lines(statistics, 90)[2] == "Latency (90 percentile): 3.00 ms"


def test_shapes():
    assert parse_shapes("[1,3,2]", ["a", "b"]) == {"a": [1, 3, 2], "b": [1, 3, 2]}
    assert parse_shapes("a[1, 3],b[]", ["a", "b"]) == {"a": [1, 3], "b": []}
    with pytest.raises(OptionValueError, match="names 'c'.*a, b"):
        parse_shapes("c[1]", ["a", "b"])
    with pytest.raises(OptionValueError, match="not legal"):
        parse_shapes("1,3", ["a"])


def test_names():
    assert parse_names("a:U8, b[NHWC]", ["a", "b"], "-iop") == {"a": "U8", "b": "NHWC"}
    with pytest.raises(OptionValueError, match="-iop names 'c'; known: a"):
        parse_names("c:U8", ["a"], "-iop")
    with pytest.raises(OptionValueError, match="'U8' is not legal"):
        parse_names("U8", ["a"], "-iop")


def test_precisions_layouts_and_extensions_by_name(capsys):
    model = ["-m", str(MODEL), "-niter", "1", "-api", "sync"]
    extra = ["-iop", "image:U8,logits:FP16", "-layout", "image[NHWC]", "-stream_output"]
    assert main(["bench", *model, *extra]) == 0
    out = capsys.readouterr().out
    assert "'image': precision U8" in out
    assert "'logits': precision FP16" in out
    assert "measuring: 100 %" in out
    assert main(["bench", *model, "-l", "no_such_module"]) == 1
    assert "'no_such_module' cannot be imported" in capsys.readouterr().err


def test_names_and_channels_for_all_inputs():
    assert parse_names("[NHWC]", ["a", "b"], "-layout") == {"a": "NHWC", "b": "NHWC"}
    assert parse_channels("[1, 2.5]", ["a", "b"], "-imean") == {"a": [1, 2.5], "b": [1, 2.5]}
    assert parse_channels("a[1e2],b[-1,2]", ["a", "b"], "-imean") == {"a": [100], "b": [-1, 2]}
    for text in ("1,2", "a[x]", "a[]", "[1,,2]"):
        with pytest.raises(OptionValueError, match="is not legal"):
            parse_channels(text, ["a"], "-imean")
    with pytest.raises(OptionValueError, match="-iscale names 'c'"):
        parse_channels("c[1]", ["a"], "-iscale")


QUICK = ["bench", "-m", str(MODEL), "-niter", "1", "-api", "sync"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["-qb", "8"], "-qb 8 has no effect: it is for GNA"),
        (["-c", "layers.xml"], "-c is for GPU; CPU has no key CONFIG_FILE"),
    ],
)
def test_options_without_a_meaning_here_say_so(given, said, capsys):
    assert main([*QUICK, *given]) == 0
    assert said in capsys.readouterr().out


def test_options_that_change_a_network_that_is_not_read_say_so(capsys):
    # fails later, as the model's batch is dynamic
    main([*QUICK, "-lfile", "-b", "1", "-iop", "image:U8"])
    assert "--batch_size, --input_output_precision: without effect" in capsys.readouterr().out


def test_options_that_are_not_legal():
    for given in (["-pin", "MAYBE"], ["-qb", "4"], ["-niter", "-1"], ["--latency_percentile", "0"]):
        with pytest.raises(SystemExit):
            main([*QUICK, *given])


def test_every_option_of_benchmark_app_is_there(capsys):
    """The names of its help, short and long."""
    names = """-h --help -m --path_to_model -i --paths_to_input -d --target_device
        -l --path_to_extension -c --path_to_cldnn_config -hint --perf_hint -api --api_type
        -niter --number_iterations -nireq --number_infer_requests -b --batch_size -t --time
        -progress --progress -stream_output --stream_output -shape --shape -layout --layout
        -nstreams --number_streams --latency_percentile -enforcebf16 --enforce_bfloat16
        -nthreads --number_threads -pin --infer_threads_pinning -exec_graph_path
        --exec_graph_path -pc --perf_counts -report_type --report_type -report_folder
        --report_folder -dump_config --dump_config -load_config --load_config -qb
        --quantization_bits -ip --input_precision -op --output_precision -iop
        --input_output_precision -cdir --cache_dir -lfile --load_from_file -imean --mean_values
        -iscale --scale_values"""
    with pytest.raises(SystemExit) as ended:
        main(["bench", "-h"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w]*", out))
    assert set(names.split()) <= known
    assert re.search(r"Available target devices: .*CPU", out)


def test_mean_and_scale_are_part_of_the_network(tmp_path):
    """Fed 3 everywhere with mean 1 and scale 2, the network sees 1."""
    from polydevice import Core
    from polydevice.benchmark.application import Application

    with Core() as core:
        network = core.read_network(MODEL)
        shape = [1, 3, 224, 224]
        network.reshape({"image": shape})
        (right,) = core.load_network(network, "CPU").infer(
            {"image": np.ones(shape, np.float32)}
        ).values()  # fmt: skip
        parser = argparse.ArgumentParser(add_help=False)
        add_arguments(parser)
        options = parser.parse_args(["-m", str(MODEL), "-imean", "[1]", "-iscale", "image[2,2,2]"])
        network = core.read_network(MODEL)
        network.reshape({"image": shape})
        Application(options, "CPU")._set_precisions(network)
        (y,) = core.load_network(network, "CPU").infer(
            {"image": np.full(shape, 3, np.float32)}
        ).values()  # fmt: skip
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5)


def test_configurations_of_several_devices_are_dumped_together(tmp_path, capsys):
    path = tmp_path / "config.json"
    devices = ["-d", "CPU HETERO:CPU", "-dump_config", str(path), "-enforcebf16", "-nthreads", "1"]
    main([*QUICK[:3], "-niter", "1", "-api", "sync", *devices])
    assert list(json.loads(path.read_text())) == ["CPU", "HETERO:CPU"]


def test_streams_of_a_device_that_has_none(capsys):
    assert main([*QUICK, "-d", "HETERO:CPU", "-nstreams", "CPU:1"]) in (0, 1)
    with pytest.raises(OptionValueError, match="-nstreams NPU:2: NPU has no key NPU_THROUGHPUT"):
        options = argparse.Namespace(number_streams="NPU:2", api="async", perf_hint=None)
        configuration._streams(options, "NPU", {"PERF_COUNT"})


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


def test_streams():
    assert parse_values("4", ["CPU", "GPU"], "-nstreams") == {"CPU": "4", "GPU": "4"}
    assert parse_values("CPU:2,GPU:4", ["CPU", "GPU"], "-nstreams") == {"CPU": "2", "GPU": "4"}
    with pytest.raises(OptionValueError, match="NPU"):
        parse_values("NPU:2", ["CPU"], "-nstreams")


def test_limits_round_up_to_the_requests():
    class Options:
        number_iterations, time, api = 10, None, "async"

    assert Limits.of(Options, 4) == Limits(12, None)  # type: ignore[arg-type]
    Options.number_iterations = None  # type: ignore[assignment]
    assert Limits.of(Options, 4) == Limits(None, 60.0)  # type: ignore[arg-type]
    assert Limits.of(Options, 4, "HETERO:GPU,CPU").seconds == 60  # type: ignore[arg-type]
    assert Limits.of(Options, 4, "NPU").seconds == 120  # type: ignore[arg-type]


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


def openvino_options() -> list[argparse.Action]:
    """The options of the benchmark_app of the OpenVINO that is installed."""
    parameters = pytest.importorskip("openvino.tools.benchmark.parameters")
    return list(parameters.parse_args()._actions)


def test_every_option_of_openvinos_benchmark_app_is_taken() -> None:
    """By each of its names, with each of its choices, with a value and without where it may."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    known = {name: action for action in parser._actions for name in action.option_strings}
    for theirs in openvino_options():
        for name in theirs.option_strings:
            assert name in known, f"{name} is not there"
            ours = known[name]
            for choice in theirs.choices or ():
                assert ours.choices is None or choice in ours.choices, (name, choice)
            if theirs.nargs == "?" and name not in ("-h", "--help"):
                assert ours.nargs == "?", f"{name} may stand without a value"
                for value in ("True", "false", "yes"):
                    parser.parse_args(["-m", "x", name, value])
            elif theirs.nargs is None:
                assert ours.nargs is None, f"{name} takes a value"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("-inferences_only", "-inference_only"),
        ("--perf_countz", "--perf_counts"),
        ("-nthread=2", ""),
    ],
)
def test_unknown_options_are_refused(given, near, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*QUICK, given])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"unknown option {given.partition('=')[0]}." in error
    assert near in error


def test_a_missing_model_is_said_before_anything_else(capsys) -> None:
    assert main(["bench", "-m", "nothing.xml", "-d", "NPU", "-shape", "nonsense"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "polydevice: model file 'nothing.xml' does not exist\n"


def test_shapes_that_are_not_known() -> None:
    found = parse_shapes("[?,3,1..8,2..,..9,-1]", ["a"])["a"]
    assert found == [None, 3, Dim(1, 8), Dim(2, None), Dim(0, 9), None]
    for wrong in ("[a]", "[8..1]", "[1.5]", "[1][2]"):
        with pytest.raises(OptionValueError, match="-shape"):
            parse_shapes(wrong, ["a"])
    assert parse_data_shapes("a[1,2][3,4],b[5][6]", ["a", "b"]) == {
        "a": [[1, 2], [3, 4]],
        "b": [[5], [6]],
    }
    with pytest.raises(OptionValueError, match="-data_shape"):
        parse_data_shapes("[1,?]", ["a"])


def dynamic(tmp_path: Path) -> Path:
    path = tmp_path / "dynamic.onnx"
    path.write_bytes(build([("Relu", ["x"], ["y"], {})], {"x": ("n", "w")}, ("y",), {}))
    return path


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


def test_orders_of_counters() -> None:
    def row(index: int, time: int, status: str = "EXECUTED") -> dict[str, object]:
        return {
            "execution_index": index, "real_time": time, "cpu_time": time, "status": status,
            "layer_type": "T", "exec_type": "E",
        }  # fmt: skip

    counters = {"a": row(0, 5), "b": row(1, 9), "c": row(2, 0, "OPTIMIZED_OUT")}

    def names(order: str) -> str:
        return "".join(line[0] for line in counter_lines(counters, order)[:-2])

    assert [names(order) for order in ("", "no_sort", "sort", "simple_sort")] == [
        "abc", "abc", "bac", "ab",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["-max_irate", "-5"], "-5 is not possible; use a number from 0"),
        (["-max_irate", "nan"], "nan is not possible; use a number from 0"),
        (["-niter", "x"], "x is not possible; use 0 or more"),
        (["-t", "soon"], "soon is not possible; use a number of seconds above 0"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(given, said, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "-m", "x.xml", *given])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [["-json"], ["-dump_config"], ["-exec_graph_path"], ["-report_type", "no_counters"]],
    ids=" ".join,
)
def test_what_cannot_be_written_is_said_before_anything_is_measured(given, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    option = "-report_folder" if "-report_type" in given else given.pop()
    given += [option, str(tmp_path / "file" / "inside")]
    assert main(["bench", "-m", str(dynamic(tmp_path)), "-niter", "1", *given]) == 1
    done = capsys.readouterr()
    assert f"{option} " in done.err
    assert "cannot be made" in done.err
    assert "[Step" not in done.out


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"CPU": 3}', None])
def test_a_configuration_that_is_none_is_refused(text, tmp_path, capsys) -> None:
    path = tmp_path / "configuration.json"
    if text is not None:
        path.write_text(text)
    arguments = ["-m", str(dynamic(tmp_path)), "-niter", "1", "-load_config", str(path)]
    assert main(["bench", *arguments]) == 1
    assert f"-load_config {str(path)!r}" in capsys.readouterr().err


def test_shapes_of_data_are_read_before_the_network_is_loaded(tmp_path, capsys) -> None:
    assert main(["bench", "-m", str(dynamic(tmp_path)), "-data_shape", "[1,x]"]) == 1
    done = capsys.readouterr()
    assert "sizes of data are numbers from 0" in done.err
    assert "Loading the model" not in done.out
