"""Configs: a YAML file and dotted words (`optim.lr=3e-4`) into a validated dataclass. Defaults < file < words.

    config = load_config(TrainConfig, Path("configs/rostok.yaml"), ["optim.lr=3e-4", "model.n_layer=4"])

The settings of a thing stand beside the thing (OptimConfig in optim.py, GPTConfig in model.py); this file only
knows how to read, merge, check and write them. A field that is a union of dataclasses is told apart by its `kind` key.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from rostok.errors import UserError, nearest

T = TypeVar("T")


class UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which would silently keep the last of two equal keys, made to refuse them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise UserError(
                    f"{self.name}, line {key_node.start_mark.line + 1}: a key must be a word. Got {key!r}"
                )
            if key in seen:
                line = key_node.start_mark.line + 1
                raise UserError(
                    f"{self.name}, line {line}: the key '{key}' is given twice; delete one of the two"
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def find_config(word: str, folder: Path) -> Path:
    """A config's path: `word` itself if it is a file, else the built-in `folder`/word.yaml. Raises UserError."""
    if Path(word).is_file():
        return Path(word)
    built_in = sorted(path.stem for path in folder.glob("*.yaml"))
    if word in built_in:
        return folder / f"{word}.yaml"
    raise UserError(
        f"there is no config '{word}'; give a YAML file or one of {', '.join(built_in)}{nearest(word, built_in)}"
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds. Raises UserError when it is missing, empty, not YAML or not a mapping."""
    try:
        with path.open(encoding="utf-8") as file:
            content = yaml.load(file, UniqueKeyLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the config {path}: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2024-13-01
        raise UserError(f"{path} is not YAML: {error}") from None
    if content is None:
        raise UserError(
            f"{path} is empty; wanted at least a line such as `data.path`, see configs/rostok.yaml"
        )
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold `key: value` lines. Got a {type(content).__name__}")
    return content


def parse_words(words: Sequence[str]) -> dict[str, Any]:
    """`["optim.lr=3e-4"]` -> `{"optim": {"lr": "3e-4"}}`. The first `=` parts key and value; later ones are value.

    >>> parse_words(["optim.lr=3e-4", "sample.prompt=2+2=4"])
    {'optim': {'lr': '3e-4'}, 'sample': {'prompt': '2+2=4'}}
    """
    result: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not all(key.split(".")):
            raise UserError(f"cannot read the setting '{word}'; wanted key=value, such as optim.lr=3e-4")
        try:
            value = yaml.safe_load(text) if text else ""
        except (yaml.YAMLError, ValueError, RecursionError):
            value = text
        *folders, last = key.split(".")
        place = result
        for name in folders:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise UserError(
                    f"the setting '{word}' goes below '{name}', which an earlier word set to a value"
                )
        place[last] = value
    return result


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings as one, `above` winning. A mapping with another `kind` replaces instead of mixing."""
    if "kind" in above and "kind" in below and above["kind"] != below["kind"]:
        return dict(above)
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def load_config(cls: type[T], path: Path | None = None, words: Sequence[str] = ()) -> T:
    """Defaults of `cls` < the YAML file < the words, validated. Raises UserError that names the key."""
    content = merge(read_yaml(path) if path else {}, parse_words(words))
    return validate(cls, content, str(path or "the command line"))


def validate(cls: type[T], content: Mapping[str, Any], source: str) -> T:
    """A nested mapping as an instance of the dataclass `cls`. Raises UserError that names the key and `source`."""
    clean = prepare(cls, content, "", source)
    try:
        return TypeAdapter(cls).validate_python(clean)
    except ValidationError as error:
        first = first_error(error)
        key = ".".join(str(part) for part in first["loc"] if isinstance(part, str) and not part[:1].isupper())
        message = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        came = "" if "Got" in message or isinstance(first["input"], dict) else f". Got {first['input']!r}"
        raise UserError(f"{source}: {key + ': ' if key else ''}{message}{came}{valid(key, first)}") from None


def first_error(error: ValidationError) -> Mapping[str, Any]:
    """The first error of the class that was meant: pydantic also tells why a union's other classes do not fit."""
    errors = error.errors()
    others = {
        e["loc"][:-1] for e in errors if e["loc"][-1:] == ("kind",) and str(e["loc"][-2:][0])[:1].isupper()
    }
    meant = [e for e in errors if e["loc"][:2] not in others]
    return (meant or errors)[0]


def valid(key: str, error: Mapping[str, Any]) -> str:
    """`; type batch=1`: the nearest thing that is valid, where the error knows it."""
    limits = error.get("ctx", {})
    if "expected" in limits:
        return nearest(
            str(error["input"]), str(limits["expected"]).replace("' or '", "', '").strip("'").split("', '")
        )
    bound = next((limits[name] for name in ("ge", "le") if name in limits), None)
    return "" if bound is None else f"; type {key}={bound}"


def prepare(hint: Any, value: Any, key: str, source: str) -> Any:
    """Check the keys below `hint` and turn YAML's strings into numbers where a number is declared."""
    options = [option for option in union_members(hint) if option is not type(None)]
    classes = [option for option in options if dataclasses.is_dataclass(option)]
    if classes:
        if value is None and type(None) in union_members(hint):
            return None
        if not isinstance(value, Mapping):
            raise UserError(f"{source}: {key} must hold `key: value` lines. Got {value!r}")
        cls = choose_class(classes, value, key, source)
        named = {"kind": cls.kind} if len(classes) > 1 else {}  # or pydantic would try the other classes too
        return named | prepare_fields(cls, value, key, source)
    if bool not in options and isinstance(value, bool) and (float in options or int in options):
        raise UserError(f"{source}: {key} must be a number. Got {str(value).lower()}")
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        if float in options and (str not in options or not isinstance(value, str)):
            return to_float(value, key, source)
        if int in options and str not in options:
            return to_int(value, key, source)
    return value


def prepare_fields(cls: Any, value: Mapping[str, Any], key: str, source: str) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]
    for name in value:
        if name not in names:
            place = f" below '{key}'" if key else ""
            raise UserError(
                f"{source}: unknown key '{name}'{place}{nearest(name, names) or '; known: ' + ', '.join(names)}"
            )
    return {
        name: prepare(hints[name], item, f"{key}.{name}".lstrip("."), source) for name, item in value.items()
    }


