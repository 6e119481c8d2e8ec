// The buttons of controlled loops. Each keeps its place, before the texts: a second click meets none
// but the first one's.
const ORDERS = [["pause", "Pause"], ["resume", "Resume"], ["step", "One step"], ["stop", "Stop"]]
const TAKEN_IN = {
  pause: ["running", "between loops"], resume: ["pausing", "paused"], step: ["paused"],
  stop: ["running", "pausing", "paused", "between loops"],
}

function showLoops() {
  const loops = facts.loops ?? [], box = one(".loops")
  const numbers = JSON.stringify(loops.map((loop) => loop.number))
  if (box.dataset.shown !== numbers) {
    box.dataset.shown = numbers
    box.replaceChildren(...loops.map(loopRow))
  }
  loops.forEach((loop, place) => {
    const row = box.children[place]
    setText(row.querySelector("b"), loop.name)
    setText(row.querySelector("span"), `${loop.state}, ${thousands(loop.position)} in this loop`)
    for (const button of row.querySelectorAll("button")) {
      button.disabled = !TAKEN_IN[button.dataset.order].includes(loop.state)
    }
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
  row.append(...buttons, name, status)
  return row
}
