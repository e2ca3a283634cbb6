// The types of what parts/markdown.js takes from the vendored marked, which doesn't bring them.
export function lexer(text: string): any[];
