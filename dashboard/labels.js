// On narrow screens a table's rows are cards, and each cell says by itself which column it is of.

/** Name the cells of `row` by the `heads` of the table: pairs, the first member is the name. */
export function labelCells(row, heads) {
  heads.forEach(([name], index) => {
    row.cells[index].dataset.label = name;
  });
}
