// A step of this process on other numbers of replicas: what to simulate, and the newest result.
function showSimulation() {
  const list = one(".simulated-step"), button = one(".simulate button")
  setItems(list, facts.simulated_steps ?? [], (name) => new Option(name))
  button.disabled = Boolean(facts.simulating)
  setItems(one(".simulated thead"), [facts.simulated_headings ?? []], (row) => rowOf(row, "th", "th"))
  setItems(one(".simulated tbody"), facts.simulated_rows ?? [], (row) => rowOf(row, "th", "td"))
  one(".simulated").hidden = !facts.simulated_rows?.length
}

function rowOf(texts, first, other) {
  const row = document.createElement("tr")
  row.append(...texts.map((text, place) => {
    const cell = document.createElement(place ? other : first)
    cell.textContent = text
    return cell
  }))
  return row
}

one(".simulate").addEventListener("submit", (event) => {
  event.preventDefault()
  const simulated = one(".simulated-step").value, sizes = one(".simulated-sizes").value
  send({simulations: state.simulations + 1, simulated, sizes})
})
