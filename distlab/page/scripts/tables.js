// Rows stay and only their texts change, so that what a reader selects stays selected.
function showTable(name, rows, dress) {
  const headings = all(`.${name} thead th[data-column]`), body = one(`.${name} tbody`)
  const texts = headings.map((heading) => rows.get_column(heading.dataset.column))
  const titles = headings.map((heading) => rows.get_column(heading.dataset.title))
  const count = texts[0].length
  while (body.rows.length > count) body.deleteRow(-1)
  while (body.rows.length < count) body.insertRow().append(...headings.map(cellBelow))
  Array.from(body.rows).forEach((row, place) => {
    Array.from(row.cells).forEach((cell, column) => {
      // A cell that holds a control keeps it, and the control gets the text.
      setText(cell.firstElementChild ?? cell, String(texts[column][place]))
      if (titles[column]) cell.title = titles[column][place]
    })
    dress?.(row, place)
  })
  one(`.${name}`).hidden = !count
}

function cellBelow(heading, column) {
  const cell = document.createElement(column ? "td" : "th")
  if (!column) cell.scope = "row"
  cell.className = heading.className
  return cell
}

// Puts a control into a row's first cell, once.
function dressFirst(row, tag) {
  const cell = row.cells[0]
  if (cell.firstElementChild?.localName === tag) return cell.firstElementChild
  const control = document.createElement(tag)
  control.textContent = cell.textContent
  cell.replaceChildren(control)
  return control
}

// The row whose traffic is drawn, chosen by a button in its first cell.
function dressReduction(row, place) {
  const button = dressFirst(row, "button")
  button.type = "button"
  button.className = "link"
  button.setAttribute("aria-pressed", String(place === state.reduction))
}

one(".reductions tbody").addEventListener("click", (event) => {
  const row = event.target.closest("tr")
  if (row == null || String(getSelection())) return
  send({reduction: row.sectionRowIndex})
  Array.from(row.parentElement.rows).forEach(dressReduction)
})
