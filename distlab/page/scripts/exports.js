// Saving the run: the page explains why there is no file.
function sayExport(text) {
  setText(one(".saving span"), text)
  one(".saving").hidden = !text
}

async function saveExport(link) {
  const answer = await fetch(link.href, {cache: "no-store"})
  if (!answer.ok) return sayExport(`No file: ${await answer.text()}`)
  const [, name] = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition")) ?? []
  const file = document.createElement("a")
  file.href = URL.createObjectURL(await answer.blob())
  file.download = name ?? link.dataset.export
  file.click()
  setTimeout(() => URL.revokeObjectURL(file.href), 60000)
  sayExport("")
}

for (const link of all("[data-export]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault()
    if (link.ariaBusy === "true") return
    link.ariaBusy = "true"
    sayExport(`Making ${link.dataset.export}\u2026`)
    saveExport(link)
      .catch(() => sayExport("No file: the server can't be reached."))
      .finally(() => { link.ariaBusy = "false" })
  })
}
