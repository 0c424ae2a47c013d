"""The map of heads: one thumbnail a head, in place or ranked by a measure, with its table and its sentence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from charts.base import Translate, percent
from inference.errors import sentences
from inference.head_measures import HeadMap

ORDERS = ("place", "highest", "lowest")
RANKED = 48  # so many heads in a ranking; the table has them all
HIDDEN = 255  # the level of a cell that the mask hides


@dataclass(frozen=True, slots=True)
class Mosaic:
    """The thumbnails to draw.

    Attributes:
        heads: [k, 2] index of the layer in the record, and head, in the order of drawing.
        layers: the recorded layers' numbers.
        groups: [H] the KV head that each query head reads.
        levels: [l, H, n, n] uint8; 0 to 254 is the square root of the weight, `HIDDEN` what no query sees.
        notes: [l, H] the measure in words, and `bars` [l, H] its length between the least and the most, 0 to 1.
    """

    title: str
    description: str
    table: pd.DataFrame
    heads: NDArray[np.int64]
    layers: tuple[int, ...]
    groups: NDArray[np.int64]
    levels: NDArray[np.uint8]
    notes: NDArray[np.object_]
    bars: NDArray[np.float32]
    ranked: bool


def measure_names(t: Translate) -> dict[str, str]:
    """What the measures are called."""
    return {
        "entropy": t("entropy"),
        "distance": t("distance"),
        "first": t("on the first token"),
        "previous": t("on the previous token"),
        "induction": t("induction"),
    }


def measure_help(t: Translate) -> dict[str, str]:
    """What each measure means, in a sentence."""
    return {
        "entropy": t("How widely a row is spread, in nats: 0 reads one key."),
        "distance": t("How many positions back a row reads on average."),
        "first": t("The mean weight on position 0, where many heads rest when they find nothing."),
        "previous": t("The mean weight on the token just before."),
        "induction": t("The mean weight on what followed the same token earlier; it needs tokens that repeat."),
    }


def mosaic(found: HeadMap, measure: str, order: str, *, t: Translate) -> Mosaic:
    """The map of heads.

    Args:
        measure: one of `inference.head_measures.MEASURES`; it ranks the heads and is written beside each.
        order: `"place"` (layer by head), or the `RANKED` heads that measure `"highest"` or `"lowest"`.
    """
    values = found.measures[measure]
    return Mosaic(
        title=t("Map of heads"),
        description=_describe(found, measure, t),
        table=_table(found, t),
        heads=_order(values, order),
        layers=found.layers,
        groups=np.arange(values.shape[1]) // (values.shape[1] // found.n_kv_heads),
        levels=_levels(found.thumbs),
        notes=np.array([[say(measure, value, t) for value in row] for row in values.tolist()], dtype=object),
        bars=_bars(values),
        ranked=order != "place",
    )


def say(measure: str, value: float, t: Translate) -> str:
    """A measure's value for people."""
    if np.isnan(value):
        return t("no token repeats") if measure == "induction" else "–"
    if measure == "entropy":
        return t("{value} nats").format(value=f"{value:.2f}")
    return f"{value:,.1f}" if measure == "distance" else percent(value)


def _order(values: NDArray[np.float32], order: str) -> NDArray[np.int64]:
    """[k, 2] heads in the order asked for; those without a value are not ranked."""
    flat = values.ravel()
    if order == "place":
        chosen = np.arange(len(flat))
    else:
        ranked = np.argsort(-flat if order == "highest" else flat, kind="stable")
        chosen = ranked[~np.isnan(flat[ranked])][:RANKED]
    return np.stack(np.unravel_index(chosen, values.shape), axis=1).astype(np.int64)


def _levels(thumbs: NDArray[np.float32]) -> NDArray[np.uint8]:
    hidden = np.isnan(thumbs)
    shades = np.sqrt(np.where(hidden, 0, thumbs)) * (HIDDEN - 1)
    return np.where(hidden, HIDDEN, shades.round()).astype(np.uint8)


def _bars(values: NDArray[np.float32]) -> NDArray[np.float32]:
    known = np.nan_to_num(values, nan=0.0)
    top = float(known.max()) or 1.0
    return (known / top).astype(np.float32)


def _table(found: HeadMap, t: Translate) -> pd.DataFrame:
    """One row a head with all measures."""
    n_heads = next(iter(found.measures.values())).shape[1]
    columns: dict[str, object] = {
        t("layer"): np.repeat(found.layers, n_heads),
        t("head"): np.tile(np.arange(n_heads), len(found.layers)),
        t("KV head"): np.tile(np.arange(n_heads) // (n_heads // found.n_kv_heads), len(found.layers)),
    }
    names = measure_names(t)
    return pd.DataFrame({**columns, **{names[name]: values.ravel() for name, values in found.measures.items()}})


def _describe(found: HeadMap, measure: str, t: Translate) -> str:
    values = found.measures[measure]
    n_layers, n_heads = values.shape
    said = [t("{heads} heads in {layers} layers.").format(heads=f"{n_layers * n_heads:,}", layers=n_layers)]
    if found.n_kv_heads < n_heads:
        note = t("{n} query heads share one KV head; they stand together.")
        said.append(note.format(n=n_heads // found.n_kv_heads))
    if not np.isnan(values).all():
        layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
        best = t("Highest {measure}: layer {layer}, head {head}, {value}.").format(
            measure=measure_names(t)[measure],
            layer=found.layers[layer],
            head=head,
            value=say(measure, float(values[layer, head]), t),
        )
        said.append(best)
    if not found.exact:
        note = t("Measured on {n} of {all} queries, evenly spaced; each row is exact.")
        said.append(note.format(n=len(found.queries), all=f"{found.n_positions:,}"))
    return sentences(said, t)
