from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from burnish.config.config import load_config
from burnish.config.settings import REMOVED
from burnish.proxy.http.errors import ConfigError


def test_flag_beats_environment_beats_dotenv_beats_file_beats_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "burnish.toml"
    assert load_config().port == 8787
    file.write_text('port = 1\nhost = "localhost"\n[train]\nmin_ratings = 5\nmin_good = 3\n')
    assert load_config(file=file).port == 1
    (tmp_path / ".env").write_text("BURNISH_PORT=2\n")
    assert load_config(file=file).port == 2
    monkeypatch.setenv("BURNISH_PORT", "3")
    monkeypatch.setenv("BURNISH_TRAIN__MIN_GOOD", "4")
    assert load_config(file=file).port == 3
    config = load_config({"port": 4, "host": None, "train": {"enabled": False}}, file=file)
    assert (config.port, config.host) == (4, "localhost")
    assert (config.train.enabled, config.train.min_ratings, config.train.min_good) == (False, 5, 4)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"port": 99999}, "port: .*65535.*99999"),
        ({"upstream": "ftp://x"}, "upstream: must be an http"),
        ({"upstream": "litellm:"}, "upstream: must name one of litellm's providers"),
        ({"upstream": "litellm:bedrock/"}, "names no model: write litellm:bedrock/MODEL, or set model"),
        ({"upstream": "litellm:bedrock/a b"}, "upstream: must name one of litellm's providers"),
        ({"upstream": "litellm:a/b,http://x"}, "upstream: must be the only one if it begins with litellm:"),
        ({"litellm": {"interpreter": "x"}}, "litellm.interpreter"),
        ({"port": "many"}, "port: must be a whole number"),
        ({"host": "0.0.0.0"}, "set api_key"),
        ({"host": "192.168.1.5"}, "set api_key"),
        ({"train": {"schedule": "25:00-26:00"}}, "train.schedule"),
        ({"train": {"learning_rat": 1}}, "train.learning_rat"),
        ({"train": {"objective": "mispo"}}, "train.objective.*expected auto, mis_po"),
        ({"train": {"baseline": "median"}}, "train.baseline"),
        ({"train": {"promote": "later"}}, "train.promote: .*'auto' or 'manual'.*later"),
        ({"train": {"max_load": 70}}, "train.max_load: must be a number, above 0 and at most 1 .given: 70"),
        ({"train": {"memory_gb": -1}}, "train.memory_gb"),
        ({"log": {"keep_days": 0}}, "log.keep_days"),
        ({"log": {"keep_unrated_days": 0}}, "log.keep_unrated_days"),
        ({"log": {"keep_completions": -1}}, "log.keep_completions"),
    ],
)
def test_a_wrong_value_is_named_with_the_fix(flags: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config(flags)


CLOUD = {"url": "https://a.example/v1", "models": ["gpt-5"]}
TABLE = '[upstreams.cloud]\nurl = "https://a.example/v1"\nmodels = ["gpt-5"]\n'


def test_tables_of_upstreams_are_merged_like_other_settings(tmp_path: Path) -> None:
    file = tmp_path / "burnish.toml"
    file.write_text(TABLE)
    variables = {
        "BURNISH_UPSTREAMS__CLOUD__API_KEY": "sk-1",
        "BURNISH_UPSTREAMS__CLOUD__MODELS": '["o4-*", "qwen:latest"]',
        "BURNISH_UPSTREAMS__BOX__URL": "http://box:1/",
        "BURNISH_UPSTREAMS__BOX__MODELS": '["m"]',
        "BURNISH_UPSTREAMS__BOX__TEACHES": "true",
    }
    found = load_config(file=file, environment=variables).upstreams
    cloud, box = found["cloud"], found["box"]
    assert (cloud.url, cloud.models, cloud.teaches) == ("https://a.example/v1", ("o4-*", "qwen"), False)
    assert cloud.api_key and cloud.api_key.get_secret_value() == "sk-1"
    assert (box.url, box.api_key, box.teaches) == ("http://box:1", None, True)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"a": CLOUD | {"models": []}}, "upstreams.a.models: must name a model at least"),
        ({"a": CLOUD | {"models": ["*"]}}, "upstreams.a.models.0: must be a model name.*given: '\\*'"),
        ({"a": CLOUD | {"models": ["g*5"]}}, "upstreams.a.models.0: must be a model name"),
        ({"a": CLOUD | {"models": "gpt-5"}}, "upstreams.a.models: must be a list"),
        ({"a": {"url": "http://a"}}, "upstreams.a.models: is missing: set it"),
        ({"a": {"models": ["m"], "api_key": "geheim"}}, "upstreams.a.url: is missing: set it$"),
        ({"a": CLOUD | {"url": "ftp://a"}}, "upstreams.a.url: must be an http"),
        ({"a": CLOUD | {"url": "litellm:Bed rock"}}, "upstreams.a.url: must name one of litellm's providers"),
        ({"a": CLOUD | {"api_base": "http://a"}}, "upstreams.a: api_base is only for litellm:"),
        ({"a": CLOUD | {"url": "litellm:a/b", "api_base": "a"}}, "upstreams.a.api_base: must be an http"),
        ({"a": CLOUD | {"url": "http://u:geheim@a"}}, r"upstreams.a.url: .*set api_key instead .given: …@a"),
        ({"a": CLOUD | {"teaches": "perhaps"}}, "upstreams.a.teaches: must be true or false"),
        ({"Ä": CLOUD}, "upstreams.Ä: a name has at most 40 characters: the letters a to z"),
        ({"a b": CLOUD}, "upstreams.a b: a name has at most"),
        ({"a__b": CLOUD}, "upstreams.a__b: a name has at most"),
        ({"a" * 41: CLOUD}, "a name has at most 40 characters"),
        ({"a": "http://a"}, "upstreams.a: must be a table"),
        ({"a": CLOUD, "b": CLOUD}, "upstreams.a and upstreams.b both claim the model 'gpt-5': take it out"),
        ({"a": CLOUD, "b": CLOUD | {"models": ["gpt-*"]}}, "a and upstreams.b both claim the model 'gpt-5'"),
        ({"a": CLOUD | {"models": ["default"]}}, "upstreams.a claims the model 'default'"),
        ({"a": CLOUD | {"models": ["def*"]}}, "upstreams.a claims the model 'default'"),
        ({"a": CLOUD | {"models": ["own"]}}, "upstreams.a claims the model 'own', which the main upstream"),
    ],
)
def test_a_wrong_table_of_an_upstream_is_named_with_the_fix(tables: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load_config({"upstreams": tables, "upstream": "http://main", "model": "own"})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            TABLE.replace("url", "ulr"),
            "unknown key 'upstreams.cloud.ulr'; did you mean 'upstreams.cloud.url'",
        ),
        (TABLE.replace("upstreams", "upstream"), "upstream: must be a text"),
        ("upstreams = 1", "upstreams: must be a table"),
        ("prot = 1", "unknown key 'prot'; did you mean 'port'"),
        ("min_ratings = 1", "did you mean 'train.min_ratings'"),
        ("[train]\nmin_rating = 1", "unknown key 'train.min_rating'; did you mean 'train.min_ratings'"),
        ("[trian]\nmin_ratings = 1", "did you mean 'train'"),
        ("yellow = 1", "the keys are: host, port"),
        ("port = = 1", "not valid TOML"),
        ("workers = 1", "burnish.toml: there is no setting 'workers' any more: .*one process.*Remove it"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "burnish.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_config(file=file)


def test_a_file_that_is_not_regular_or_too_large_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "huge").write_text("#" * 2 * 1024**2)
    for name, says in (("fifo", "is not a regular file"), ("huge", "the limit is 1048576")):
        with pytest.raises(ConfigError, match=says):
            load_config(file=tmp_path / name)


