"""The logit lens: what each layer's hidden state would say if it were the last one.

Each layer's output at the last position goes through the model's own final norm and head, as if no layer followed
(nostalgebraist, "interpreting GPT: the logit lens", 2020). Only the highest tokens of each layer are kept, with the
probability and rank of the token that the step chose. `inference.head` computes it; here it opens without the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
N_TOP = 20


@dataclass(frozen=True, slots=True, eq=False)
class LensRecord:
    """The logit lens of one step.

    Attributes:
        ids: [L, n] int32, the highest tokens of each layer, highest first; n is `N_TOP` or the vocabulary.
        probs: [L, n] their probabilities among the whole vocabulary.
        chosen_probs: [L] probability of the token that the step chose.
        chosen_ranks: [L] int32, its rank, 1 = highest.
    """

    ids: NDArray[np.int32]
    probs: Floats
    chosen_probs: Floats
    chosen_ranks: NDArray[np.int32]

    @property
    def n_layers(self) -> int:
        """L."""
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.ids.nbytes + self.probs.nbytes + self.chosen_probs.nbytes + self.chosen_ranks.nbytes

    def ranks(self, token_id: int) -> NDArray[np.int64]:
        """[L] rank of any token in each layer, 1 = highest; 0 where it is not among the highest that were kept."""
        found = self.ids == token_id
        return np.where(found.any(axis=1), found.argmax(axis=1) + 1, 0)

    @property
    def lead(self) -> int:
        """The layer from which on the last layer's highest token is the highest in every layer."""
        leads = self.ids[:, 0] == self.ids[-1, 0]
        return int(len(leads) - np.argmin(leads[::-1])) if not leads.all() else 0


def lens_bytes(n_layers: int, vocab_size: int) -> int:
    """Bytes of one step's record."""
    return n_layers * (8 * min(N_TOP, vocab_size) + 8)
