// Which batch is shown.
function showBatch() {
  const slider = one(".slider"), number = one(".number input"), follow = state.batch == null
  slider.min = number.min = facts.batch_first ?? 0
  slider.max = number.max = facts.batch_last ?? 0
  one(".follow input").checked = follow
  if (follow || document.activeElement !== slider) slider.value = follow ? facts.batch_last : state.batch
  if (document.activeElement !== number) number.value = facts.batch_number ?? 0
  one(".follow span").textContent = facts.status === "live" ? "follow live" : "show the last"
  one(".uneven").hidden = !(facts.batch_uneven ?? []).length
  one('.step[data-move="-1"]').disabled = facts.batch_before == null
  one('.step[data-move="1"]').disabled = facts.batch_after == null
  showDatasets()
  setItems(one(".sizes"), facts.batch_sizes ?? [], sizeRow)
  showPieces()
}

function showDatasets() {
  const list = one(".dataset"), chosen = String(state.dataset ?? "")
  const datasets = [["", "all datasets"], ...(facts.batch_datasets ?? [])]
  setItems(list, datasets, ([number, name]) => new Option(name, number))
  if (list.value !== chosen) list.value = chosen
}

one(".dataset").addEventListener("change", (event) => {
  const {value} = event.target
  send({dataset: value === "" ? null : Number(value), batch: null})
  showBatch()
})

function showPieces() {
  setItems(one(".pieces tbody"), facts.batch_pieces ?? [], (texts) => {
    const row = document.createElement("tr")
    row.append(...texts.map((text, place) => {
      const cell = document.createElement(place ? "td" : "th")
      if (!place) cell.scope = "row"
      if (place === 2) cell.className = "number"
      cell.textContent = text
      return cell
    }))
    return row
  })
}

function sizeRow({replica, size, text, color, first, partial}) {
  const row = document.createElement("li"), mark = document.createElement("i")
  const name = document.createElement(facts.batch_parted ? "button" : "span"), amount = document.createElement("b")
  mark.style.setProperty("--mark", color)
  name.textContent = replica
  if (facts.batch_parted) {
    name.type = "button"
    name.className = "link"
    name.addEventListener("click", () => send({replica: first}))
  }
  amount.textContent = text
  row.className = size === 0 ? "empty" : partial ? "partial" : "full"
  row.dataset.size = size
  row.append(mark, name, amount)
  return row
}

function choose(number) {
  const chosen = Math.min(Math.max(Math.round(number), facts.batch_first), facts.batch_last)
  send({batch: chosen})
  one(".slider").value = chosen
  showBatch()
}

one(".slider").addEventListener("input", (event) => choose(Number(event.target.value)))
one(".number input").addEventListener("change", (event) => choose(Number(event.target.value)))
one(".follow input").addEventListener("change", (event) => {
  send({batch: event.target.checked ? null : facts.batch_number ?? 0})
  showBatch()
})
one(".uneven").addEventListener("click", () => {
  const from = facts.batch_number ?? 0, uneven = facts.batch_uneven ?? []
  if (uneven.length) choose(uneven.find((number) => number > from) ?? uneven[0])
})
for (const button of all(".step")) {
  button.addEventListener("click", () => {
    const next = button.dataset.move === "1" ? facts.batch_after : facts.batch_before
    if (next != null) choose(next)
  })
}
