"""Images as arrays, decoded by Pillow."""

# ruff: noqa: ARG001 - TensorFlow's parameters

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from distlab.errors import InvalidArgumentError, MissingExtraError, UnsupportedError
from distlab.text.shown import shown

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
_CHANNELS: Final = {
    "BMP": (0, 3, 4),
    "GIF": (0, 3),
    "JPEG": (0, 1, 3),
    "PNG": (0, 1, 3, 4),
    "WEBP": (0, 3, 4),
}
"""The channels that each format can be decoded to; 0 means those of the image."""
_ANIMATED: Final = ("GIF", "WEBP")
_DTYPES: Final = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.float32))
_GRAY: Final = np.array([9797, 19234, 3737], np.uint32)
"""The shares of red, green and blue in gray, of 32768: those of libpng."""


def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = np.uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> np.ndarray:
    """Decodes an image of format BMP, GIF, JPEG, PNG or WebP (`tf.io.decode_image`).

    Args:
      contents: The `bytes` of the file, as `read_file` returns them.
      channels: 1 for gray, 3 for RGB, 4 for RGBA; None or 0 for those of the image.
      dtype: uint8, uint16 or float32; floats are from 0 to 1.
      name: Ignored; accepted for compatibility with TensorFlow.
      expand_animations: Whether a GIF or WebP image has its frames as first dimension.
        False takes the first frame.

    Returns:
      An array of shape `(height, width, channels)`, or with frames in front.

    Raises:
      InvalidArgumentError: `contents` is no such image or is damaged, or its format
        has not that many channels.
      UnsupportedError: The image has 16 bits for each color, and `dtype` is not uint8.
      MissingExtraError: Pillow is not installed.

    Example:
      >>> import distlab as dl
      >>> import numpy as np
      >>> from PIL import Image
      >>> Image.fromarray(np.zeros((8, 6, 3), np.uint8)).save("black.png")
      >>> names = dl.data.Dataset.list_files("*.png")
      >>> images = names.map(lambda name: dl.io.decode_image(dl.io.read_file(name)))
      >>> next(iter(images)).shape
      (8, 6, 3)
    """
    with _opened("decode_image", contents) as image:
        kind = _dtype(dtype)
        frames = _frames(image, channels or 0, kind, first=not expand_animations)
        stacked = np.stack(list(frames))
        return stacked if image.format in _ANIMATED and expand_animations else stacked[0]


