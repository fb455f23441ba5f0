// Renews what changes: the same page is asked for again, and what has the mark `data-live` in it takes the place of the old.
(() => {
  "use strict";
  const state = document.getElementById("live-state"), button = document.getElementById("live-pause");
  if (!state || !button || !document.querySelector("[data-live]")) return;
  let isPaused = false, isOver = false;
  const tell = text => { if (state.textContent !== text) state.textContent = text; };
  const until = () => document.querySelector("[data-until]")?.dataset.until ?? "0";
  const put = page => {
    for (const fresh of page.querySelectorAll("[data-live]")) {
      const old = document.getElementById(fresh.id);
      if (!old || old.isEqualNode(fresh)) continue;
      const focus = old.contains(document.activeElement) ? document.activeElement.id : "";
      old.replaceChildren(...fresh.childNodes);
      if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
    }
  };
  const renew = async () => {
    try {
      const answer = await fetch(location.href, { headers: { "X-Bcnet-Live": until() }, cache: "no-store" });
      if (answer.status === 401) {
        isOver = true;
        tell("You are logged out. Load the page again to log in.");
      } else if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        // Somebody may have stopped it meanwhile.
        if (isPaused) return;
        put(page);
        tell("Live");
      } else {
        tell("The server cannot answer; trying again.");
      }
    } catch {
      tell("No answer from the server; trying again.");
    }
  };
  const step = async () => {
    if (!isPaused && !isOver && !document.hidden && !String(getSelection())) await renew();
    if (!isOver) setTimeout(step, 2000);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    tell(isPaused ? "Paused" : "Live");
  });
  tell("Live");
  setTimeout(step, 2000);
})();
