// Starts the page: the views, the frame around them, and what is shown while burnish can't be reached.

import { useKeys } from "./keys.js";
import { html, render, useEffect, useErrorBoundary, useState } from "./lib.js";
import { begin } from "./login.js";
import { VersionBadge } from "./parts/badge.js";
import { Button, Kbd } from "./parts/button.js";
import { Help } from "./parts/help.js";
import { Icon } from "./parts/icon.js";
import { LearningState } from "./parts/learning_state.js";
import { Locked, useMay } from "./parts/may.js";
import { Note } from "./parts/note.js";
import { Toasts } from "./parts/toast.js";
import { Who } from "./parts/who.js";
import { address, go, useRoute } from "./router.js";
import { useStore } from "./store.js";
import { LOGIN, useView, VIEWS } from "./views.js";

const ICON = new URL("icon.svg", import.meta.url).pathname;

function App() {
  const route = useRoute();
  const [help, setHelp] = useState(false);
  const locked = useStore((state) => state.locked) || route.view === LOGIN.path;
  const view = locked ? LOGIN : (VIEWS.find(({ path }) => path === route.view) ?? VIEWS[0]);
  useKeys("Everywhere", [
    { key: "?", does: "Show the keys", run: () => setHelp(true) },
    ...VIEWS.map(({ path, title, key }) => ({ key, does: `Go to ${title}`, run: () => go(path) })),
  ]);
  useEffect(() => {
    document.title = `${view.title} · burnish`;
  }, [view]);
  return html`<div class="frame">
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Sidebar} shown=${view} onHelp=${() => setHelp(true)} />
    <main id="main" tabindex="-1" class=${`view view-${view.path}`} key=${view.path}>
      <${Bounded} view=${view} rest=${route.rest} />
    </main>
    <${Toasts} />
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
  </div>`;
}

function skip(event) {
  event.preventDefault(); // the address belongs to the router
  document.getElementById("main")?.focus();
}

// A fault in one view leaves the others usable.
function Bounded({ view, rest }) {
  const [error, reset] = useErrorBoundary((fault) => console.error(fault));
  const may = useMay(view.needs);
  const { View, missing } = useView(view.path);
  if (!may) return html`<header class="view-head"><h1>${view.title}</h1></header><div class="page"><${Locked} /></div>`;
  if (missing) return html`<div class="page"><${Unreached} /></div>`;
  if (!error) return View && html`<${View} rest=${rest} />`;
  return html`<div class="page"><${Note} tone="bad" title="This view stopped because of a fault in burnish's page.">
    <p>${String(error.message ?? error)}</p>
    <${Button} onClick=${reset}>Show it again<//>
  <//></div>`;
}

// A browser doesn't ask again for a module that it didn't get.
function Unreached() {
  return html`<${Note} tone="bad" title="This view couldn't be loaded.">
    <p>burnish didn't answer. If the line beside says “Connected” again, load the page anew.</p>
    <${Button} onClick=${() => location.reload()}>Load the page anew<//>
  <//>`;
}

function Sidebar({ shown, onHelp }) {
  useEffect(() => {
    // On narrow screens the navigation scrolls.
    document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [shown]);
  const locked = useStore((state) => state.locked);
  const live = useStore(({ status }) => status?.live.version);
  return html`<header class="side">
    <a class="brand" href=${address("live")}><img src=${ICON} alt="" width="22" height="22" />burnish</a>
    ${
      !locked &&
      html`<nav aria-label="Views">
      ${VIEWS.map(
        ({ path, title, key }) => html`<a key=${path} href=${address(path)} aria-current=${path === shown.path ? "page" : undefined}>
          <${Icon} name=${path} /><span>${title}</span><${Kbd} of=${key} />
        </a>`,
      )}
    </nav>`
    }
    <div class="state">
      ${!locked && html`<${LearningState} />`}
      ${live != null && html`<p class="serving">Answers from <${VersionBadge} version=${live} live=${live} /></p>`}
      ${!locked && html`<${Connection} />`}
      <${Who} />
      <${Button} tone="quiet" keys="?" onClick=${onHelp}>Keys<//>
    </div>
  </header>`;
}

function Connection() {
  const connection = useStore((state) => state.connection);
  const trouble = useStore(({ status }) => status?.engine.trouble ?? status?.log.trouble);
  if (connection === "lost") return html`<p class="connection lost" role="status"><i class="dot" />Connection lost, trying again</p>`;
  if (trouble) return html`<a class="connection trouble" href=${address("health")}><i class="dot" />Something is wrong</a>`;
  const word = connection === "open" ? "Connected" : "Connecting";
  return html`<p class=${`connection ${connection}`}><i class="dot" />${word}</p>`;
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.replaceChildren();
render(html`<${App} />`, root);
begin();
