"""Results as ``polydevice bench --json`` writes them, with names that no one should trust."""

from __future__ import annotations

HOSTILE = [
    "<script>document.title='taken'</script>",
    "</style></script><img src=x onerror=\"document.title='taken'\">",
    "\"><svg onload=document.title='taken'>",
    "' onmouseover='document.title=1' x='",
    "</title></bdi></td><b>&lt;i&gt;&amp;",
    "javascript:alert(1)",
    "{{7*7}} ${7*7} %s %(x)s",
    "turned \u202egnp.exe",
    "line\nfeed\x1b[31m\x00\u2028end",
    "two  blanks, a comma",
    "lone \ud800 surrogate",
]
"""Names of layers; the last one cannot be in a file."""


def result(device: str = "CPU", factor: float = 1.0) -> dict:
    """A result with everything in it, and each hostile name wherever a name can be."""
    names = [*HOSTILE, *(f"layer{n}" for n in range(30))]
    times = [factor * (5 + (n * 7919 % 101) / 40) for n in range(300)] + [factor * 60.0]
    ordered = sorted(times)
    steps = [
        {
            "name": name, "type": name if n < 4 else "Convolution+Add", "kernel": name,
            "time_us": factor * (40.0 + 13 * n), "layers": [name], "element_type": "FP32",
            "operations": 1000 * (n + 1) ** 3 if n % 7 else None, "bytes": 3000 * (n + 2),
        }
        for n, name in enumerate(names)
    ]  # fmt: skip
    details = {
        "machine": {"processor": "A <b>processor</b>", "device": device},
        "latencies_ms": times,
        "layers": steps,
        "fates": [{"name": n, "type": "Relu", "reason": f"fused into {n}"} for n in names],
        "notes": ["41 launches; arena 70 bytes"],
        "places": [
            {"device": device, "reason": HOSTILE[0], "layers": 40, "bytes_in": 0},
            {"device": "GPU", "reason": "kept with its reader", "layers": 5, "bytes_in": 12},
        ],
        "memory": [(n / 50, (60 + n) * 2**20) for n in range(100)],
        "marks": [(0.1, "read"), (0.6, "load"), (1.2, "measure")],
        "peaks": {"operations": {"f32": 2e11}, "bytes": 1.5e10, "how": "measured"},
        "missing": {},
    }
    return {
        "device": device,
        "model": f"/models/{HOSTILE[1].replace('/', '|')}.onnx",
        "date": "2026-11-22 09:00 UTC",
        "config": {"PERFORMANCE_HINT": HOSTILE[2]},
        "shapes": {HOSTILE[0]: [1, 3, "?", 224]},
        "number of iterations": len(times),
        "total execution time (ms)": sum(times),
        "throughput (FPS)": 1e3 / ordered[150],
        "latency p50 (ms)": ordered[150],
        "latency p90 (ms)": ordered[270],
        "latency p99 (ms)": ordered[297],
        "read network time (ms)": 20.0,
        "load network time (ms)": 120.0 * factor,
        "phases (ms)": {"set_inputs": 0.1, "inference": 6.0, "read_outputs": 0.05},
        "compare (ms)": {"polydevice": 6.0, "onnxruntime": 7.5},
        "peak host memory (bytes)": 160 * 2**20,
        "peak device memory (bytes)": 31 * 2**20,
        "first inference, cold process (ms)": {"start": 25.0, "imports": 229.0, "load": 900.0},
        "first inference, warm process (ms)": {"start": 25.0, "imports": 220.0, "load": 150.0},
        "report": details,
    }
