"""Discovery survives drivers that crash, hang or are broken, and names each reason and fix."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from polydevice.errors import DeviceNotFoundError, OptionValueError
from polydevice_gpu import cl
from polydevice_gpu.cl import device, discovery, runtime
from polydevice_gpu.cl.discovery import enumeration
from polydevice_gpu.cl.discovery.enumeration import enumerate_drivers
from polydevice_gpu.cl.discovery.facts import Enumeration, Finding, Verdict
from polydevice_gpu.cl.discovery.icd import list_icds
from polydevice_gpu.cl.discovery.report import Report
from polydevice_gpu.cl.discovery.selection import Selection, select

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="drivers are found through .icd files on Linux"
)

GPUS = Selection.parse("all-gpus")
EVERYTHING = Selection.parse("all-gpus,cpu")


def finding_of(found: Enumeration, part: str) -> Finding:
    matching = [f for f in found.findings if part in f.name]
    assert len(matching) == 1, found.findings
    return matching[0]


def names(found: Enumeration, rule: Selection = EVERYTHING) -> list[str]:
    return [device.facts.name for device in select(found.devices, rule)[0]]


def test_driver_that_works(fake_driver) -> None:
    fake_driver("good", NAME='"Good GPU"')
    found = enumerate_drivers()
    assert names(found, GPUS) == ["Good GPU"]
    assert finding_of(found, "good.icd").verdict is Verdict.FOUND


@pytest.mark.parametrize("moment", ["AT_LOAD", "AT_QUERY"])
def test_crashing_driver_is_found_out_and_kept_out(fake_driver, moment) -> None:
    fake_driver("good", NAME='"Good GPU"')
    fake_driver("crashing", **{moment: "abort()"})
    found = enumerate_drivers()
    finding = finding_of(found, "crashing.icd")
    assert finding.verdict is Verdict.REJECTED
    assert "crashed" in finding.reason
    assert "SIGABRT" in finding.reason
    assert finding.fix
    assert names(found) == ["Good GPU"]
    assert [Path(icd.driver).name for icd in found.drivers or ()] == ["libgood.so"]


def test_segmentation_fault(fake_driver) -> None:
    fake_driver("faulting", AT_QUERY="*(volatile int*)0=1")
    assert "SIGSEGV" in finding_of(enumerate_drivers(), "faulting.icd").reason


def test_driver_that_ends_the_process(fake_driver) -> None:
    fake_driver("leaving", AT_QUERY="exit(3)")
    assert "exit status 3" in finding_of(enumerate_drivers(), "leaving.icd").reason


def test_hanging_driver_costs_the_time_limit_only(fake_driver) -> None:
    fake_driver("good", NAME='"Good GPU"')
    fake_driver("hanging", AT_QUERY="for(;;)sleep(1)")
    found = enumerate_drivers(timeout_s=2)
    finding = finding_of(found, "hanging.icd")
    assert "hung" in finding.reason
    assert "POLYDEVICE_GPU_PROBE_TIMEOUT_S" in finding.fix
    assert names(found) == ["Good GPU"]


def test_hanging_driver_leaves_no_process_behind(fake_driver, tmp_path) -> None:
    note = tmp_path / "pid"
    leave_pid = f'FILE*f=fopen("{note}","w");fprintf(f,"%d",getpid());fclose(f);for(;;)sleep(1)'
    fake_driver("hanging", AT_QUERY=leave_pid)
    enumerate_drivers(timeout_s=2)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_driver_that_prints_does_not_disturb(fake_driver, capfd) -> None:
    noise = r'printf("{\"platforms\": 7}\n");fflush(stdout)'
    fake_driver("loud", NAME='"Loud GPU"', AT_LOAD=noise, AT_QUERY=noise)
    assert names(enumerate_drivers()) == ["Loud GPU"]
    assert capfd.readouterr().out == ""


def test_what_a_crashing_driver_printed_is_in_the_reason(fake_driver) -> None:
    fake_driver("crashing", AT_QUERY='fprintf(stderr,"no firmware\\n"),abort()')
    assert "no firmware" in finding_of(enumerate_drivers(), "crashing.icd").reason


def test_drivers_that_do_not_work_together(fake_driver) -> None:
    fake_driver("first", NAME='"First GPU"')
    fake_driver(
        "jealous", NAME='"Jealous CPU"', DEVICE_TYPE=2, AT_QUERY='loaded("first")?abort():0'
    )
    found = enumerate_drivers()
    assert names(found) == ["First GPU"]  # the one with a GPU stays
    conflicts = [f for f in found.findings if "not in one process" in f.reason]
    assert len(conflicts) == 1
    assert "jealous.icd" in conflicts[0].name


def test_library_that_is_missing(vendors) -> None:
    (vendors / "gone.icd").write_text("libdoes-not-exist-1234.so\n")
    finding = finding_of(enumerate_drivers(), "gone.icd")
    assert "libdoes-not-exist-1234.so" in finding.reason
    assert "reinstall" in finding.fix


def test_library_that_is_no_driver(vendors, tmp_path) -> None:
    not_a_library = tmp_path / "text.so"
    not_a_library.write_text("I am not a library")
    (vendors / "text.icd").write_text(str(not_a_library))
    assert "cannot be loaded" in finding_of(enumerate_drivers(), "text.icd").reason


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_icd_file_without_a_name(vendors, content) -> None:
    (vendors / "empty.icd").write_text(content)
    assert "is empty" in finding_of(enumerate_drivers(), "empty.icd").reason


@pytest.mark.parametrize("content", [b"lib\0foo.so\n", b"\x93\xff\x80.so\n", bytes(300)])
def test_icd_file_that_is_not_text(vendors, content) -> None:
    (vendors / "binary.icd").write_bytes(content)
    assert "is not text" in finding_of(enumerate_drivers(), "binary.icd").reason


def test_icd_file_that_cannot_be_read(vendors) -> None:
    (vendors / "folder.icd").mkdir()
    assert "cannot be read" in finding_of(enumerate_drivers(), "folder.icd").reason


def test_driver_without_a_platform(fake_driver) -> None:
    fake_driver("none", PLATFORMS=0)
    assert "no OpenCL platform" in finding_of(enumerate_drivers(), "none.icd").reason


def test_platform_without_a_device(fake_driver) -> None:
    fake_driver("none", NAME='"Rusticl"', DEVICES=0)
    finding = finding_of(enumerate_drivers(), "Rusticl platform")
    assert finding.verdict is Verdict.REJECTED
    assert "RUSTICL_ENABLE" in finding.fix


def test_no_driver_at_all(vendors) -> None:
    found = enumerate_drivers()
    finding = finding_of(found, "OpenCL")
    assert "no OpenCL driver is installed" in finding.reason
    assert str(vendors) in finding.reason
    assert "apt install" in finding.fix


def test_no_pyopencl(monkeypatch) -> None:
    monkeypatch.setattr(enumeration, "pyopencl_folder", lambda: None)
    finding = finding_of(enumerate_drivers(), "pyopencl")
    assert finding.fix == "pip install pyopencl"


def test_one_driver_named_by_the_variable(fake_driver, monkeypatch, tmp_path) -> None:
    library = fake_driver("other", NAME='"Other"')
    named = fake_driver("one", NAME='"One"')
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "vendors" / "one.icd"))
    assert names(enumerate_drivers()) == ["One"]
    monkeypatch.setenv("OCL_ICD_VENDORS", str(library))
    assert names(enumerate_drivers()) == ["Other"]
    monkeypatch.setenv("OCL_ICD_FILENAMES", str(named))
    assert sorted(names(enumerate_drivers())) == ["One", "Other"]


def test_driver_named_twice_counts_once(fake_driver, vendors) -> None:
    library = fake_driver("one", NAME='"One"')
    (vendors / "again.icd").write_text(str(library))
    assert names(enumerate_drivers()) == ["One"]


def test_folders_that_one_may_not_look_into_are_passed_over(monkeypatch) -> None:
    """Those of another user, which LD_LIBRARY_PATH or OCL_ICD_VENDORS names."""
    real = os.stat

    def refuse(path, *arguments, **options):
        if str(path).startswith("/hidden"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *arguments, **options)

    expected = list_icds()
    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/hidden/lib")
    assert list_icds() == expected
    monkeypatch.setenv("OCL_ICD_VENDORS", "/hidden/vendors.icd")
    assert "/hidden/vendors.icd" not in [icd.driver for icd in list_icds()[0]]


def test_nvidia_driver_without_icd_file_is_registered(monkeypatch, tmp_path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libnvidia-opencl.so.1").write_text("")
    for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    icds, _ = list_icds()
    mine = [icd for icd in icds if icd.registered_by_us]
    assert [icd.driver for icd in mine] == [str(folder / "libnvidia-opencl.so.1")]


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_time_limit_that_is_not_legal(monkeypatch, text) -> None:
    monkeypatch.setenv("POLYDEVICE_GPU_PROBE_TIMEOUT_S", text)
    with pytest.raises(OptionValueError, match=r"PROBE_TIMEOUT_S=.*positive number"):
        enumerate_drivers()


def test_drivers_are_asked_once_by_any_number_of_threads(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("POLYDEVICE_CACHE_DIR", str(tmp_path))  # where no process kept an answer
    calls: list[int] = []

    def slow(*_: object) -> Enumeration:
        calls.append(1)
        time.sleep(0.05)
        return Enumeration()

    monkeypatch.setattr(discovery, "enumerate_drivers", slow)
    monkeypatch.setattr(discovery, "_found", [])
    threads = [threading.Thread(target=discovery.discover) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    discovery.discover(refresh=True)
    assert len(calls) == 2


def test_error_without_devices_tells_everything(vendors) -> None:
    found = enumerate_drivers()
    report = Report((), found.findings, found)
    with pytest.raises(DeviceNotFoundError, match=r"no OpenCL driver is installed[^$]*fix: "):
        report.device()


def test_program_goes_on_beside_a_crashing_driver(fake_driver, real_driver) -> None:
    """A real process: the good driver is used, the other is never loaded into it."""
    fake_driver("crashing", AT_LOAD="abort()")
    program = """if True:
        import os
        before = os.environ["OCL_ICD_VENDORS"]
        from polydevice_gpu import cl
        report = cl.discover()
        device = cl.open_device(report.devices[0])
        assert device.context
        assert "libcrashing" not in open("/proc/self/maps").read()
        assert os.environ["OCL_ICD_VENDORS"] == before
        print(device.name)
        print(report.text())
    """
    environment = {**os.environ, "POLYDEVICE_GPU_DEVICES": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "the driver crashed while being loaded" in done.stdout


def test_driver_without_a_folder_for_what_it_compiles(real_driver, monkeypatch) -> None:
    """PoCL 3.1 shows no device then, and does not say why."""
    monkeypatch.setenv("HOME", "/proc/nonexistent")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("POCL_CACHE_DIR")
    finding = finding_of(enumerate_drivers(), "Portable Computing")
    assert finding.verdict is Verdict.FOUND or "POCL_CACHE_DIR" in finding.fix


def _check_that_a_fork_is_refused(program: str) -> None:
    """Run a program that prints what its child, which it forks, is told."""
    environment = {**os.environ, "POLYDEVICE_GPU_DEVICES": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unknown target CPU" in done.stderr:
        pytest.skip("this PoCL compiles nothing for this processor, which its LLVM does not know")
    assert "use multiprocessing.get_context('spawn')" in done.stdout, done.stderr


def test_fork_after_opencl_was_started_is_refused_with_the_fix(real_driver) -> None:
    program = """if True:
        import os
        from polydevice.errors import DeviceLostError
        from polydevice_gpu import cl
        admitted = cl.discover().devices[0]
        cl.open_device(admitted)
        if os.fork() == 0:
            try:
                cl.open_device(admitted)
            except DeviceLostError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
    """
    _check_that_a_fork_is_refused(program)


@pytest.mark.parametrize("pause", [0, 0.03, 0.1])
def test_fork_while_drivers_start_leaves_no_lock_taken(real_driver, pause) -> None:
    """They start as soon as a network is to be loaded, be it in vain."""
    program = f"""if True:
        import os, time
        from polydevice import Core, opset
        from polydevice.errors import DeviceLostError, OptionError
        x = opset.parameter([4], "f32", name="x")
        made = opset.network("positive", {{"y": opset.relu(x)}})
        try:
            Core().load_network(made, "GPU", {{"NO_SUCH_KEY": "1"}})
        except OptionError:
            time.sleep({pause})
        if os.fork() == 0:
            try:
                Core().load_network(made, "GPU")
            except DeviceLostError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
    """
    _check_that_a_fork_is_refused(program)


def test_what_hinders_drivers_once_does_not_for_good(opencl, monkeypatch) -> None:
    admitted = cl.discover().devices[0]
    monkeypatch.setattr(device, "_open", {})
    start, errors = runtime.start, [OSError(28, "No space left on device")]

    def failing(*arguments: object) -> None:
        if errors:
            raise errors.pop()
        start(*arguments)

    monkeypatch.setattr(runtime, "start", failing)
    broken = cl.open_device(admitted)
    with pytest.raises(OSError, match="No space left"):
        broken.context  # noqa: B018
    whole = cl.open_device(admitted)
    assert whole is not broken
    assert whole.is_usable
    assert cl.open_device(admitted) is whole


def test_simulator_that_is_preloaded_takes_the_place_of_the_drivers() -> None:
    """Oclgrind, which finds accesses out of bounds: everything must go to its library."""
    simulator = shutil.which("oclgrind")
    if simulator is None:
        pytest.skip("oclgrind is not installed")
    program = """if True:
        from polydevice_gpu import cl
        device = cl.open_device(cl.discover().devices[0])
        source = "__kernel void f(__global int* x) { x[get_global_id(0) + 1] = 1; }"
        launches = cl.LaunchList(device)
        kernel = cl.ProgramBuilder(device).build("f", source).kernel("f")
        launches.add(kernel, (16,), None, [device.memory.allocate(64, "x")])
        with device.queue() as queue:
            launches.enqueue(queue)
    """
    done = subprocess.run(
        [simulator, sys.executable, "-c", program],
        env={**os.environ, "POLYDEVICE_GPU_DEVICES": "all-gpus"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Invalid write of size 4") == 1
    assert "At line 1" in done.stderr
