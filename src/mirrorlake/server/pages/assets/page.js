// Keeps a page up to date: asks for the same page again, and replaces the parts that have changed.
// What it shows is rendered by the service alone.

const EVERY = 2000;
const FOCUSABLE = "a[href], button, input, [tabindex]";
const pause = document.querySelector("#pause");
const said = document.querySelector("#said");
let isPaused = false;

function replace(part, fresh) {
  if (fresh === null || fresh.innerHTML === part.innerHTML) return;
  const before = [...part.querySelectorAll(FOCUSABLE)];
  const at = before.indexOf(document.activeElement);
  const scrolls = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  part.replaceChildren(...fresh.childNodes);
  part.querySelectorAll(".scroll").forEach((one, n) => { one.scrollLeft = scrolls[n] ?? 0; });
  if (at >= 0) part.querySelectorAll(FOCUSABLE)[at]?.focus({ preventScroll: true });
  reveal(part);
}

async function refresh() {
  const selection = document.getSelection();
  if (isPaused || document.hidden || (selection && !selection.isCollapsed)) return;
  const answer = await fetch(location.href, { credentials: "same-origin" });
  if (answer.redirected) {
    location.reload();
    return;
  }
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    replace(part, fresh.getElementById(part.id));
  }
}

async function follow() {
  try {
    await refresh();
    document.body.classList.remove("lost");
    if (said.textContent === "The service does not answer.") said.textContent = "";
  } catch {
    document.body.classList.add("lost");
    said.textContent = "The service does not answer.";
  }
  setTimeout(follow, EVERY);
}

function reveal(part) {
  for (const button of part.querySelectorAll("button.copy")) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (button === null) return;
  const text = button.closest(".commands").querySelector("code").textContent.trim();
  try {
    await navigator.clipboard.writeText(text);
    said.textContent = "Copied.";
  } catch {
    said.textContent = "It cannot be copied here. Select the text.";
  }
});

reveal(document);
if (pause !== null && document.querySelector("[data-live]") !== null) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
  });
  setTimeout(follow, EVERY);
}
