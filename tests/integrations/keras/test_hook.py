"""Keras is prepared when it is imported, before or after distlab, and never imported by distlab."""

from __future__ import annotations

import subprocess
import sys


def run(code: str, backend: str = "jax") -> subprocess.CompletedProcess[str]:
    setting = f"import os, sys; os.environ['KERAS_BACKEND'] = {backend!r}\n"
    return subprocess.run(
        [sys.executable, "-c", setting + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_distlab_imports_no_keras_and_prepares_it_inside_the_scope() -> None:
    done = run(
        """
import distlab as dl
print('keras' in sys.modules, 'jax' in sys.modules)
dl.use_cpu_devices(2)
with dl.MirroredStrategy().scope():
    from keras import Input, Sequential, layers
    print(Sequential([Input((2,)), layers.Dense(1)]).distribute_strategy.num_replicas_in_sync)
"""
    )
    assert done.stdout == "False False\n2\n", done.stderr


def test_another_backend_imported_before_is_refused_in_a_scope() -> None:
    done = run(
        """
import keras, distlab as dl
dl.use_cpu_devices(2)
keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
print("made without a strategy")
with dl.MirroredStrategy().scope():
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
""",
        backend="numpy",
    )
    assert "KERAS_BACKEND=jax" in done.stderr, done.stderr


def test_a_backend_that_is_not_installed_is_explained() -> None:
    done = run("import distlab, keras", backend="tensorflow")
    assert "ModuleNotFoundError" in done.stderr
    assert "set KERAS_BACKEND=jax" in done.stderr
