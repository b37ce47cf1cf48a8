// The page is complete without this: it only replaces the parts that are not the same any more.
(() => {
  const live = document.getElementById("live");
  const link = document.getElementById("link");
  const shown = new Map();
  const known = (parts) => parts.map((part) => part.id).join(" ");
  // A part that is replaced keeps what is open, and the focus.
  const replace = (old, part) => {
    for (const folded of old.querySelectorAll("details[open]")) {
      part.querySelector(`#${CSS.escape(folded.id)}`)?.setAttribute("open", "");
    }
    const places = (one) => [...one.querySelectorAll("summary, a, [tabindex]")];
    const at = places(old).indexOf(document.activeElement);
    old.replaceWith(part);
    if (at >= 0) places(part)[at]?.focus({ preventScroll: true });
  };
  const source = new EventSource("events");
  source.addEventListener("message", (event) => {
    link.hidden = true;
    const parts = [...new DOMParser().parseFromString(event.data, "text/html").body.children];
    const old = [...live.children];
    const whole = known(parts) !== known(old);
    parts.forEach((part, at) => {
      const html = part.outerHTML;
      if (!whole && shown.get(part.id) !== html) replace(old[at], part);
      shown.set(part.id, html);
    });
    if (whole) live.replaceChildren(...parts);
  });
  source.addEventListener("error", () => {
    link.hidden = false;
    // Refused, as by a new token; the browser does not try again by itself.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000);
  });
})();
