// Renews what changes: the same page is asked for again, and what has the mark `data-live` in it takes the place of the old.
(() => {
  "use strict";
  const state = document.getElementById("live-state"), button = document.getElementById("live-pause");
  if (!state || !button || !document.querySelector("[data-live]")) return;
  let isPaused = false, isOver = false, isAsking = false;
  // What is not the latest is told where it is seen.
  const tell = (text, isLatest = false) => {
    state.parentElement.classList.toggle("stale", !isLatest);
    if (state.textContent !== text) state.textContent = text;
  };
  const end = text => { isOver = true; tell(text); };
  // Text that is replaced cannot be copied.
  const isSelecting = () => String(getSelection()) !== "";
  const tellSelecting = () => { if (!isPaused && !isOver && isSelecting()) tell("Paused while text is selected"); };
  const until = () => document.querySelector("[data-until]")?.dataset.until ?? "0";
  const title = page => page.querySelector("h1")?.textContent;
  const put = page => {
    for (const fresh of page.querySelectorAll("[data-live]")) {
      const old = document.getElementById(fresh.id);
      if (!old || old.isEqualNode(fresh)) continue;
      const focus = old.contains(document.activeElement) ? document.activeElement.id : "";
      const scrolled = [...old.querySelectorAll("[tabindex]")].map(one => [one.id, one.scrollLeft, one.scrollTop]);
      old.replaceChildren(...fresh.childNodes);
      for (const [id, left, top] of scrolled) document.getElementById(id)?.scrollTo(left, top);
      if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
    }
  };
  const ask = async () => {
    const headers = { "X-Bcnet-Live": until() }, signal = AbortSignal.timeout(10000);
    const answer = await fetch(location.href, { headers, signal, cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // Somebody may have stopped it meanwhile.
    if (isPaused) return;
    if (answer.status === 401) return end("You are logged out. Load the page again to log in.");
    if (answer.status === 404) return end("There is no such player or session any more.");
    if (!answer.ok) return tell("The server cannot answer; trying again.");
    // An id is given again when its player has left.
    if (title(page) !== title(document)) return end("This page is about another one by now. Load it again.");
    if (isSelecting()) return tellSelecting();
    put(page);
    tell("Live", true);
  };
  const renew = async () => {
    if (isPaused || isOver || isAsking || document.hidden) return;
    if (isSelecting()) return tellSelecting();
    isAsking = true;
    await ask().catch(() => isPaused || tell("No answer from the server; trying again."));
    isAsking = false;
  };
  const step = async () => {
    await renew();
    if (!isOver) setTimeout(step, 2000);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    if (isPaused && !isOver) tell("Paused");
    renew();
  });
  document.addEventListener("selectionchange", tellSelecting);
  document.addEventListener("visibilitychange", renew);
  tell("Live", true);
  setTimeout(step, 2000);
})();
