// Live: the latest answers, whoever asked for them.
import { html, useEffect, useState } from "../lib.js";
import { get } from "../api.js";
import { address } from "../router.js";
import { useStore } from "../store.js";
import { RatingBadge, VersionBadge } from "../parts/badge.js";
import { Note } from "../parts/note.js";
import { line, replyText } from "../parts/text.js";
import { Welcome } from "../parts/welcome.js";
import { Time } from "../parts/time.js";

const SHOWN = 50;

function View({ rest: [chosen] }) {
  const [rows, setRows] = useState(null);
  const [error, setError] = useState(null);
  const stale = useStore((state) => state.listsStale);
  const live = useStore(({ status }) => status?.live.version);
  useEffect(() => {
    get("/burnish/completions", { limit: SHOWN }).then(({ data }) => setRows(data), setError);
  }, [stale]);
  if (error) return html`<div class="page"><${Note} tone="bad" title="The answers can't be shown.">${error.message}<//></div>`;
  if (rows && !rows.length) return html`<header class="view-head"><h1>Live</h1></header><${Welcome} />`;
  return html`<header class="view-head"><h1>Live</h1></header>
    <ul class="rows">
      ${rows?.map(
        (row) => html`<li key=${row.id}>
          <a href=${address("live", row.id)} aria-current=${row.id === chosen ? "true" : undefined}>
            <span class="row-head"><strong dir="auto">${line(row.prompt)}</strong><${Time} at=${row.created_at} /></span>
            <span class="row-text" dir="auto">${line(replyText(row.reply)) || row.error}</span>
            <span class="row-foot">
              <${VersionBadge} version=${row.adapter_version} model=${row.model_served} live=${live} />
              <${RatingBadge} rating=${row.rating} word=${row.rated} /><span>${row.caller}</span>
            </span>
          </a>
        </li>`,
      )}
    </ul>`;
}

export default { path: "live", title: "Live", key: "L", needs: "read", View };
