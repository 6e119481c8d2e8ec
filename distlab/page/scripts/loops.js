// The buttons of controlled loops.
const ORDERS = [["pause", "Pause"], ["step", "One step"], ["resume", "Resume"], ["stop", "Stop"]]

function showLoops() {
  const loops = facts.loops ?? [], box = one(".loops")
  const numbers = JSON.stringify(loops.map((loop) => loop.number))
  if (box.dataset.shown !== numbers) {
    box.dataset.shown = numbers
    box.replaceChildren(...loops.map(loopRow))
  }
  loops.forEach((loop, place) => {
    const row = box.children[place], held = ["pausing", "paused"].includes(loop.state)
    setText(row.querySelector("b"), loop.name)
    setText(row.querySelector("span"), `${loop.state}, ${thousands(loop.position)} so far`)
    row.querySelector("[data-order=pause]").hidden = held
    row.querySelector("[data-order=resume]").hidden = !held
  })
}

function loopRow({number}) {
  const row = document.createElement("li"), name = document.createElement("b"), status = document.createElement("span")
  status.setAttribute("role", "status")
  const buttons = ORDERS.map(([order, label]) => {
    const button = document.createElement("button")
    button.type = "button"
    button.dataset.order = order
    button.textContent = label
    button.addEventListener("click", () => send({orders: state.orders + 1, loop: number, order}))
    return button
  })
  row.append(name, status, ...buttons)
  return row
}
