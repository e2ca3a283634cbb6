"""The agents that burnish can connect, with the settings that each of them needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnish.parts import user_files
from burnish.parts.connect import open_webui
from burnish.parts.connect.base import (
    BURNISH_KEY,
    IN_ENVIRONMENT,
    OPENAI_KEY,
    Agent,
    FileChange,
    Home,
    Keys,
    Place,
)
from burnish.parts.connect.changes import Format, Json, OwnFile, Scratch, SettingsChange, Toml
from burnish.parts.connect.json_text import END
from burnish.parts.connect.yaml_items import YamlItem, scalar
from burnish.proxy.client_headers import KEY_HEADER

# -- Claude Code -------------------------------------------------------------------------------------------------------

CLAUDE_MODELS = (
    "ANTHROPIC_MODEL",
    *(f"ANTHROPIC_DEFAULT_{name}_MODEL" for name in ("OPUS", "SONNET", "HAIKU")),
)
"""The model, and the models for its short names, which sub-agents and titles use."""
CLAUDE_WINDOW = "CLAUDE_CODE_MAX_CONTEXT_TOKENS"
"""Claude Code takes a million tokens for a model that it doesn't know. It ignores this for names of its own."""
CLAUDE_KEY, CLAUDE_TOKEN = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"
"""Claude Code needs a login, a key or a token. It sends a key along with a token."""
# Claude Code runs the hook only if this file defines /rl. If the hook doesn't run, the text of the file is sent to the
# model as a message, and burnish finds the command in it.
CLAUDE_COMMAND = """\
---
description: Rate the last answer (burnish)
argument-hint: good | bad [why] | 1…5 | fix <the reply you wanted> | undo | status | help
disable-model-invocation: true
---
/rl $ARGUMENTS
"""


def claude_code(place: Place, home: Home) -> Sequence[FileChange]:
    """A hook answers ``/rl`` without the model; with the mode "prompt" two more offer a choice after an answer."""
    folder = home.named("CLAUDE_CONFIG_DIR", ".claude")
    env = {"ANTHROPIC_BASE_URL": place.url}
    if place.renames:
        env |= dict.fromkeys(CLAUDE_MODELS, place.model)
        if place.window:
            env[CLAUDE_WINDOW] = str(place.window)
    if not place.own_credentials:
        # A key in the shell is for Anthropic; don't send it to another upstream.
        env |= {CLAUDE_TOKEN: place.token, CLAUDE_KEY: ""}
    elif place.key:
        env["ANTHROPIC_CUSTOM_HEADERS"] = f"{KEY_HEADER}: {place.key}"
    if place.key:
        env[BURNISH_KEY] = place.key  # for the hook
    command = {"type": "command", "command": place.hook, "timeout": 20}
    hooks: dict[str, dict[str, Any]] = {"UserPromptExpansion": {"matcher": "rl", "hooks": [command]}}
    if place.mode == "prompt":
        hooks |= {"Stop": {"hooks": [command]}, "UserPromptSubmit": {"hooks": [command]}}
    entries: list[tuple[Keys, Any]] = [(("env", name), setting) for name, setting in env.items()]
    entries += [(("hooks", event, END), hook) for event, hook in hooks.items()]
    return (
        SettingsChange(folder / "settings.json", Json(), entries),
        OwnFile(folder / "commands" / "rl.md", CLAUDE_COMMAND),
    )


# -- Codex -------------------------------------------------------------------------------------------------------------


CODEX_WAIT_MS = 30 * 60_000
"""For the first word. Codex's own five minutes are too few for a busy CPU that reads its prompt: it asks again."""


def codex(place: Place, home: Home) -> Sequence[FileChange]:
    """Codex speaks only the Responses API."""
    folder = home.named("CODEX_HOME", ".codex")
    provider: dict[str, Any] = {"name": "burnish", "base_url": place.api, "wire_api": "responses"}
    if not place.own_credentials:
        provider["stream_idle_timeout_ms"] = CODEX_WAIT_MS
    elif not home.env.get(OPENAI_KEY) and _codex_has_key(folder):
        provider["requires_openai_auth"] = True
    else:
        provider["env_key"] = OPENAI_KEY
    if place.key:
        provider["http_headers"] = {KEY_HEADER: place.key}
    entries: list[tuple[Keys, Any]] = [
        (("model",), place.model),
        (("model_provider",), "burnish"),
        (("model_providers", "burnish"), provider),
    ]
    if place.window:
        entries.append((("model_context_window",), place.window))
    return (SettingsChange(folder / "config.toml", Toml(), entries),)


