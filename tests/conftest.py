"""The one fixture that chooses devices, and the settings every test runs under.

``pytest --device CPU`` runs the device tests on CPU only; the option may be given several times and
takes comma lists (``--device CPU,GPU --device HETERO:GPU,CPU``). Left out, tests run on CPU, and on
GPU when there is one; a device that was asked for by name must exist.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests import absent, guard_pages, implementations, tiers
from tests.seeds import seeded

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

# An OpenCL device of type CPU (PoCL, Intel's runtime) serves where there is no GPU.
os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
# PoCL links each kernel it compiles, thousands in all: `linker/ld` says what is left out.
os.environ.setdefault("COMPILER_PATH", str(Path(__file__).with_name("linker")))

DEFAULT_DEVICES = ("CPU", "GPU")


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)
    parser.addoption(
        "--device",
        action="append",
        metavar="NAMES",
        help="devices to run device tests on, such as CPU,GPU or HETERO:GPU,CPU (may be repeated)",
    )
    parser.addoption(
        "--guard-pages",
        choices=guard_pages.SIDES,
        help="put every buffer of the CPU device against memory that must not be touched",
    )
    parser.addoption(
        "--implementations",
        metavar="FILE",
        type=Path,
        help="add to a list which code of oneDNN runs, and the test that passed with it",
    )
    parser.addoption(
        "--instruction-set",
        choices=implementations.INSTRUCTION_SETS,
        help="let oneDNN generate code for no more than that",
    )


@pytest.fixture(autouse=True, scope="session")
def _guard_pages(request: pytest.FixtureRequest) -> Iterator[None]:
    side = request.config.getoption("--guard-pages")
    with pytest.MonkeyPatch.context() as patch:
        if side:
            guard_pages.install(patch, side)
        yield


@pytest.fixture(autouse=True, scope="session")
def _implementations(request: pytest.FixtureRequest) -> Iterator[None]:
    recorder = request.config.pluginmanager.get_plugin("polydevice-implementations")
    with pytest.MonkeyPatch.context() as patch:
        if recorder is not None:
            recorder.install(patch)
        yield


@pytest.fixture(autouse=True, scope="session")
def _all_threads() -> Iterator[None]:
    """Let no network of the CPU device give way to a plan for one thread on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("polydevice_cpu") is not None:
            patch.setattr("polydevice_cpu.plan.binding.giving_way.LEAST_NS", 10**18)
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        devices = _devices(metafunc.config)
        if tiers.is_on_cpu_alone(metafunc.config, metafunc.definition.path):
            devices = [device for device in devices if device == "CPU"]
        metafunc.parametrize("device", devices, scope="session")


def _devices(config: pytest.Config) -> list[object]:
    asked: list[str] | None = config.getoption("--device")
    if asked is None:
        return [_parameter(name) for name in DEFAULT_DEVICES]
    names = [n for text in asked for n in ([text] if ":" in text else text.split(","))]
    for name in names:
        if reason := _missing(name):
            raise pytest.UsageError(f"--device {name}: {reason}")
    return list(names)


def _parameter(name: str) -> object:
    reason = _missing(name)
    return pytest.param(name, marks=pytest.mark.skip(reason=reason)) if reason else name


@functools.cache
def _missing(name: str) -> str:
    """Why a device cannot be used here; empty when it can."""
    from polydevice import Core

    family = name.partition(":")[0]
    with Core() as core:
        available = core.available_devices
        if family in ("AUTO", "HETERO", "MULTI") or any(
            d.split(".")[0] == family for d in available
        ):
            return ""
        reasons = [f"{r.subject}: {r.reason}" for r in core.explain_devices() if r.reason]
    return f"no device {name} here ({', '.join(available)} are); " + "; ".join(reasons)


@pytest.fixture(scope="session")
def needs_gpu() -> None:
    """Skip where no GPU is, a test that names it itself."""
    if reason := _missing("GPU"):
        pytest.skip(reason)


@pytest.fixture
def compiled_sparingly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a GPU that is a processor compile without optimising: for tests of answers alone."""
    from tests.gpu.graphs import compile_sparingly  # imports the GPU plugin

    compile_sparingly(monkeypatch)


@pytest.fixture
def repeated_sparingly(request: pytest.FixtureRequest) -> None:
    """Compile a list's further entries sparingly; those of the quick tier as users have it.

    Also what is left out there as another test compiles the same programs: PoCL keeps them.
    """
    mark = request.node.get_closest_marker("full")
    is_more = mark is not None and "but_on" not in mark.kwargs
    on_gpu = "device" not in request.fixturenames or "GPU" in request.getfixturevalue("device")
    if is_more and on_gpu:
        request.getfixturevalue("compiled_sparingly")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers of a test's own, the same whichever tests run before it."""
    return seeded(request.node.nodeid)


class _Untraced(logging.Handler):
    """Keeps what is told of plans that failed with sizes as symbols."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


_UNTRACED = _Untraced()
logging.getLogger("polydevice.runtime.templates").addHandler(_UNTRACED)


@pytest.fixture(autouse=True)
def untraced() -> Iterator[list[str]]:
    """Let a test fail where a plan with sizes as symbols does: users get another, and a warning."""
    _UNTRACED.told.clear()
    yield _UNTRACED.told
    assert not _UNTRACED.told


@pytest.fixture(autouse=True)
def _generators_of_the_module(request: pytest.FixtureRequest) -> None:
    """Restart a module's generators in each of its tests, so that their order does not matter."""
    for value in vars(request.module).values():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = seeded(request.node.nodeid).bit_generator.state


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.leave_out(config, items)
    tiers.start_longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector of garbage from what lives to the end: tests, parameters and modules.

    Of the whole suite that is millions of objects: a `gc.collect()` in a test took 0.25 s. Between
    tests it looks after 10,000 new objects, not 700: products and open sizes took 17.1 instead of
    19.6 s of CPU so (Python 3.11).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    tiers.tell(node)


def pytest_configure(config: pytest.Config) -> None:
    absent.skip_what_needs_them()
    tiers.choose(config)
    if lesser := config.getoption("--instruction-set"):
        implementations.limit(lesser)  # before a module that is collected asks for the processor
    if path := config.getoption("--implementations"):
        config.pluginmanager.register(implementations.Recorder(path), "polydevice-implementations")
    try:
        from hypothesis import settings
    except ImportError:  # not needed by the tests that run on a GPU machine without a network
        return
    # The same examples every time in CI; no time limit, since the first call compiles kernels.
    settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
    settings.register_profile("local", deadline=None, print_blob=True)
    settings.load_profile("ci" if os.environ.get("CI") else "local")
