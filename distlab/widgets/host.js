// Draws a model over the picture of it that a notebook stores: `draw(model)` returns
// `{ el, remove }`. Stands before a widget's own file.

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties)
  made.append(...children)
  return made
}

// Draws over the content of every element whose class is the model's `host`, later
// elements included. Returns a function that ends this and uncovers the content.
function drawInHosts(model, draw) {
  const selector = `.${model.get("host")}`
  const drawings = new Map()
  const update = () => {
    const hosts = Array.from(document.querySelectorAll(selector))
    // A drawing whose host was replaced moves on to the new one, before anything is painted.
    const orphans = Array.from(drawings).filter(([host]) => !host.isConnected)
    for (const host of hosts.filter((host) => !drawings.has(host))) {
      const [old, drawing] = orphans.shift() ?? [null, draw(model)]
      drawings.delete(old)
      drawings.set(host, drawing)
      for (const child of host.children) child.hidden = true
      host.append(drawing.el)
    }
  }
  const holds = (node) => node.nodeType === 1 && (node.matches(selector) || node.querySelector(selector))
  const observer = new MutationObserver((records) => {
    if (records.some((record) => Array.from(record.addedNodes).some(holds))) update()
  })
  observer.observe(document.body, { childList: true, subtree: true })
  update()

  return () => {
    observer.disconnect()
    for (const [host, drawing] of drawings) {
      drawing.remove()
      for (const child of host.children) child.hidden = false
    }
    drawings.clear()
  }
}

// For programs that place the widget themselves, as any other ipywidget.
function drawWhere(draw) {
  return ({ model, el }) => {
    const drawing = draw(model)
    el.append(drawing.el)
    return () => drawing.remove()
  }
}