CODEX_PROFILE = ".config.toml"
"""A file NAME.config.toml is the profile of ``codex --profile NAME``."""


def codex_overrides(place: Place, home: Home) -> Sequence[str]:
    """Profiles are read over config.toml; older versions had them in it."""
    folder = home.named("CODEX_HOME", ".codex")
    sentences = []
    for path in sorted(folder.glob(f"*{CODEX_PROFILE}")):
        settings = _settings(path, Toml())
        names = {"model_provider": "burnish", "model": place.model}
        others = [
            f"{name} = {settings[name]!r}" for name, ours in names.items() if settings.get(name, ours) != ours
        ]
        if others:
            name = path.name.removesuffix(CODEX_PROFILE)
            sentences.append(f"codex --profile {name} takes {' and '.join(others)} from {path}")
    if profile := _settings(folder / "config.toml", Toml()).get("profile"):
        sentences.append(
            f"profile = {profile!r} in {folder / 'config.toml'}: Codex refuses it, or takes that profile"
        )
    return sentences


def _settings(path: Path, how: Format) -> dict[str, Any]:
    """Return the settings in a file of the user; none if it is missing or can't be read."""
    try:
        file = user_files.read(path)
        return how.parse(file[0]) if file else {}
    except ValueError:
        return {}


def _codex_has_key(folder: Path) -> bool:
    """Return True if ``codex login --with-api-key`` stored a key. A ChatGPT login works only at OpenAI."""
    return bool(_settings(folder / "auth.json", Json()).get(OPENAI_KEY))


# -- opencode, Qwen Code, Cline: JSON ----------------------------------------------------------------------------------


OPENCODE_ANSWERS = 4
"""The longest answer is this part of the window."""


def opencode(place: Place, home: Home) -> Sequence[FileChange]:
    """The command ``/rl`` of its terminal interface sends a message, which burnish answers."""
    options: dict[str, Any] = {"baseURL": place.api}
    if place.key:
        options["headers"] = {KEY_HEADER: place.key}
    model: dict[str, Any] = {"name": place.model}
    if place.window:
        # Without the window opencode never compacts. With it alone, it takes 32,000 tokens of it for the answer.
        model["limit"] = {"context": place.window, "output": place.window // OPENCODE_ANSWERS}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "burnish",
        "options": options,
        "models": {place.model: model},
    }
    if place.own_credentials:
        provider["env"] = [OPENAI_KEY]  # or the key of `opencode auth login`
    command = {"template": "/rl $ARGUMENTS", "description": "Rate the last answer (burnish)"}
    entries: list[tuple[Keys, Any]] = [
        (("$schema",), "https://opencode.ai/config.json"),  # opencode would add it
        (("provider", "burnish"), provider),
        (("model",), f"burnish/{place.model}"),
        (("command", "rl"), command),
    ]
    folder = home.config("opencode")
    # If both files exist, opencode prefers the one with comments.
    with_comments = folder / "opencode.jsonc"
    usual = with_comments if with_comments.exists() else folder / "opencode.json"
    return (SettingsChange(home.named("OPENCODE_CONFIG", str(usual)), Json(), entries),)


# The command sends a message, which burnish answers itself.
QWEN_COMMAND = """\
---
description: Rate the last answer (burnish)
---
/rl {{args}}
"""


def qwen_code(place: Place, home: Home) -> Sequence[FileChange]:
    folder = home.named("QWEN_HOME", ".qwen")
    model: dict[str, Any] = {"id": place.model, "name": "burnish", "baseUrl": place.api}
    # Qwen Code requires a key, in a variable. A placeholder must not be in BURNISH_API_KEY, because a burnish that
    # is started in the same shell would use it.
    variable = BURNISH_KEY if place.key else "BURNISH_ANY_KEY"
    model["envKey"] = OPENAI_KEY if place.own_credentials else variable
    generation: dict[str, Any] = {"contextWindowSize": place.window} if place.window else {}
    if generation := generation | ({"customHeaders": place.headers} if place.headers else {}):
        model["generationConfig"] = generation
    entries: list[tuple[Keys, Any]] = [
        (("modelProviders", "openai", END), model),
        (("security", "auth", "selectedType"), "openai"),
        (("model", "name"), place.model),
    ]
    if not place.own_credentials:
        entries.append((("env", variable), place.token))
    return (
        SettingsChange(folder / "settings.json", Json(), entries),
        OwnFile(folder / "commands" / "rl.md", QWEN_COMMAND),
    )


