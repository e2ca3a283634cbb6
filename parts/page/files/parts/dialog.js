// A modal window. The browser's own element keeps the focus inside and gives it back.

import { useKeys } from "../keys.js";
import { html, useLayoutEffect, useRef } from "../lib.js";
import { Button } from "./button.js";

// Mount it to open it; `onClose` must unmount it.
export function Dialog({ title, onClose, keys = [], children, class: extra = "" }) {
  const element = useRef();
  useKeys(title, [{ key: "Escape", does: "Close", run: onClose, inFields: true }, ...keys], { modal: true });
  // Not a frame later: the first letter that somebody types belongs into it.
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  const cancelled = (event) => {
    event.preventDefault();
    onClose();
  };
  const outside = (event) => event.target === element.current && onClose();
  return html`<dialog ref=${element} class=${`dialog ${extra}`} aria-labelledby="dialog-title" onCancel=${cancelled} onClick=${outside}>
    <div class="dialog-inner">
      <header><h2 id="dialog-title">${title}</h2><${Button} tone="quiet" keys="Escape" onClick=${onClose}>Close<//></header>
      ${children}
    </div>
  </dialog>`;
}
