"""From float32 states to the stored dtype: refuse what it cannot hold, measure what it loses."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from raptor.activations.manifest import Dtype, Rounding
from raptor.errors import RaptorError


class Rounder:
    """Rounds batch after batch to `dtype` and adds up the error, per state.

    Its scratch memory is kept between batches: fresh pages cost more than the arithmetic.
    """

    def __init__(self, dtype: Dtype) -> None:
        self.dtype: torch.dtype = getattr(torch, dtype)
        self._scratch: torch.Tensor | None = None
        self.clear()

    def clear(self) -> None:
        """Forget the statistics, as at the start of a shard."""
        self._entries = 0
        self._sums: torch.Tensor | None = None

    def __call__(self, states_BSTD: torch.Tensor, sample_ids: Sequence[str]) -> torch.Tensor:
        """The states in `dtype`, on their device.

        Raises `RaptorError` naming a layer and the first image with a NaN, an infinity or an
        entry that `dtype` cannot hold.
        """
        exact = states_BSTD.float()
        scratch = self._scratch_like(exact)
        largest_BS = torch.abs(exact, out=scratch).flatten(2).amax(2)
        # Written so that NaN fails it too.
        if not bool((largest_BS <= torch.finfo(self.dtype).max).all()):
            raise RaptorError(self._fault(largest_BS, sample_ids))
        stored = exact.to(self.dtype)
        error = scratch.copy_(stored).sub_(exact)
        squared_error_S = _sum_of_squares(error)
        max_error_S = error.abs_().amax((0, 2, 3))
        self._add(largest_BS.amax(0), max_error_S, _sum_of_squares(exact), squared_error_S)
        self._entries += exact[:, 0].numel()
        return stored

    def rounding(self) -> Rounding:
        """The statistics since `clear`."""
        assert self._sums is not None
        max_entry, max_error, squared_entry, squared_error = self._sums.tolist()
        return Rounding(
            entries=self._entries,
            max_entry=max_entry,
            max_error=max_error,
            squared_entry=squared_entry,
            squared_error=squared_error,
        )

    def _scratch_like(self, states_BSTD: torch.Tensor) -> torch.Tensor:
        scratch, wanted = self._scratch, states_BSTD.shape
        if scratch is None or len(scratch) < len(states_BSTD) or scratch.shape[1:] != wanted[1:]:
            self._scratch = torch.empty_like(states_BSTD)
        return self._scratch[: len(states_BSTD)]

    def _add(self, *statistics_S: torch.Tensor) -> None:
        batch = torch.stack([values.float() for values in statistics_S]).cpu().double()
        if self._sums is None:
            self._sums = batch
            return
        self._sums[:2] = torch.maximum(self._sums[:2], batch[:2])
        self._sums[2:] += batch[2:]

    def _fault(self, largest_BS: torch.Tensor, sample_ids: Sequence[str]) -> str:
        limit = torch.finfo(self.dtype).max
        image, layer = torch.nonzero(~(largest_BS <= limit))[0].tolist()
        value = float(largest_BS[image, layer])
        name = f"layer {layer}" if layer else "the embedding (layer 0)"
        if value - value != 0.0:
            return (
                f"{name} of image {sample_ids[image]}: the states hold a NaN or an infinity; "
                "check the teacher's weights, data.mean and data.std"
            )
        wider = "bfloat16" if self.dtype == torch.float16 else "float32"
        return (
            f"{name} of image {sample_ids[image]}: an entry of size {value:.6g} is beyond the "
            f"{limit:.6g} that {str(self.dtype).removeprefix('torch.')} holds; "
            f"set activations.dtype to {wider}"
        )


def _sum_of_squares(states_BSTD: torch.Tensor) -> torch.Tensor:
    """(S,) sums over images, tokens and width."""
    return torch.linalg.vector_norm(states_BSTD.flatten(2), 2, 2).square().sum(0)