def qwen_overrides(place: Place, home: Home) -> Sequence[str]:
    """Of several models with one name, Qwen Code asks the first."""
    path = home.named("QWEN_HOME", ".qwen") / "settings.json"
    providers = _settings(path, Json()).get("modelProviders")
    models = providers.get("openai") if isinstance(providers, dict) else None
    for model in models if isinstance(models, list) else ():
        if not isinstance(model, dict) or model.get("id") != place.model:
            continue
        if model.get("baseUrl") == place.api:
            return ()
        return (
            f"a model of your own in {path} is called {place.model!r}, too, and comes first ({model.get('baseUrl')}): "
            "give it another id, or connect with --model NAME",
        )
    return ()


CLINE_PROVIDER = "openai-compatible"
CLINE_UPDATED_AT = "2026-01-01T00:00:00.000Z"
"""Cline requires a date, and updates it at each use."""


def cline(place: Place, home: Home) -> Sequence[FileChange]:
    folder = home.named("CLINE_DATA_DIR", str(home.named("CLINE_DIR", ".cline") / "data"))
    settings: dict[str, Any] = {"provider": CLINE_PROVIDER, "model": place.model, "baseUrl": place.api}
    if not place.own_credentials:
        settings["apiKey"] = place.token
    elif place.headers:
        settings["headers"] = place.headers
    if place.window:
        settings["contextWindow"] = place.window
    provider = {"settings": settings, "updatedAt": CLINE_UPDATED_AT, "tokenSource": "manual"}
    entries: list[tuple[Keys, Any]] = [
        (("version",), 1),  # of the file format
        (("lastUsedProvider",), CLINE_PROVIDER),
        (("providers", CLINE_PROVIDER), provider),
    ]
    return (SettingsChange(folder / "settings" / "providers.json", Json(), entries),)


# -- Continue, llm: YAML -----------------------------------------------------------------------------------------------


def continue_dev(place: Place, home: Home) -> Sequence[FileChange]:
    """The first model of the list is the one that Continue asks (``cn``, and editors)."""
    own = f"${{{{ secrets.{OPENAI_KEY} }}}}"
    # As cn itself writes them, which it does where it finds a key of Anthropic's at its first start.
    lines = [
        "- name: burnish",
        "  provider: openai",
        f"  model: {scalar(place.model)}",
        f"  apiBase: {place.api}",
        f"  apiKey: {own if place.own_credentials else scalar(place.token)}",
        "  roles:",
        *(f"    - {role}" for role in ("chat", "edit", "apply")),
    ]
    if place.window:
        lines += ["  defaultCompletionOptions:", f"    contextLength: {place.window}"]
    if place.own_credentials and place.key:
        lines += ["  requestOptions:", "    headers:", f"      {KEY_HEADER}: {scalar(place.key)}"]
    path = home.named("CONTINUE_GLOBAL_DIR", ".continue") / "config.yaml"
    return (YamlItem(path, lines, key="models", head="name: Local\nversion: 1.0.0\nschema: v1\n"),)


def llm(place: Place, home: Home) -> Sequence[FileChange]:
    """Add burnish to the models of Simon Willison's ``llm``; the default model stays."""
    name = "io.datasette.llm"
    on_macos = home.path / "Library" / "Application Support" / name
    usual = on_macos if sys.platform == "darwin" else home.config(name)
    lines = ["- model_id: burnish", f"  model_name: {scalar(place.model)}", f"  api_base: {place.api}"]
    if place.own_credentials:
        lines.append("  api_key_name: openai")
    if place.key:
        lines += ["  headers:", f"    {KEY_HEADER}: {scalar(place.key)}"]
    lines.append("  supports_tools: true")
    return (YamlItem(home.named("LLM_USER_PATH", str(usual)) / "extra-openai-models.yaml", lines),)


# -- OpenClaw ----------------------------------------------------------------------------------------------------------

OPENCLAW_PLUGIN = Path(__file__).parent / "openclaw_plugin"
OPENCLAW_SENT = "sent.json"
"""The plugin's record of the answers in each message."""


