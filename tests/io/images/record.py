"""Writes small images, and what TensorFlow decodes from them, into this folder.

python tests/io/images/record.py      (needs TensorFlow and Pillow)
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

FOLDER = Path(__file__).parent
HEIGHT, WIDTH = 5, 7


def _write_images() -> None:
    random = np.random.default_rng(0)
    rgba = random.integers(0, 256, (HEIGHT, WIDTH, 4), np.uint8)
    smooth = np.linspace(0, 255, HEIGHT * WIDTH * 3).reshape(HEIGHT, WIDTH, 3).astype(np.uint8)
    rgb, gray = Image.fromarray(rgba[..., :3]), Image.fromarray(rgba[..., 0])
    Image.fromarray(smooth).save(FOLDER / "rgb.jpg", quality=95)
    Image.fromarray(smooth[..., 0]).save(FOLDER / "gray.jpg", quality=95)
    Image.fromarray(smooth).convert("CMYK").save(FOLDER / "cmyk.jpg", quality=95)
    rgb.save(FOLDER / "rgb.png")
    rgb.save(FOLDER / "rgb.bmp")
    gray.save(FOLDER / "gray.png")
    Image.fromarray(rgba).save(FOLDER / "rgba.png")
    Image.fromarray(rgba[..., :2], "LA").save(FOLDER / "gray_alpha.png")
    gray.convert("1").save(FOLDER / "black_and_white.png")
    palette = rgb.quantize(8)
    palette.save(FOLDER / "palette.png")
    palette.save(FOLDER / "palette_alpha.png", transparency=bytes([0, 128, *[255] * 6]))
    rgb.save(FOLDER / "rgb_transparent.png", transparency=tuple(map(int, rgba[0, 0, :3])))
    frames = [palette, Image.fromarray(rgba[::-1, :, :3]).quantize(8)]
    frames[0].save(FOLDER / "animated.gif", save_all=True, append_images=frames[1:])
    deep = random.integers(0, 65536, (HEIGHT, WIDTH, 3), np.uint16)
    for name, pixels in (("gray16.png", deep[..., :1]), ("rgb16.png", deep)):
        (FOLDER / name).write_bytes(tf.io.encode_png(pixels).numpy())


def _calls(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if file.endswith(".jpg"):
        for channels in (0, 1, 3, 4):
            yield "decode_jpeg", {"channels": channels, "dct_method": "INTEGER_ACCURATE"}
        return
    yield "decode_jpeg", {"channels": 0}
    for channels, dtype in itertools.product((0, 1, 3, 4), ("uint8", "uint16")):
        yield "decode_png", {"channels": channels, "dtype": dtype}
    for channels in (0, 1, 3, 4):
        yield "decode_image", {"channels": channels}
    for dtype, expand in itertools.product(("uint16", "float32"), (False, True)):
        yield "decode_image", {"dtype": dtype, "expand_animations": expand}


def main() -> None:
    """Writes the images and `expected.json`."""
    _write_images()
    results = []
    for path in sorted(FOLDER.glob("*.*")):
        if path.suffix not in {".jpg", ".png", ".bmp", ".gif"}:
            continue
        for function, call in _calls(path.name):
            given = {**call, "dtype": tf.as_dtype(call["dtype"])} if "dtype" in call else call
            entry: dict[str, Any] = {"file": path.name, "function": function, "call": call}
            try:
                pixels = getattr(tf.io, function)(path.read_bytes(), **given).numpy()
            except (tf.errors.InvalidArgumentError, ValueError):
                entry["refused"] = True
            else:
                entry |= {"shape": pixels.shape, "dtype": str(pixels.dtype)}
                entry["hex"] = pixels.tobytes().hex()
            results.append(entry)
    expected = {"tensorflow": tf.__version__, "results": results}
    (FOLDER / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
