"""Images: the pixels that TensorFlow decodes, and what is no image."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import distlab as dl
from distlab.errors import InvalidArgumentError, MissingExtraError, UnsupportedError

FOLDER = Path(__file__).parent / "images"
RECORDED = json.loads((FOLDER / "expected.json").read_text())["results"]
"""What TensorFlow decodes from the images; `record.py` wrote it."""


def _name(entry: dict[str, Any]) -> str:
    call = ", ".join(f"{key}={value}" for key, value in entry["call"].items())
    return f"{entry['function']}({entry['file']}, {call})"


def _differs(entry: dict[str, Any]) -> str | None:
    """Returns why a result is not TensorFlow's."""
    file, call = entry["file"], entry["call"]
    few_bits = file in {"black_and_white.png", "palette.png"}
    if few_bits and call.get("channels") == 4:
        return "alpha"  # TensorFlow's is nearly transparent: 1 or 15 of 255
    if file == "rgb16.png" and call.get("dtype", "uint8") != "uint8":
        return "unsupported"  # Pillow reads 8 bits
    if file == "rgb16.png" and call.get("channels") == 1:
        return "rounding"
    return "more" if file == "cmyk.jpg" and call.get("channels") == 1 else None


@pytest.mark.parametrize("function", sorted({entry["function"] for entry in RECORDED}))
def test_pixels_are_those_that_tensorflow_decodes(function: str) -> None:
    for entry in RECORDED:
        if entry["function"] == function:
            _compare(entry)


def _compare(entry: dict[str, Any]) -> None:
    contents = (FOLDER / entry["file"]).read_bytes()
    decode = getattr(dl.io, entry["function"])
    difference = _differs(entry)
    if difference == "unsupported":
        with pytest.raises(UnsupportedError, match="16 bits for each color"):
            decode(contents, **entry["call"])
        return
    if "refused" in entry and difference is None:
        with pytest.raises(InvalidArgumentError, match=r"channels must be|Use decode_image"):
            decode(contents, **entry["call"])
        return
    pixels = decode(contents, **entry["call"])
    if difference == "more":
        assert pixels.shape == (5, 7, 1), _name(entry)
        return
    expected = np.frombuffer(bytes.fromhex(entry["hex"]), entry["dtype"]).reshape(entry["shape"])
    assert pixels.dtype == expected.dtype, _name(entry)
    if difference == "alpha":
        assert (pixels[..., 3] == np.iinfo(pixels.dtype).max).all(), _name(entry)
        pixels, expected = pixels[..., :3], expected[..., :3]
    tolerance = 1 if difference == "rounding" else 1e-7 if pixels.dtype == np.float32 else 0
    np.testing.assert_allclose(pixels, expected, rtol=0, atol=tolerance, err_msg=_name(entry))


def test_a_webp_image_has_frames_like_a_gif() -> None:
    frames = [Image.new("RGB", (7, 5), color) for color in ("red", "blue")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    pixels = dl.io.decode_image(buffer.getvalue(), channels=3)
    assert pixels.shape == (2, 5, 7, 3)
    assert pixels[:, 0, 0].tolist() == [[255, 0, 0], [0, 0, 255]]
    first = dl.io.decode_image(buffer.getvalue(), channels=3, expand_animations=False)
    np.testing.assert_array_equal(first, pixels[0])


@pytest.mark.parametrize("file", ["rgb.jpg", "rgb.png", "rgb.bmp", "animated.gif"])
def test_an_image_that_is_cut_off_is_refused(file: str) -> None:
    contents = (FOLDER / file).read_bytes()
    for size in (0, 4, len(contents) // 2):
        with pytest.raises(InvalidArgumentError, match=r"must be an image of|can't be decoded"):
            dl.io.decode_image(contents[:size])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dl.io.decode_image(b"hello"), r"BMP, GIF, JPEG, PNG, WEBP, got 5 bytes.*hello"),
        (lambda: dl.io.decode_image([b"", b""]), "bytes of one image, got list.*before batch"),
        (lambda: dl.io.decode_jpeg("a.jpg"), "bytes of one image, got str.*read_file"),
        (lambda: dl.io.decode_png(_read("rgb.png"), dtype=np.float32), "got float32. Use decode_"),
        (lambda: dl.io.decode_image(_read("rgb.png"), channels=2), r"one of \(0, 1, 3, 4\).*got 2"),
    ],
)
def test_misuse_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        call()


def test_without_pillow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"decode_jpeg needs Pillow.*pip install pillow"):
        dl.io.decode_jpeg(_read("rgb.jpg"))


def _read(file: str) -> bytes:
    return dl.io.read_file(FOLDER / file)
