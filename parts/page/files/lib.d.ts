// The types of what lib.js exports, which the vendored Preact doesn't bring.
import type { ComponentChildren } from "preact";

export { createContext, render } from "preact";
export { useCallback, useContext, useEffect, useLayoutEffect, useMemo } from "preact/hooks";
export function html(strings: TemplateStringsArray, ...values: unknown[]): ComponentChildren;

type Change<T> = (value: T | ((old: T) => T)) => void;
// What begins as nothing gets its type from a comment, or has none.
export function useState(start?: null): [any, Change<any>];
export function useState<T>(start: T | (() => T)): [T, Change<T>];
export function useRef(start?: null): { current: any };
export function useRef<T>(start: T): { current: T };
export function useReducer<T>(next: (old: T) => T, start: T): [T, () => void];
export function useErrorBoundary(seen?: (fault: any) => void): [any, () => void];
