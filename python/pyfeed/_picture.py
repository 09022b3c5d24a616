"""Pictures of arrays and of image files, for notebooks: small PNG files that NumPy and zlib make."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_PIXELS = 96  # the largest width and height of a picture
_FINE = 4  # a picture of fewer pixels is made of means over at most this number of pixels in each direction
_CHANNELS = (1, 3, 4)  # of the last dimension: grey, RGB, RGBA
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # of PNG

_MAGIC = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"), (b"GIF87a", "image/gif"))


def find_images(array: npt.NDArray[Any], shape: Sequence[int]) -> Sequence[npt.NDArray[Any]] | npt.NDArray[Any]:
    """Return the images in an array of uint8; none if it does not have the shape of images.

    Parameters
    ----------
    array : numpy.ndarray
        An image (H, W), (H, W, C) or (C, H, W), or a batch of them.
    shape : sequence of int
        The shape of the slot. If only its first dimension is -1, a batch has been made of arrays of fixed size.

    Returns
    -------
    sequence of numpy.ndarray
        Views.
    """
    if array.dtype != np.uint8 or array.size == 0 or array.ndim < 2:
        return ()
    is_batch = len(shape) == array.ndim and shape[0] == -1 and -1 not in shape[1:]
    if array.ndim == 2:
        return () if is_batch else (array,)
    if array.ndim == 3:
        if array.shape[2] in _CHANNELS:
            return (array,)
        if is_batch:
            return array
        return (array,) if array.shape[0] in (1, 3) else ()
    if array.ndim == 4 and (array.shape[3] in _CHANNELS or array.shape[1] in (1, 3)):
        return array
    return ()


def shrink(image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return an image of shape (H, W, C) with at most `MOST_PIXELS` rows and columns. Not all pixels are read."""
    if image.ndim == 2:
        image = image[:, :, np.newaxis]
    elif image.shape[2] not in _CHANNELS:
        image = np.moveaxis(image, 0, 2)
    step = -(-max(image.shape[:2]) // (MOST_PIXELS * _FINE))
    image = image[::step, ::step]
    block = -(-max(image.shape[:2]) // MOST_PIXELS)
    if block == 1:
        return np.ascontiguousarray(image)
    height, width = (max(1, n // block) for n in image.shape[:2])
    # An image that is narrower than a block is one pixel wide.
    rows, columns = min(block, image.shape[0]), min(block, image.shape[1])
    image = image[: height * rows, : width * columns]
    means = image.reshape(height, rows, width, columns, image.shape[2]).mean(axis=(1, 3))
    return np.asarray(means, np.uint8)


def encode_png(image: npt.NDArray[np.uint8]) -> bytes:
    """Return a PNG file of a contiguous image of shape (H, W, C)."""
    height, width, channels = image.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def find_type(piece: npt.NDArray[np.uint8]) -> str | None:
    """Return the media type of an image file, by its first bytes; None if it is none that browsers show."""
    first = piece[:16].tobytes()
    if first[:4] == b"RIFF" and first[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in (*_MAGIC, (b"GIF89a", "image/gif")) if first.startswith(magic)), None)