def test_keys_do_not_show_in_messages_or_repr() -> None:
    config = load_config({"api_key": "geheim", "upstream_api_key": "sk-secret"})
    assert "geheim" not in repr(config)
    assert "sk-secret" not in str(config)


@pytest.mark.parametrize(
    "url",
    ["http://u:geheim@host", "u:geheim@host", "http://a/v1,https://u:geheim@b/v1", "http://u:ge/geheim@host"],
)
def test_a_password_in_an_upstream_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="upstream_api_key") as refused:
        load_config({"upstream": url})
    assert "geheim" not in str(refused.value)


def test_raters_are_weighed_in_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "config.toml"
    file.write_text('[train]\nrater_weights = { alice = 2.0, "judge-1" = 0.3 }\n')
    assert load_config(file=file).train.rater_weights == {"alice": 2.0, "judge-1": 0.3}
    monkeypatch.setenv("BURNISH_TRAIN__RATER_WEIGHTS", '{"bob": 0}')
    assert load_config().train.rater_weights == {"bob": 0}
    monkeypatch.setenv("BURNISH_TRAIN__RATER_WEIGHTS", '{"bob": -1}')
    with pytest.raises(ConfigError, match=r"train.rater_weights.bob"):
        load_config()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("BURNISH_WORKERS", "2", "BURNISH_WORKERS: there is no setting 'workers' any more: .*one process"),
        ("BURNISH_UPSTREAMS__CLOUD__ULR", "http://a", "did you mean BURNISH_UPSTREAMS__CLOUD__URL"),
        ("BURNISH_ALLOWED_HOSTS", "box.lan", "BURNISH_ALLOWED_HOSTS must be JSON.*box.lan"),
        ("BURNISH_PRT", "4", "no setting BURNISH_PRT; did you mean BURNISH_PORT"),
        ("BURNISH_TRAIN__MIN_RATING", "4", "did you mean BURNISH_TRAIN__MIN_RATINGS"),
        ("BURNISH_TRAIN_SEED", "4", "did you mean BURNISH_TRAIN__SEED"),
        ("BURNISH_TRAIN", "[]", "train: "),
    ],
)
def test_a_wrong_variable_is_named(name: str, text: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError, match=says):
        load_config()