def choose_class(classes: list[Any], value: Mapping[str, Any], key: str, source: str) -> Any:
    """The dataclass of a union whose `kind` default equals the value's; the first one where no kind is given."""
    kinds = {cls.kind: cls for cls in classes if hasattr(cls, "kind")}
    if len(classes) == 1 or "kind" not in value:
        return classes[0]
    kind = str(value["kind"])
    if kind not in kinds:
        raise UserError(
            f"{source}: {key}.kind must be one of {', '.join(kinds)}. Got '{kind}'{nearest(kind, list(kinds))}"
        )
    return kinds[kind]


def to_float(value: str | float, key: str, source: str) -> float:
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        raise UserError(f"{source}: {key} is too large a number") from None
    except ValueError:
        raise UserError(f"{source}: {key} must be a number. Got {value!r}") from None
    if not math.isfinite(number):
        raise UserError(f"{source}: {key} must be a finite number. Got {value!r}")
    return number


def to_int(value: str | float, key: str, source: str) -> int:
    """Whole numbers below 2^63, also written as 6e6 or 6_000_000."""
    number = to_float(value, key, source)
    if number != int(number):
        raise UserError(f"{source}: {key} must be a whole number. Got {value!r}")
    if abs(number) >= 1 << 63:
        raise UserError(f"{source}: {key} is too large a number. Got {value!r}")
    return value if isinstance(value, int) else int(number)  # a float would round an integer above 2^53


def union_members(hint: Any) -> tuple[Any, ...]:
    """The plain types of a hint: Annotated[...] unwrapped, unions and Literals opened."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return union_members(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(member for option in typing.get_args(hint) for member in union_members(option))
    if origin is typing.Literal:
        return tuple({type(option) for option in typing.get_args(hint)})
    return (hint,)


def renamed(config: Any, run: Path, hint: str) -> Any:
    """The settings of a run that lies in the folder `run`. Raises UserError for a name that a run cannot have."""
    try:
        return dataclasses.replace(config, out=str(run.parent), name=run.name)
    except ValueError as error:
        raise UserError(f"{error}; {hint}") from None


def dump_yaml(config: Any) -> str:
    """A dataclass as YAML that `load_config` reads back to an equal one."""
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)
