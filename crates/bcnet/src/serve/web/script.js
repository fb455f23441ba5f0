// Updates the page: fetches it again, and replaces the elements with the attribute `data-live`.
(() => {
  "use strict";
  const state = document.getElementById("live-state"), button = document.getElementById("live-pause");
  if (!state || !button || !document.querySelector("[data-live]")) return;
  let isPaused = false, isOver = false, isFetching = false;
  // The footer shows whether the values are current.
  const show = (text, isLatest = false) => {
    state.parentElement.classList.toggle("stale", !isLatest);
    if (state.textContent !== text) state.textContent = text;
  };
  const end = text => { isOver = true; show(text); };
  // Replacing selected text would prevent copying it.
  const isSelecting = () => String(getSelection()) !== "";
  const showSelecting = () => { if (!isPaused && !isOver && isSelecting()) show("Paused while text is selected"); };
  const until = () => document.querySelector("[data-until]")?.dataset.until ?? "0";
  const title = page => page.querySelector("h1")?.textContent;
  const update = page => {
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
  const fetchPage = async () => {
    const headers = { "X-Bcnet-Live": until() }, signal = AbortSignal.timeout(10000);
    const answer = await fetch(location.href, { headers, signal, cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // The user may have paused the updates meanwhile.
    if (isPaused) return;
    if (answer.status === 401) return end("You are logged out. Reload the page to log in.");
    if (answer.status === 404) return end("This player has left, or the session no longer exists.");
    if (!answer.ok) return show("The server reported an error; trying again.");
    // When a player has left, another player may get the same id. A session may get a new name.
    if (title(page) !== title(document)) return end("This address now belongs to another player or session. Reload the page.");
    if (isSelecting()) return showSelecting();
    update(page);
    show("Live", true);
  };
  const renew = async () => {
    if (isPaused || isOver || isFetching || document.hidden) return;
    if (isSelecting()) return showSelecting();
    isFetching = true;
    await fetchPage().catch(() => isPaused || show("No answer from the server; trying again."));
    isFetching = false;
  };
  const step = async () => {
    await renew();
    if (!isOver) setTimeout(step, 2000);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    if (isPaused && !isOver) show("Paused");
    renew();
  });
  document.addEventListener("selectionchange", showSelecting);
  document.addEventListener("visibilitychange", renew);
  show("Live", true);
  setTimeout(step, 2000);
})();