def openclaw(place: Place, home: Home) -> Sequence[FileChange]:
    """It sends ``/rl`` as a message; a plugin reads reactions in channels."""
    settings = _openclaw_file(home)
    folder = settings.parent / "burnish"
    provider: dict[str, Any] = {"baseUrl": place.api, "api": "openai-completions"}
    provider["apiKey"] = f"${{{OPENAI_KEY}}}" if place.own_credentials else place.token
    if place.headers:
        provider["headers"] = place.headers
    window = {"contextWindow": place.window} if place.window else {}
    provider["models"] = [{"id": place.model, "name": "burnish", **window}]
    entries: list[tuple[Keys, Any]] = [
        (("models", "providers", "burnish"), provider),
        (("agents", "defaults", "model", "primary"), f"burnish/{place.model}"),
    ]
    if place.mode == "command":
        return (SettingsChange(settings, Json(), entries),)
    entries += [
        (("plugins", "load", "paths", END), str(folder)),
        (("plugins", "entries", "burnish"), _openclaw_plugin(place)),
    ]
    if _openclaw_allows_only_some(settings):
        entries.append((("plugins", "allow", END), "burnish"))
    plugin = [
        OwnFile(folder / file.name, file.read_text("utf-8")) for file in sorted(OPENCLAW_PLUGIN.iterdir())
    ]
    return (SettingsChange(settings, Json(), entries), *plugin, Scratch(folder / OPENCLAW_SENT))


def _openclaw_allows_only_some(settings: Path) -> bool:
    """Return True if only the plugins in a list are loaded."""
    plugins = _settings(settings, Json()).get("plugins")
    return isinstance(plugins, dict) and bool(plugins.get("allow"))


def _openclaw_plugin(place: Place) -> dict[str, Any]:
    config = {"url": place.url, "buttons": place.mode == "prompt"} | ({"key": place.key} if place.key else {})
    # The plugin reads replies and recipients to match answers with messages.
    return {"enabled": True, "hooks": {"allowConversationAccess": True}, "config": config}


def _openclaw_file(home: Home) -> Path:
    base = Home(home.named("OPENCLAW_HOME", "."), home.env)
    return home.named(
        "OPENCLAW_CONFIG_PATH", str(base.named("OPENCLAW_STATE_DIR", ".openclaw") / "openclaw.json")
    )


# -- aider: it has a settings file in each project, so the user sets it up by hand -------------------------------------


def aider_steps(place: Place) -> str:
    key = "" if place.own_credentials else f"{OPENAI_KEY}={place.token} "
    command = f"OPENAI_API_BASE={place.api} {key}aider --model openai/{place.model}"
    if not place.headers:
        return command
    header = f'{{{KEY_HEADER}: "{place.key}"}}'
    return (
        f"{command}\nwith your own {OPENAI_KEY}, and in ~/.aider.model.settings.yml:\n"
        f"- name: openai/{place.model}\n  extra_params:\n    extra_headers: {header}"
    )


AGENTS: dict[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(
            *("claude-code", "Claude Code", "claude", claude_code),
            sends_tokens=24_000,
            choice="a line with the keys + (good) and - (bad)",
            own_key=f"its login, or {CLAUDE_KEY} in its environment",
        ),
        Agent(
            *("codex", "Codex", "codex", codex, codex_overrides),
            rating="a space, then /rl good",  # its terminal doesn't send text that begins with a slash
            own_key=f"{IN_ENVIRONMENT}, or the key of an earlier codex login --with-api-key",
        ),
        Agent(
            *("opencode", "opencode", "opencode", opencode),
            sends_tokens=10_000,
            own_key=f"{IN_ENVIRONMENT}, or the key of opencode auth login for burnish",
        ),
        Agent(
            *("openclaw", "OpenClaw", "openclaw", openclaw),
            choice="two buttons, 👍 and 👎, in channels that have buttons",
        ),
        Agent("qwen-code", "Qwen Code", "qwen", qwen_code, qwen_overrides),
        Agent(*("cline", "Cline", "cline", cline), sends_tokens=6_000),
        Agent(*("continue", "Continue", "cn", continue_dev), sends_tokens=2_000),
        Agent(
            *("llm", "llm", "llm", llm),
            rating="llm -m burnish -c '/rl good'",
            sends_tokens=0,
            own_key=f"the key of llm keys set openai, or {IN_ENVIRONMENT}",
            steps=lambda place: (
                "Ask with: llm -m burnish '…', or make it the default: llm models default burnish"
            ),
        ),
        Agent(
            *("aider", "aider", "aider"),
            rating="a space, then /rl good",
            sends_tokens=4_000,
            own_key="",
            steps=aider_steps,
        ),
        Agent(
            *("open-webui", "Open WebUI", "open-webui", open_webui.changes),
            rating="👍 or 👎 below it, or /rl good",
            sends_tokens=0,
            own_key="",
            steps=open_webui.steps,
            remote=open_webui.remote,
            imports=True,
            key_help=open_webui.KEY_HELP,
        ),
    )
}
"""All agents by their names on the command line."""
