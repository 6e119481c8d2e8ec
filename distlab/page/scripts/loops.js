// Loops that asked to be controlled.
const ORDERS = [["pause", "Pause"], ["step", "One step"], ["resume", "Resume"], ["stop", "Stop"]]

function showLoops() {
  const loops = facts.loops ?? [], box = one(".loops")
  const numbers = JSON.stringify(loops.map((loop) => loop.number))
  if (box.dataset.shown !== numbers) {
    box.dataset.shown = numbers
    box.replaceChildren(...loops.map(loopRow))
  }
  loops.forEach((loop, place) => {
    const row = box.children[place], waits = ["pausing", "paused"].includes(loop.state)
    setText(row.querySelector("b"), loop.name)
    setText(row.querySelector("span"), `${loop.state}, ${loop.position} batches so far`)
    row.querySelector("[data-order=pause]").hidden = waits
    row.querySelector("[data-order=resume]").hidden = !waits
  })
}

function loopRow({number}) {
  const row = document.createElement("li"), name = document.createElement("b"), says = document.createElement("span")
  says.setAttribute("role", "status")
  const buttons = ORDERS.map(([order, label]) => {
    const button = document.createElement("button")
    button.type = "button"
    button.dataset.order = order
    button.textContent = label
    button.addEventListener("click", () => tell({orders: state.orders + 1, loop: number, order}))
    return button
  })
  row.append(name, says, ...buttons)
  return row
}
