"""Images and labels: which ones, in which order, and how they are normalised."""

from raptor.data.samples import write_samples
from raptor.data.split import ImageSplit, open_split

__all__ = ["ImageSplit", "open_split", "write_samples"]