def decode_jpeg(  # noqa: PLR0917 - TensorFlow's parameters
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> np.ndarray:
    """Decodes a JPEG image to uint8 (`tf.io.decode_jpeg`); as there, also a PNG image.

    Args:
      contents: The `bytes` of the file, as `read_file` returns them.
      channels: 1 for gray, 3 for RGB; 0 for those of the image.
      ratio: 1: images are decoded in their own size.
      fancy_upscaling: Ignored: libjpeg's default.
      try_recover_truncated: False: a truncated image is an error.
      acceptable_fraction: Ignored; of no meaning without `try_recover_truncated`.
      dct_method: Ignored. Pixels are those of "INTEGER_ACCURATE"; TensorFlow's default,
        "INTEGER_FAST", differs from them by a few levels of 255.
      name: Ignored; accepted for compatibility with TensorFlow.

    Returns:
      An array of shape `(height, width, channels)`.

    Raises:
      InvalidArgumentError: As for `decode_image`, or the image is a BMP or animated.
      UnsupportedError: `ratio` is not 1, or `try_recover_truncated` is true.
      MissingExtraError: Pillow is not installed.

    Example:
      >>> import distlab as dl
      >>> import numpy as np
      >>> from PIL import Image
      >>> Image.fromarray(np.full((8, 6, 3), 200, np.uint8)).save("gray.jpg")
      >>> pixels = dl.io.decode_jpeg(dl.io.read_file("gray.jpg"), channels=3)
      >>> pixels.shape, pixels[0, 0].tolist()
      ((8, 6, 3), [200, 200, 200])
    """
    if ratio != 1 or try_recover_truncated:
        raise UnsupportedError(
            "decode_jpeg decodes whole images in their own size, so ratio must be 1 and "
            f"try_recover_truncated False, got {shown(ratio)} and {shown(try_recover_truncated)}. "
            "Leave them out, and use jax.image.resize."
        )
    return _still("decode_jpeg", contents, channels, np.uint8)


def decode_png(
    contents: Any, channels: int = 0, dtype: Any = np.uint8, name: str | None = None
) -> np.ndarray:
    """Decodes a PNG image (`tf.io.decode_png`); as there, also a JPEG image.

    Args:
      contents: The `bytes` of the file, as `read_file` returns them.
      channels: 1 for gray, 3 for RGB, 4 for RGBA; 0 for those of the image.
      dtype: uint8 or uint16.
      name: Ignored; accepted for compatibility with TensorFlow.

    Returns:
      An array of shape `(height, width, channels)`.

    Raises:
      InvalidArgumentError: As for `decode_image`, or the image is a BMP or animated.
      UnsupportedError: The image has 16 bits for each color, and `dtype` is uint16.
      MissingExtraError: Pillow is not installed.

    Example:
      >>> import distlab as dl
      >>> import numpy as np
      >>> from PIL import Image
      >>> Image.fromarray(np.full((8, 6), 200, np.uint8)).save("gray.png")
      >>> dl.io.decode_png(dl.io.read_file("gray.png")).shape
      (8, 6, 1)
      >>> dl.io.decode_png(dl.io.read_file("gray.png"), channels=3)[0, 0].tolist()
      [200, 200, 200]
    """
    if np.dtype(dtype) == np.float32:
        raise InvalidArgumentError(
            "dtype of decode_png must be uint8 or uint16, got float32. Use decode_image for floats."
        )
    return _still("decode_png", contents, channels, dtype)


def _still(verb: str, contents: Any, channels: int, dtype: Any) -> np.ndarray:
    with _opened(verb, contents) as image:
        frames = getattr(image, "n_frames", 1)
        if image.format == "BMP" or frames > 1:
            raise InvalidArgumentError(
                f"{verb} decodes still JPEG and PNG images, got a {image.format} image with "
                f"{frames} frames. Use decode_image."
            )
        return next(_frames(image, channels, _dtype(dtype), first=True))


@contextmanager
def _opened(verb: str, contents: Any) -> Iterator[Image]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError(
            f"{verb} needs Pillow, which is not installed. Install it: pip install pillow."
        ) from error
    if isinstance(contents, np.ndarray) and not contents.ndim:
        contents = contents.item()
    if not isinstance(contents, bytes):
        raise InvalidArgumentError(
            f"contents of {verb} must be the bytes of one image, got {type(contents).__name__}. "
            "Pass what read_file returns; decode before batch."
        )
    try:
        with Image.open(io.BytesIO(contents), formats=_FORMATS) as image:
            yield image
    except UnidentifiedImageError as error:
        raise InvalidArgumentError(
            f"contents of {verb} must be an image of format {', '.join(_FORMATS)}, got "
            f"{len(contents)} bytes that start with {contents[:8]!r}. Pass the bytes of the file."
        ) from error
    except (OSError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise InvalidArgumentError(
            f"contents of {verb} ({len(contents)} bytes) can't be decoded: {error}. Is the file "
            "whole?"
        ) from error


def _frames(
    image: Image, channels: int, dtype: np.dtype[Any], *, first: bool
) -> Iterator[np.ndarray]:
    allowed = _CHANNELS[str(image.format)]
    if channels not in allowed:
        raise InvalidArgumentError(
            f"channels must be one of {allowed} for a {image.format} image, got {shown(channels)}. "
            "Convert the image, or leave channels out."
        )
    if channels == 1 and image.format == "JPEG":
        image.draft("L", image.size)  # the image's own gray, not one of its colors
    if (
        dtype != np.uint8
        and "16" in str(getattr(image, "tile", ""))
        and not image.mode.startswith("I")
    ):
        raise UnsupportedError(
            "A PNG image with 16 bits for each color can be decoded to uint8 only, got "
            f"{dtype}. Write it as gray, or in another format."
        )
    for number in range(1 if first else getattr(image, "n_frames", 1)):
        image.seek(number)
        pixels = _with_channels(_pixels(image, channels), channels)
        yield _converted(pixels, dtype, is_png=image.format == "PNG")


def _pixels(image: Image, channels: int) -> np.ndarray:
    """Returns the pixels with the channels of the image: uint8, or uint16 for deep gray."""
    transparent = "transparency" in image.info and image.format == "PNG"
    if image.mode.startswith("I"):
        return np.asarray(image).astype(np.uint16)[..., None]
    if image.mode == "1":
        image = image.convert("L")
    elif transparent and (channels == 4 or image.mode == "P"):
        image = image.convert("RGBA")
    elif image.mode not in {"L", "LA", "RGB", "RGBA"} or image.format == "GIF":
        image = image.convert("RGB")
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def _with_channels(pixels: np.ndarray, channels: int) -> np.ndarray:
    given = pixels.shape[-1]
    if channels in {0, given}:
        return pixels
    if channels == 1:
        if given == 2:
            return pixels[..., :1]
        shares = pixels[..., :3].astype(np.uint32) @ _GRAY
        return (shares >> 15).astype(pixels.dtype)[..., None]
    colors = pixels[..., :3] if given > 2 else np.repeat(pixels[..., :1], 3, axis=-1)
    if channels == 3:
        return colors
    opaque = np.full((*pixels.shape[:-1], 1), np.iinfo(pixels.dtype).max, pixels.dtype)
    return np.concatenate([colors, pixels[..., -1:] if given == 2 else opaque], axis=-1)


def _converted(pixels: np.ndarray, dtype: np.dtype[Any], *, is_png: bool) -> np.ndarray:
    if dtype == np.float32:
        return pixels / np.float32(np.iinfo(pixels.dtype).max)
    if dtype == np.uint8 and pixels.dtype == np.uint16:
        return (pixels >> 8).astype(np.uint8)
    if dtype == np.uint16 and pixels.dtype == np.uint8:
        return pixels * np.uint16(257 if is_png else 256)  # as TensorFlow
    return np.array(pixels)


def _dtype(dtype: Any) -> np.dtype[Any]:
    found = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    if found not in _DTYPES:
        raise InvalidArgumentError(
            f"dtype of an image must be uint8, uint16 or float32, got {found}. Convert it then."
        )
    return found
