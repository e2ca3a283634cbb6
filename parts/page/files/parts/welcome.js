// What Live shows before the first answer: what to paste so that there is one. It goes away by itself.

import { get } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { address } from "../router.js";
import { Button } from "./button.js";
import { Copyable } from "./copy.js";
import { useMay } from "./may.js";
import { Picture } from "./picture.js";

// Any client of OpenAI's reads these.
const OTHER = { name: "other", title: "Another program" };

export function Welcome() {
  const [agents, setAgents] = useState([]);
  const [chosen, choose] = useState(null);
  const mayLook = useMay("read");
  useEffect(() => {
    // Without the agents of this machine there are still the lines for other programs.
    if (mayLook)
      get("/burnish/agents").then(
        (found) => setAgents(found.agents),
        () => {},
      );
  }, [mayLook]);
  const here = agents.filter(({ installed }) => installed);
  const shown = chosen ?? here[0] ?? OTHER;
  return html`<section class="empty welcome" aria-labelledby="welcome">
    <${Picture} />
    <h2 id="welcome">Ask something, and see it here</h2>
    <p class="muted">
      burnish stands between your agent and its model. Connect an agent and ask it anything: the answer appears on this page as
      it is written, and one key rates it. Your ratings train the model.
    </p>
    <div class="line-up" role="group" aria-label="What you want to connect">
      ${[...here, OTHER].map((each) => html`<${Button} key=${each.name} pressed=${each.name === shown.name} onClick=${() => choose(each)}>${each.title}<//>`)}
    </div>
    <${Lines} agent=${shown} />
    ${
      shown === OTHER &&
      agents.length > here.length &&
      html`<p class="muted small">
      <code>burnish connect</code> also sets up ${names(agents.filter(({ installed }) => !installed))}.
    </p>`
    }
    <p>No agent at hand? <a href=${address("chat")}>Talk with the model right here</a>.</p>
    <p class="waiting" role="status"><i class="pulse" />Waiting for the first answer …</p>
  </section>`;
}

function Lines({ agent }) {
  if (agent === OTHER) {
    const lines = [`export OPENAI_BASE_URL=${location.origin}/v1`, "export OPENAI_API_KEY=-"];
    return html`<div class="stack">
      <p>Paste these two lines into a terminal, and start the program there:</p>
      <${Copyable} text=${lines.join("\n")} label="Lines to paste" />
    </div>`;
  }
  const { title, lines, connected, rating } = agent;
  const said = connected
    ? `${title} is connected already. Start it, and ask something:`
    : lines.length > 1
      ? `Paste these two lines into a terminal. The first connects ${title}, the second starts it:`
      : `Paste this line into a terminal. It says how to connect ${title}:`;
  return html`<div class="stack">
    <p>${said}</p>
    <${Copyable} text=${(connected ? lines.slice(-1) : lines).join("\n")} label="Lines to paste" />
    <p class="muted small">You can rate here, or in ${title} itself: type <code>${rating}</code>. <code>burnish disconnect ${agent.name}</code> undoes it.</p>
  </div>`;
}

function names(agents) {
  return new Intl.ListFormat("en").format(agents.map(({ title }) => title));
}