def test_variables_of_others_and_empty_ones_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "burnish.env").write_text(
        'OTHER=1\nBURNISH_SERVICE_HOST=10.0.0.1\nexport BURNISH_LOG_LEVEL="debug"  # here\n'
    )
    monkeypatch.setenv("BURNISH_ENV_FILE", str(tmp_path / "burnish.env"))
    monkeypatch.setenv("BURNISH_PORT", "")
    monkeypatch.setenv("burnish_train", '{"min_good": 2, "min_bad": 2}')
    monkeypatch.setenv("BURNISH_TRAIN__MIN_BAD", "3")
    monkeypatch.setenv("BURNISH_OWNERS", '["ann", "local"]')
    config = load_config()
    assert (config.log_level, config.port, config.owners) == ("debug", 8787, ("ann", "local"))
    assert (config.train.min_good, config.train.min_bad) == (2, 3)


@pytest.mark.parametrize(
    ("given", "good", "bad", "comments"),
    [
        ({}, 8, 4, 16),
        ({"min_ratings": 16}, 8, 4, 16),
        ({"min_ratings": 8}, 4, 2, 8),
        ({"min_ratings": 2}, 1, 1, 4),
        ({"min_ratings": "6", "min_good": 5}, 5, 1, 6),
        ({"min_ratings": 200}, 8, 4, 16),
    ],
)
def test_few_ratings_need_fewer_of_each_kind(
    given: dict[str, Any], good: int, bad: int, comments: int
) -> None:
    train = load_config({"train": given}).train
    assert (train.min_good, train.min_bad, train.min_comments) == (good, bad, comments)


def test_a_table_within_a_table_is_read_from_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[train]\nrank = 4\n[train.advanced]\nalpha = 8\ntargets = ["q_proj"]\n')
    environment = {
        "BURNISH_TRAIN__ADVANCED__ALPHA": "32",
        "BURNISH_TRAIN__ADVANCED__TOKEN_BAND": "[0.8, 1.2]",
    }
    own = load_config(file=file, environment=environment).train.overrides()
    assert own == {"rank": 4, "alpha": 32, "targets": ("q_proj",), "token_band": (0.8, 1.2)}


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("kl_stop", "-1", "must be a number of nats per token, above 0 and at most 10 (given: '-1')"),
        ("alpha", "2.5", "must be a whole number, at least 1 and at most 1024 (given: '2.5')"),
        ("discount", "nan", "must be a number, above 0 and at most 1 (given: 'nan')"),
        ("trajectory_band", "[1.1, 1.2]", "must be two ratios around 1, such as [0.5, 2.0]"),
        ("token_band", "[2, 3]", "must be two ratios around 1, such as [0.5, 2.0]"),
        ("kl_stp", "1", "did you mean BURNISH_TRAIN__ADVANCED__KL_STOP?"),
    ],
)
def test_a_wrong_hyperparameter_is_refused_with_its_limits_and_unit(key: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load_config(environment={f"BURNISH_TRAIN__ADVANCED__{key.upper()}": value})


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_key_that_went_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    *tables, key = name.split(".")
    file = tmp_path / "config.toml"
    file.write_text(f"[{'.'.join(tables)}]\n{key} = 1\n" if tables else f"{key} = 1\n")
    variable = f"BURNISH_{name.upper().replace('.', '__')}"
    says = re.escape(f"there is no setting {name!r} any more: {REMOVED[name]}")
    for sources in ({"file": file}, {"environment": {variable: "1"}}):
        with pytest.raises(ConfigError, match=says):
            load_config(**sources)
