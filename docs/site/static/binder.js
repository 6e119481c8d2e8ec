// Addresses for Binder become links to the repository that the page names, or its reader enters.
const { repository } = document.currentScript.dataset
document.addEventListener("DOMContentLoaded", () => {
  const places = [...document.querySelectorAll("code")]
    .map((code) => ({ code, address: code.textContent }))
    .filter(({ address }) => address.includes("/OWNER/REPO/"))
  if (!places.length) return
  const field = Object.assign(document.createElement("input"), {
    value: repository, placeholder: "OWNER/REPO", size: 40, spellcheck: false })
  const label = document.createElement("label")
  label.append("Repository on GitHub: ", field)
  places[0].code.closest("ul").before(label)

  field.oninput = () => {
    const name = field.value.trim().replace(/^.*github\.com[/:]/, "")
    const [, found] = name.match(/^([\w-]+\/[\w.-]+?)(?:\.git)?\/?$/) ?? []
    for (const { code, address } of places) {
      const href = address.replace("OWNER/REPO", found)
      code.replaceChildren(found
        ? Object.assign(document.createElement("a"), { href, textContent: href })
        : address)
    }
  }
  field.oninput()
})
