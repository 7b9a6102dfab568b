"""Arrays of numbers, from whatever a frame or a list gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_numbers(array: NDArray[Any], what: str) -> NDArray[Any]:
    """The array itself, or one of floats where a frame mixes columns of numbers, truth values and missing values.

    Texts are refused even where they could be read as numbers: a column that was read as text is a mistake that
    nobody notices otherwise.
    """
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind != "O":
        raise ValueError(f"{what}: holds values of type {array.dtype}, which are not numbers; encode them first")
    for value in array.flat:
        if not isinstance(value, (int, float, np.number, np.bool_)) or isinstance(value, np.complexfloating):
            raise ValueError(f"{what}: holds values that are not numbers ({type(value).__name__}); encode them first")
    return array.astype(np.float64)
