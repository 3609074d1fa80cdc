"""llama.cpp's positions of cells for pictures that take fewer positions than cells.

With positions in two dimensions (M-RoPE) all cells of a picture have one position in time. The
position of the next token is that position plus the longer side of the picture, in rows or
columns.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Picture:
    start: int
    num_cells: int
    num_advanced: int

    @property
    def end(self) -> int:
        return self.start + self.num_cells


class Places:
    """The pictures in the cells of each holder; cells are cut only at the borders of pictures."""

    def __init__(self) -> None:
        self._pictures: dict[int, tuple[_Picture, ...]] = {}

    def position(self, holder: int, cell: int) -> int:
        """Return llama.cpp's position of `cell`: a token, or the first cell of a picture."""
        before = (one for one in self._pictures.get(holder, ()) if one.end <= cell)
        return cell - sum(one.num_cells - one.num_advanced for one in before)

    def add(self, holder: int, start: int, num_cells: int, num_advanced: int) -> None:
        """Add a picture, or a part of a picture, in `num_cells` from `start` on."""
        before = self._before(holder, start)
        self._pictures[holder] = (*before, _Picture(start, num_cells, num_advanced))

    def copy(self, source: int, holder: int, length: int) -> None:
        """Give `holder` the pictures in the first `length` cells of `source`."""
        self._keep(holder, self._before(source, length))

    def cut(self, holder: int, start: int) -> None:
        """Remove the pictures of `holder` from cell `start` on."""
        self._keep(holder, self._before(holder, start))

    def __len__(self) -> int:
        """Return the number of holders with pictures."""
        return len(self._pictures)

    def _before(self, holder: int, cell: int) -> tuple[_Picture, ...]:
        return tuple(one for one in self._pictures.get(holder, ()) if one.end <= cell)

    def _keep(self, holder: int, pictures: tuple[_Picture, ...]) -> None:
        if pictures:
            self._pictures[holder] = pictures
        else:
            self._pictures.pop(holder, None)
